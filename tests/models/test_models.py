"""Models: the published parameter counts, Keras' padding, keyed first weights, the user's own."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import coterie as ct
from coterie.core.keys import Key
from coterie.core.vectors import Layout, flatten
from coterie.errors import Code, ConfigError, DataError
from coterie.models import MODELS, build_model, initialise, spec
from coterie.models.cnn import same_padding
from coterie.models.initial import initial_models
from tests.refusals import refuses

GREY = (1, 28, 28)
COUNTS = [
    ("mclr", {}, GREY, 10, 7_850),
    ("mclr", {}, (60,), 10, 610),
    ("mclr", {"outputs": 26}, GREY, 10, 20_410),
    ("mlp", {}, GREY, 10, 101_770),
    ("mlp512", {}, GREY, 10, 407_050),
    ("mlp512", {"outputs": 26}, GREY, 10, 415_258),
    ("mlp", {"hidden": 512, "outputs": 26}, GREY, 10, 415_258),
    ("cnn_mnist", {}, GREY, 10, 50_186),
    ("cnn_femnist", {}, GREY, 10, 325_578),
    ("cnn_fashion", {}, GREY, 10, 3_274_634),
    ("cnn_fashion", {"hidden": 2048}, GREY, 62, 6_603_710),
    ("cnn_leaf", {}, GREY, 62, 6_603_710),
    ("cnn_rfedavg", {}, GREY, 10, 21_840),
    ("cnn_small", {}, GREY, 62, 10_366),
    ("cnn_small", {"first": 4, "second": 4}, GREY, 10, 622),
    ("lenet5", {}, (3, 32, 32), 10, 62_006),
    ("lenet5", {}, GREY, 10, 44_426),
    ("lenet5", {"padding": 2}, GREY, 10, 61_706),
    ("vgg16", {}, (3, 32, 32), 10, 15_245_130),
    ("vgg16", {"hidden": 64}, (1, 32, 32), 5, 14_750_853),
    ("mlp", {"hidden": [200, 100]}, GREY, 10, 178_110),
    ("resnet8", {}, (3, 32, 32), 10, 78_042),
    ("resnet8", {"norm_groups": 2}, GREY, 62, 81_134),
    ("resnet18", {}, (3, 32, 32), 10, 11_173_962),
    ("forecaster", {}, (168, 18), 1, 16_193),
    ("forecaster", {"cell": "lstm", "hidden": 8, "layers": 2}, (5, 3), 2, 946),
    ("transformer", {}, (25, 300), 2, 121_090),
    ("transformer", {"width": 8, "heads": 2, "layers": 1}, (4, 6), 3, 1_003),
]


def test_the_names_are_these() -> None:
    images = (
        "mclr",
        "mlp",
        "mlp512",
        "cnn_mnist",
        "cnn_femnist",
        "cnn_fashion",
        "cnn_leaf",
        "cnn_rfedavg",
        "cnn_small",
        "lenet5",
        "vgg16",
    )
    later = ("resnet8", "resnet18", "forecaster", "transformer")
    assert tuple(MODELS) == (*images, "bigru", "bilstm", "stacked_lstm", *later)


@pytest.mark.parametrize(("name", "parameters", "shape", "classes", "count"), COUNTS)
def test_published_counts(
    name: str, parameters: dict[str, Any], shape: tuple[int, ...], classes: int, count: int
) -> None:
    assert spec(name, **parameters).count(shape, classes) == count
    module = build_model(name, shape, classes, Key(0), **parameters).eval()
    assert Layout.of(module).d == count
    assert module(torch.zeros(2, *shape)).shape == (2, parameters.get("outputs", classes))


@pytest.mark.parametrize("name", MODELS)
def test_decay_names_kernels_of_the_model(name: str) -> None:
    record = spec(name)
    named = dict(record.build(record.shape, record.classes).named_parameters())
    assert all(named[kernel].ndim == 2 for kernel in record.decay)
    assert len(record.decay) == {"mclr": 1, "mlp": 2, "mlp512": 2, "cnn_femnist": 2}.get(name, 0)
    assert record.description
    first = (MODELS[name].__doc__ or "").split("\n\n")[0]
    assert first.endswith(
        ("classes.", "classes (MNIST).", "classes (FEMNIST).", "pooling.", "targets.")
    )


@pytest.mark.parametrize(
    ("side", "before", "after"), [(24, 1, 2), (8, 1, 2), (25, 2, 2), (7, 2, 2), (1, 2, 2)]
)
def test_same_padding_with_stride_two_is_that_of_tensorflow(
    side: int, before: int, after: int
) -> None:
    pad = same_padding([side, side], 5, 2)
    assert pad.padding == (before, after, before, after)
    assert nn.Conv2d(1, 1, 5, stride=2)(pad(torch.zeros(1, 1, side, side))).shape[-1] == -(
        -side // 2
    )


def test_first_weights_follow_the_key_alone() -> None:
    torch.manual_seed(1)
    before = torch.get_rng_state()
    a, b, c = (flatten(build_model("lenet5", GREY, 10, Key(s))) for s in (0, 0, 1))
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(a, b)
    assert not torch.equal(a, c)


def test_first_weights_are_those_of_keras() -> None:
    module = build_model("cnn_mnist", GREY, 10, Key(0))
    for name, p in module.named_parameters():
        if name.endswith("bias"):
            assert not p.any()
            continue
        field = p[0, 0].numel() if p.ndim == 4 else 1
        bound = (6 / ((p.shape[0] + p.shape[1]) * field)) ** 0.5
        assert 0.9 * bound < float(p.detach().abs().max()) <= bound
        assert abs(float(p.detach().mean())) < bound / 10


def test_recurrent_and_other_layers() -> None:
    module = nn.ModuleList(
        [nn.LSTM(5, 4), nn.GRU(5, 4), nn.BatchNorm1d(3), nn.Embedding(9, 2), nn.LayerNorm(3)]
    )
    with torch.no_grad():
        for p in module.parameters():
            p.fill_(7)
        module[2].running_mean.fill_(7)  # type: ignore[union-attr,operator]
    initialise(module, Key(0))
    p = dict(module.named_parameters())
    torch.testing.assert_close(p["0.weight_hh_l0"].T @ p["0.weight_hh_l0"], torch.eye(4))
    assert p["0.bias_ih_l0"].tolist() == [0] * 4 + [1] * 4 + [0] * 8
    assert not p["0.bias_hh_l0"].any()
    assert not p["1.bias_ih_l0"].any()
    assert (p["2.weight"].tolist(), p["2.bias"].tolist()) == ([1] * 3, [0] * 3)
    assert not module[2].running_mean.any()  # type: ignore[union-attr,operator]
    assert float(p["3.weight"].detach().abs().max()) <= 0.05
    assert p["4.weight"].tolist() == [1] * 3


@pytest.mark.parametrize(
    ("name", "parameters", "shape", "refusal"),
    [
        ("mlpp", {}, GREY, ("unknown-choice", "model.name")),
        ("mlp", {"hiden": 3}, GREY, ("unknown-key", "model.hiden")),
        ("mlp", {"hidden": 0}, GREY, ("out-of-range", "model.hidden")),
        ("mclr", {"outputs": 5}, GREY, ("out-of-range", "model.outputs")),
        ("lenet5", {}, (60,), ("does-not-fit", "model.name")),
        ("lenet5", {}, (1, 8, 8), ("does-not-fit", "model.name")),
        ("cnn_femnist", {}, (1, 8, 8), ("does-not-fit", "model.name")),
        ("cnn_mnist", {}, (1, 3, 3), ("does-not-fit", "model.name")),
        ("cnn_leaf", {}, (1, 3, 3), ("does-not-fit", "model.name")),
        ("cnn_rfedavg", {}, (1, 12, 12), ("does-not-fit", "model.name")),
        ("cnn_small", {}, (1, 4, 4), ("does-not-fit", "model.name")),
        ("vgg16", {}, GREY, ("does-not-fit", "model.name")),
        ("mlp", {"hidden": []}, GREY, ("wrong-type", "model.hidden")),
        ("resnet8", {"norm_groups": 3}, GREY, ("wrong-shape", "model.norm_groups")),
        ("forecaster", {}, GREY, ("does-not-fit", "model.name")),
        ("transformer", {}, GREY, ("does-not-fit", "model.name")),
        ("transformer", {"heads": 3}, (5, 4), ("wrong-shape", "model.heads")),
    ],
)
def test_complaints_are_one_line(
    name: str, parameters: dict[str, Any], shape: tuple[int, ...], refusal: tuple[Code, str]
) -> None:
    with refuses(ConfigError, *refusal) as caught:
        build_model(name, shape, 10, Key(0), **parameters)
    assert "\n" not in str(caught.value)


OWN = """
import torch
from torch import nn

