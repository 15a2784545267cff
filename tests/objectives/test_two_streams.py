"""FedMMD and FedFusion: the distance by a double loop, the operators by hand, and what stays
FedAvg."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

import coterie as ct
from coterie.core.keys import Key
from coterie.core.objective import Objective, Reshaping
from coterie.core.solver import Solver
from coterie.core.vectors import Layout, flatten
from coterie.errors import Code, ConfigError
from coterie.local.training.batches import TrainingSamples
from coterie.local.training.sgd import Autograd
from coterie.methods.fit_to_model import fit_to_model
from coterie.models import MODELS, build_model, initial_models
from coterie.objectives import Fused, Fusion, Mmd, fuse, mmd, plain, proximal, squared_mmd
from coterie.objectives.mmd import FLOOR, WIDTHS
from tests.conftest import assert_near, blobs, small_net
from tests.refusals import refuses

SOLVER = Solver(epochs=2, batch_size=5, lr=0.05)


def pictures(clients: int = 6, size: int = 12, side: int = 8) -> ct.Population:
    rng = np.random.default_rng(1)
    n = clients * size
    y = rng.integers(3, size=n)
    x = rng.normal(size=(n, 1, side, side)) + y[:, None, None, None] * np.linspace(0, 1, side)
    index = np.split(np.arange(n), clients)
    train = tuple(i[: size * 3 // 4] for i in index)
    test = tuple(i[size * 3 // 4 :] for i in index)
    return ct.Population(torch.tensor(x, dtype=torch.float32), torch.tensor(y), train, test, 3)


def conv_net() -> nn.Sequential:
    net = build_model("cnn_small", (1, 8, 8), 3, Key(4), first=2, second=3)
    assert isinstance(net, nn.Sequential)
    return net


def train(
    objective: Objective, net: nn.Module, start: torch.Tensor | None = None, **solver: Any
) -> torch.Tensor:
    data = pictures(1, 40)
    start = flatten(net) if start is None else start
    out = torch.empty_like(start)
    trainer = Autograd(copy.deepcopy(net), objective)
    trainer.train(
        TrainingSamples(data.x, data.y),
        start,
        out,
        Solver(**{"epochs": 2, "batch_size": 5, "lr": 0.1, **solver}),
        Key(0),
    )
    return out


# --- FedMMD ---------------------------------------------------------------------------------------


def slow_mmd(x: np.ndarray, y: np.ndarray) -> float:
    def mean(a: np.ndarray, b: np.ndarray) -> float:
        total = 0.0
        for p in a:
            for q in b:
                for width in WIDTHS:
                    total += np.exp(-np.sum((p - q) ** 2) / (2 * width))
        return total / (len(a) * len(b))

    return mean(x, x) + mean(y, y) - 2 * mean(x, y)


@pytest.mark.parametrize("scale", [1e-3, 1.0, 30.0])
@pytest.mark.parametrize(("n", "m"), [(1, 1), (5, 5), (7, 4)])
def test_the_distance_is_that_of_a_double_loop(scale: float, n: int, m: int) -> None:
    rng = np.random.default_rng(n)
    x = rng.normal(size=(n, 3)) * scale
    y = rng.normal(size=(m, 3)) * scale + 1
    found = float(squared_mmd(torch.tensor(x), torch.tensor(y)))
    assert found == pytest.approx(slow_mmd(x, y), abs=1e-10)
    assert float(squared_mmd(torch.tensor(x).float(), torch.tensor(y).float())) == pytest.approx(
        found, abs=1e-4
    )


def test_its_gradient_is_that_of_differences() -> None:
    x = torch.randn(
        4, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0)
    ).requires_grad_()
    y = torch.randn(4, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    assert torch.autograd.gradcheck(lambda a: squared_mmd(a, y), (x,))
    (gradient,) = torch.autograd.grad(
        squared_mmd(y.clone().requires_grad_(), y), [x], allow_unused=True
    )
    assert gradient is None


def test_equal_streams_have_the_floor_and_a_finite_gradient() -> None:
    net = conv_net().eval()
    x = torch.randn(5, 1, 8, 8)
    y = torch.tensor([0, 1, 2, 0, 1])
    loss = Mmd(2.0).loss(net, x, y, lambda: net).detach()
    assert float(loss) == pytest.approx(
        float(F.cross_entropy(net(x), y).detach()) + 2 * FLOOR, abs=1e-6
    )
    ours, plains = (
        torch.autograd.grad(o.loss(net, x, y, lambda: net), [*net.parameters()])
        for o in (Mmd(), plain)
    )
    assert all(torch.equal(a, b) for a, b in zip(ours, plains, strict=True))


def test_without_weight_it_is_fedavg() -> None:
    assert torch.equal(train(Mmd(0.0), conv_net()), train(plain, conv_net()))
    assert mmd(0.0) == plain
    for model, data in ((small_net(), blobs()), (conv_net(), pictures())):
        a, b = (
            ct.run(method, data=data, model=model, local=SOLVER, rounds=2, engine="serial")
            for method in (ct.fedavg(), ct.fedmmd(weight=0.0))
        )
        assert torch.equal(a.state.models, b.state.models)


def test_weight_holds_the_logits_near_those_received() -> None:
    net = conv_net()
    x = pictures(1, 40).x
    start = flatten(net)
    apart = []
    # Steps of larger weights are so large that the last digits of a sum decide where they lead.
    for weight in (0.0, 0.01, 0.1):
        moved = copy.deepcopy(net)
        nn.utils.vector_to_parameters(start + train(Mmd(weight), net), moved.parameters())
        apart.append(float((moved(x) - net(x)).detach().norm()))
    assert apart[2] < apart[1] < apart[0]


def test_the_frozen_stream_is_the_model_received_by_this_client() -> None:
    """A trainer serves many clients, each with its own start."""
    net = conv_net()
    trainer = Autograd(conv_net(), Mmd(1.0))
    data = pictures(1, 20)
    out = torch.empty(Layout.of(net).d)
    other = torch.empty(Layout.of(net).d)
    near = flatten(net)
    far = flatten(net) + 1
    trainer.train(TrainingSamples(data.x, data.y), far, other, SOLVER, Key(0))
    trainer.train(TrainingSamples(data.x, data.y), near, out, SOLVER, Key(0))
    alone = torch.empty_like(out)
    Autograd(conv_net(), Mmd(1.0)).train(
        TrainingSamples(data.x, data.y), near, alone, SOLVER, Key(0)
    )
    assert torch.equal(out, alone)
    module = trainer._received()
    # It is frozen, so it has no flat vector of its own.
    held = torch.cat([p.flatten() for p in module.parameters()])
    assert torch.equal(held, near)
    assert not module.training
    assert not any(p.requires_grad for p in module.parameters())


def test_plain_training_never_makes_a_second_model() -> None:
    trainer = Autograd(conv_net(), proximal(0.1))
    data = pictures(1, 20)
    out = torch.empty(Layout.of(conv_net()).d)
    trainer.train(TrainingSamples(data.x, data.y), flatten(conv_net()), out, SOLVER, Key(0))
    assert trainer.frozen is None


def test_dropout_spares_the_frozen_stream_and_the_random_streams() -> None:
    net = nn.Sequential(nn.Flatten(), nn.Linear(64, 8), nn.ReLU(), nn.Dropout(0.5), nn.Linear(8, 3))
    assert torch.equal(train(Mmd(0.0), net), train(plain, net))


# --- FedFusion ------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(2, 3, 4, 4), (2, 3)])
def test_operators_by_hand(shape: tuple[int, ...]) -> None:
    local = torch.randn(*shape)
    received = torch.randn(*shape)
    layer = nn.Conv2d(1, 3, 3) if len(shape) == 4 else nn.Linear(7, 3)
    net = nn.Sequential(layer, nn.ReLU(), nn.Flatten(), nn.Linear(3, 2))
    if len(shape) == 2:
        net = nn.Sequential(layer, nn.ReLU(), nn.Linear(3, 2))

    single, multi, conv = (fuse(net, kind, Key(0)).fusion for kind in ("single", "multi", "conv"))  # type: ignore[arg-type]
    assert torch.equal(single(local, received), local)
    single.gamma.data.fill_(0.25)
    torch.testing.assert_close(single(local, received), 0.25 * received + 0.75 * local)
    multi.gamma.data.copy_(torch.tensor([0.0, 0.5, 1.0]))
    expected = [local[:, 0], (local[:, 1] + received[:, 1]) / 2, received[:, 2]]
    torch.testing.assert_close(multi(local, received), torch.stack(expected, dim=1))
    weight = conv.mix.weight.detach().reshape(3, 6)
    both = torch.cat([local, received], dim=1)
    mixed = torch.einsum("oc,nc...->no...", weight, both)
    torch.testing.assert_close(
        conv(local, received), mixed + conv.mix.bias.view(-1, *[1] * (len(shape) - 2))
    )


@pytest.mark.parametrize(
    ("name", "shape", "features", "maps"),
    [
        ("cnn_mnist", (1, 28, 28), 6, (64, 7, 7)),
        ("cnn_femnist", (1, 28, 28), 15, (64, 4, 4)),
        ("cnn_leaf", (1, 28, 28), 6, (64, 7, 7)),
        ("cnn_rfedavg", (1, 28, 28), 6, (20, 4, 4)),
        ("cnn_small", (1, 28, 28), 6, (16, 3, 3)),
        ("lenet5", (3, 32, 32), 6, (16, 5, 5)),
        ("mlp", (1, 28, 28), 3, (128,)),
        ("resnet8", (3, 32, 32), 10, (64, 1, 1)),
        ("bigru", (25, 12), 6, (64,)),
        ("stacked_lstm", (25, 12), 5, (30,)),
    ],
)
def test_where_the_extractor_ends(
    name: str, shape: tuple[int, ...], features: int, maps: tuple[int, ...]
) -> None:
    classes = 2 if name == "stacked_lstm" else 10
    net = build_model(name, shape, classes, Key(0)).eval()
    for kind, size in (("single", 1), ("multi", maps[0]), ("conv", 2 * maps[0] ** 2 + maps[0])):
        fused = fuse(net, kind, Key(0)).eval()  # type: ignore[arg-type]
        x = torch.randn(2, *shape)
        assert fused.cut == features
        assert fused.features(x).shape == (2, *maps)
        assert Layout.of(fused).d == Layout.of(net).d + size
        if kind != "conv":
            torch.testing.assert_close(fused(x), net(x))
        assert fused(x).shape == (2, classes)
        assert set(dict(net.named_parameters())) < set(dict(fused.named_parameters()))
        layout = Layout.of(fused)
        assert layout.final_layer().stop == layout.d
        assert layout.final_layer().start > layout.d - Layout.of(net).final_layer().stop
    assert isinstance(net, nn.Sequential) and "fusion" not in dict(net.named_children())  # noqa: PT018


def test_every_model_fuses_or_says_why() -> None:
    for name, make in MODELS.items():
        record = make()
        with torch.device("meta"):
            module = record.build(record.shape, record.classes)
        if name in ("mclr", "forecaster") or name == "transformer":
            with refuses(ConfigError, "does-not-fit", "model.name"):
                fuse(module, "multi", Key(0))
        elif name not in ("vgg16", "resnet18"):
            assert isinstance(fuse(module, "multi", Key(0)), Fused)


@pytest.mark.parametrize(
    ("make", "refusal"),
    [
        (lambda: nn.Linear(4, 2), ("does-not-fit", "model.name")),
        (
            lambda: nn.Sequential(nn.Flatten(), nn.Linear(4, 2)),
            ("does-not-fit", "model.name"),
        ),
        (
            lambda: nn.Sequential(nn.Sequential(nn.Conv2d(1, 1, 1), nn.Flatten(), nn.Linear(4, 2))),
            ("does-not-fit", "model.name"),
        ),
    ],
)
def test_networks_that_cannot_be_fused_are_refused_in_one_line(
    make: Callable[[], nn.Module], refusal: tuple[Code, str]
) -> None:
    with refuses(ConfigError, *refusal) as caught:
        ct.run(ct.fedfusion(), data=pictures(), model=make(), engine="serial")
    assert str(caught.value).startswith("model.name: ")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("kind", ["single", "multi", "conv"])
def test_a_step_is_that_of_two_networks_by_hand(kind: Any) -> None:
    net = fuse(conv_net(), kind, Key(1))
    start = flatten(net) + 0.1 * torch.randn(
        Layout.of(net).d, generator=torch.Generator().manual_seed(0)
    )
    data = pictures(1, 10)
    solver = Solver(steps=2, batch_size=50, lr=0.1)
    out = torch.empty_like(start)
    Autograd(copy.deepcopy(net), Fusion(kind)).train(
        TrainingSamples(data.x, data.y), start, out, solver, Key(0)
    )

    local = copy.deepcopy(net)
    received = copy.deepcopy(net)
    for module in (local, received):
        nn.utils.vector_to_parameters(start.clone(), module.parameters())
    for _ in range(2):
        with torch.no_grad():
            theirs = data.x
            for layer in [*received][: net.cut]:
                theirs = layer(theirs)
        ours = data.x
        for layer in [*local][: net.cut]:
            ours = layer(ours)
        logits = local.fusion(ours, theirs)
        for layer in [*local][net.cut + 1 :]:
            logits = layer(logits)
        gradients = torch.autograd.grad(F.cross_entropy(logits, data.y), [*local.parameters()])
        with torch.no_grad():
            for parameter, gradient in zip(local.parameters(), gradients, strict=True):
                parameter -= 0.1 * gradient
    assert_near(start + out, flatten(local), within=1e-5)


def test_the_servers_coefficients_are_smoothed() -> None:
    """gamma <- 0.1 * mean of the clients' + 0.9 * gamma, everything else the mean."""
    method, net = fit_to_model(ct.fedfusion(operator="multi"), conv_net(), Key(0))
    assert isinstance(method, ct.Method)
    layout = Layout.of(net)
    rng = np.random.default_rng(0)
    groups = ct.Groups(
        torch.tensor(rng.normal(size=(1, layout.d)), dtype=torch.float32), np.zeros(3, np.int64)
    )
    clients = torch.tensor(rng.normal(size=(3, layout.d)), dtype=torch.float32)
    mean = clients.to(torch.float64).mean(dim=0)
    after = method.server(groups, mean[None] - groups.models, torch.tensor([True])).models[0]
    expected = mean.clone()
    span = layout.span("fusion.gamma")
    expected[span] = 0.1 * mean[span] + 0.9 * groups.models[0, span]
    assert_near(after, expected, within=1e-6)
    assert span.stop - span.start == 3