def fitted(shape, classes):
    return nn.Sequential(nn.Flatten(), nn.Linear(shape[0], classes))

class Net(nn.Module):
    def __init__(self, hidden=4, classes_out=3):
        super().__init__()
        self.line = nn.Linear(6, classes_out)
    def forward(self, x):
        return self.line(x)

def narrow(): return nn.Linear(6, 2)
def picky(a, b, c): return nn.Linear(6, 3)
def nothing(): return 3
def broken(): raise RuntimeError("two\\nlines")
def wrong(): return nn.Linear(7, 3)
ready = nn.Flatten()
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "their_model.py").write_text(OWN)
    (tmp_path / "their_bug.py").write_text("import no_such_thing")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.path", __import__("sys").path.copy())
    return tmp_path


@pytest.mark.usefixtures("folder")
def test_a_network_of_ones_own() -> None:
    for name in ("their_model:fitted", "their_model:Net"):
        a = build_model(name, (6,), 3, Key(0))
        b = build_model(name, (6,), 3, Key(0))
        assert a(torch.zeros(2, 6)).shape == (2, 3)
        assert torch.equal(flatten(a), flatten(b))


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    ("name", "refusal"),
    [
        ("their_modle:fitted", ("cannot-be-used", "model.name")),
        ("their_bug:make", ("cannot-be-used", "model.name")),
        ("their_model:fited", ("cannot-be-used", "model.name")),
        ("their_model:", ("cannot-be-used", "model.name")),
        ("their_model:picky", ("wrong-type", "model.name")),
        ("their_model:nothing", ("wrong-type", "model.name")),
        ("their_model:ready", ("wrong-type", "model.name")),
        ("their_model:broken", ("failed", "model.name")),
    ],
)
def test_a_network_of_ones_own_that_cannot_be_used(name: str, refusal: tuple[Code, str]) -> None:
    with refuses(ConfigError, *refusal) as caught:
        build_model(name, (6,), 3, Key(0))
    assert "\n" not in str(caught.value)


def uncalled() -> nn.Module:
    return nn.Linear(6, 3)


@pytest.mark.parametrize("model", [uncalled, nn.Flatten])
def test_what_makes_a_network_is_to_be_called(model: Any) -> None:
    rows = np.arange(30).reshape(5, 6)
    data = ct.Population(torch.zeros(30, 6), torch.arange(30) % 3, tuple(rows), ([],) * 5, 3)
    with refuses(ConfigError, "wrong-type", "model") as caught:
        ct.run(ct.fedavg(), data=data, model=model, rounds=1, engine="serial")
    assert f"{model.__name__}()" in caught.value.problems[0].do


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("name", ["their_model:narrow", "their_model:wrong"])
def test_a_network_of_ones_own_that_does_not_fit_the_data(name: str) -> None:
    rows = np.arange(30).reshape(5, 6)
    data = ct.Population(torch.zeros(30, 6), torch.arange(30) % 3, tuple(rows), ([],) * 5, 3)
    with refuses(ConfigError, "does-not-fit", "model.name") as caught:
        ct.run(ct.fedavg(), data=data, model=name, rounds=1, engine="serial")
    assert "\n" not in str(caught.value)


def test_the_page_lists_every_network_with_its_parameters() -> None:
    page = (Path(__file__).parents[2] / "docs" / "models.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(\w+)` \| .+ \| ([\d,]+) \| ([\dx]+), (\d+) \|$", page, re.MULTILINE)
    expected = []
    for name in MODELS:
        made = spec(name)
        inputs = "x".join(map(str, made.shape))
        expected.append((name, f"{made.parameters:,}", inputs, str(made.classes)))
    assert sorted(rows) == sorted(expected)