def test_the_operator_starts_from_the_seed_and_leaves_torch_alone() -> None:
    before = torch.get_rng_state()
    a, b, c = (
        flatten(fit_to_model(ct.fedfusion(), conv_net(), Key(seed))[1]) for seed in (0, 0, 1)
    )
    assert torch.equal(a, b)
    assert not torch.equal(a, c)
    net = fit_to_model(ct.fedfusion(operator="multi"), conv_net(), Key(0))[1]
    other = initial_models(net, Key(0))(1)
    assert not other[Layout.of(net).span("fusion.gamma")].any()
    fuse(conv_net(), "conv", Key(0))
    assert torch.equal(before, torch.get_rng_state())


@pytest.mark.parametrize("operator", ["single", "multi", "conv"])
def test_fedfusion_runs_alike_on_every_engine_and_learns(operator: Any) -> None:
    net = conv_net()
    before = flatten(net)
    make: Callable[..., ct.Result] = lambda engine: ct.run(  # noqa: E731
        ct.fedfusion(operator=operator),
        data=pictures(),
        model=net,
        local=SOLVER,
        rounds=4,
        engine={"name": engine, "workers": 2},
    )
    serial = make("serial")
    pool = make("pool")
    assert torch.equal(serial.state.models, pool.state.models)
    assert serial.rows[-1]["loss"] < serial.rows[0]["loss"]
    assert torch.equal(flatten(net), before)
    fused = serial.model_for(2)
    assert isinstance(fused, Fused)
    x = pictures().x
    features = fused.features(x)
    assert torch.equal(fused(x), fused(x, features))


def test_groups_can_fuse_and_compare_streams() -> None:
    for objective in (Fusion("multi"), Mmd(0.1)):
        result = ct.run(
            ct.ifca(groups=2),
            data=pictures(),
            model=conv_net(),
            local=SOLVER,
            rounds=2,
            engine="serial",
            objective=objective,
        )
        assert torch.isfinite(result.state.models).all()


def test_objectives_are_what_they_say() -> None:
    for objective in (plain, proximal(0.1), Mmd(), Fusion()):
        assert isinstance(objective, Objective)
        assert isinstance(objective, Reshaping) == isinstance(objective, Fusion)