def test_a_place_does_not_see_later_ones() -> None:
    network = build_model("transformer", (6,), 9, Key(0), per_token=True, layers=1).eval()
    tokens = torch.arange(6)[None]
    changed = tokens.clone()
    changed[0, 4] = 8
    with torch.no_grad():
        before = network(tokens)
        after = network(changed)
    assert before.shape == (1, 6, 9)
    assert torch.equal(before[:, :4], after[:, :4])
    assert not torch.equal(before[:, 4:], after[:, 4:])


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("model", "task"),
    [
        ("resnet8", "classification"),
        ("transformer", "classification"),
        ("transformer", "binary"),
        ("transformer", "next_token"),
        ("forecaster", "regression"),
        ("forecaster", "multilabel"),
    ],
)
def test_a_grouped_method_trains_them(model: str, task: str) -> None:
    rng = Key(3).torch()
    x = torch.randn(48, 5, 3, generator=rng)
    if model == "resnet8":
        x = torch.randn(48, 1, 4, 4, generator=rng)
    elif model == "transformer":
        x = torch.randint(7, (48, 5), generator=rng)
    y = torch.arange(48) % 2
    targets: dict[str, Tensor] = {
        "regression": torch.randn(48, 2, generator=rng),
        "multilabel": torch.stack([y, 1 - y], 1),
        "next_token": x,
    }
    parts = np.arange(48).reshape(6, 8)
    data = ct.Population(
        x, targets.get(task, y), tuple(parts[:, :6]), tuple(parts[:, 6:]), 2 * (task not in targets)
    )
    options = {"vocabulary": 7, "width": 8, "layers": 1, "per_token": task == "next_token"}
    shown: dict[str, Any] = {"name": model, **(options if model == "transformer" else {})}
    network = build_model(shown.pop("name"), data.shape, OUTPUTS.get(task, 2), Key(0), **shown)
    local = ct.Solver(epochs=1, batch_size=4, lr=0.01, optimizer="adamw")
    engines: list[dict[str, Any]] = [{"engine": "serial"}]
    if task in ("next_token", "regression"):
        engines.append({"engine": {"name": "pool", "workers": 2}})
    made = [
        ct.run(
            ct.fedgroup(groups=2, alpha=2),
            data=data,
            model=network,
            rounds=2,
            local=local,
            task=task,
            **engine,
        ).state.models
        for engine in engines
    ]
    assert torch.isfinite(made[0]).all()
    assert torch.equal(made[0], made[-1])


OUTPUTS = {"binary": 1, "next_token": 7}


class WithRecord(torch.nn.Module):
    """A network that returns its logits in a record, as models of transformers do."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = torch.nn.Linear(6, 3)

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"logits": self.inner(x)}


def test_a_network_that_returns_a_record_is_one_line() -> None:
    rows = np.arange(30).reshape(5, 6)
    data = ct.Population(torch.zeros(30, 6), torch.arange(30) % 3, tuple(rows), ([],) * 5, 3)
    with refuses(ConfigError, "wrong-type", "model.name"):
        ct.run(ct.fedavg(), data=data, model=WithRecord(), rounds=1, engine="serial")


def test_tokens_beyond_the_vocabulary_are_refused_in_one_line() -> None:
    network = build_model("transformer", (3,), 2, Key(0), vocabulary=9)
    with refuses(ConfigError, "out-of-range", "model.vocabulary"):
        ct.run(ct.fedavg(), data=_tokens(9), model=network, rounds=1, engine="serial")


def test_negative_tokens_are_refused_in_one_line() -> None:
    with refuses(DataError, "out-of-range", "x"):
        ct.run(ct.fedavg(), data=_tokens(-1), model="transformer", rounds=1, engine="serial")


def test_whole_numbers_are_refused_by_a_network_that_takes_none() -> None:
    with refuses(ConfigError, "does-not-fit", "model.name"):
        ct.run(ct.fedavg(), data=_tokens(1), model="mclr", rounds=1, engine="serial")


def _tokens(value: int) -> ct.Population:
    x = torch.full((4, 3), value)
    return ct.Population(x, torch.tensor([0, 1, 0, 1]), ([0, 1, 2, 3],), ([],), 2)


class _OneHot(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.dense = torch.nn.Linear(3 * 4, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.dense(torch.nn.functional.one_hot(x, 4).flatten(1).float())


def test_a_network_without_an_embedding_may_encode_whole_numbers_itself() -> None:
    x = torch.tensor([[0, 1, 2], [3, 1, 0], [2, 2, 2], [1, 0, 3]])
    data = ct.Population(x, torch.tensor([0, 1, 0, 1]), ([0, 1, 2, 3],), ([],), 2)
    result = ct.run(ct.fedavg(), data=data, model=_OneHot(), rounds=1, engine="serial")
    assert result.rows[0]["notes"]["replies"] == 1


def test_every_first_model_of_an_own_network_is_drawn_as_its_owner_did() -> None:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(8, 6), nn.LayerNorm(6), nn.Linear(6, 3, bias=False))
    nn.init.normal_(net[2].weight, 3.0, 0.1)
    net[0].bias.requires_grad_(False)
    first, second, third = map(initial_models(net, Key(0), own=True), range(3))
    assert torch.equal(first, flatten(net))
    layout = Layout.of(net)
    for name, tensor in net.named_parameters():
        if tensor.requires_grad:
            one, other, another = (model[layout.span(name)] for model in (first, second, third))
            assert torch.equal(other.sort().values, one.sort().values)
            is_constant = "1." in name
            assert torch.equal(other, one) == torch.equal(other, another) == is_constant


@pytest.mark.parametrize("shape", [(1, 1), (4, 3)])
def test_models_without_another_order_begin_with_different_values(shape: tuple[int, int]) -> None:
    net = nn.Linear(*shape)
    for parameter in net.parameters():
        nn.init.constant_(parameter, 0.5)
    first, second, third = map(initial_models(net, Key(0), own=True), range(3))
    assert torch.equal(first, flatten(net))
    assert not torch.equal(first, second)
    assert not torch.equal(second, third)


@pytest.mark.parametrize("model", [None, "mclr"])
def test_all_models_of_ifca_begin_with_the_spread_of_the_networks_weights(model: Any) -> None:
    """Not the user's own network with its weights beside others that Coterie drew."""
    torch.manual_seed(0)
    own = nn.Sequential(nn.Flatten(), nn.Linear(64, 10))
    nn.init.normal_(own[1].weight, 0.0, 0.001)
    data = ct.load("digits", partition={"kind": "iid", "clients": 8})
    local = ct.Solver(epochs=1, lr=1e-12)
    result = ct.run(ct.ifca(groups=3), data=data, model=model or own, rounds=1, local=local)
    spreads = result.state.models.std(dim=1)
    assert spreads.max() < 1.1 * spreads.min()
