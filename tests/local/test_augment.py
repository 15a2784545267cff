"""Augmentation of training samples: drawn by client, round and pass, equal over engines."""

from __future__ import annotations

import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import coterie as ct
from coterie.config.schema import table_of, to_plain
from coterie.config.trust import named_code
from coterie.core.augment import Augment, augmented, check_augment
from coterie.core.keys import Key, keyed_torch
from coterie.errors import Code, ConfigError
from coterie.local.training.compiled import compiles
from tests.refusals import refuses

OWN = "tests.local.test_augment:noise"


def noise(scale: float = 0.1) -> Callable[[Tensor], Tensor]:
    """A factory of a user: noise by torch's global generator."""
    return lambda x: x + scale * torch.randn(x.shape)


def fails() -> Callable[[Tensor], Tensor]:
    return lambda x: x.reshape(7, 7)


def longer() -> Callable[[Tensor], Tensor]:
    return lambda x: torch.cat([x, x])


class RandomHorizontalFlip:
    """As torchvision's: mirrors an image by a draw from torch's global generator."""

    def __init__(self, p: float = 0.5) -> None:
        self.p = p

    def __call__(self, x: Tensor) -> Tensor:
        return x.flip(-1) if torch.rand(1) < self.p else x


@pytest.fixture
def torchvision(monkeypatch: pytest.MonkeyPatch) -> None:
    library: Any = types.ModuleType("torchvision.transforms.v2")
    library.RandomHorizontalFlip = RandomHorizontalFlip
    monkeypatch.setitem(sys.modules, "torchvision.transforms.v2", library)
    for parent in ("torchvision", "torchvision.transforms"):
        monkeypatch.setitem(sys.modules, parent, types.ModuleType(parent))


def population(shape: tuple[int, ...] = (6,)) -> ct.Population:
    rng = np.random.default_rng(0)
    x = torch.tensor(rng.normal(size=(80, *shape)), dtype=torch.float32)
    parts = np.arange(80).reshape(8, 10)
    y = torch.arange(80) % 3
    return ct.Population(x, y, tuple(parts[:, :7]), tuple(parts[:, 7:]), 3)


def run(*changes: Any, data: ct.Population | None = None, **options: Any) -> ct.Result:
    data = data or population()
    with keyed_torch(Key(1)):
        net = nn.Sequential(nn.Flatten(), nn.Linear(data.x[0].numel(), 3))
    local = ct.Solver(epochs=2, batch_size=4, lr=0.1, augment=changes)
    given: dict[str, Any] = {"engine": "serial", "rounds": 2, "clients_per_round": 4, **options}
    return ct.run(ct.fedgroup(groups=2, alpha=2), data=data, model=net, local=local, **given)


def test_engines_give_equal_bits_and_samples_are_changed() -> None:
    change = Augment(OWN, {"scale": 0.5})
    serial = run(change).state.models
    assert torch.equal(serial, run(change, engine={"name": "pool", "workers": 2}).state.models)
    assert not torch.equal(serial, run().state.models)
    assert not torch.equal(serial, run(change, seed=1).state.models)


def test_every_sample_has_its_own_draw_and_torch_stays_as_it_was() -> None:
    before = torch.get_rng_state()
    x = torch.zeros(3, 5)
    made = augmented(x, [noise()], Key(0))
    assert len({tuple(row) for row in made.tolist()}) == 3
    assert torch.equal(made, augmented(x, [noise()], Key(0)))
    assert not torch.equal(made, augmented(x, [noise()], Key(0).at(1)))
    assert torch.equal(torch.get_rng_state(), before)


def test_scoring_sees_the_samples_as_they_are() -> None:
    # What is always trained on zeros cannot be told apart, and the test samples are no zeros.
    zeros = run(torch.zeros_like)
    weights = zeros.state.models[:, : 3 * 6]
    start = run(torch.zeros_like, rounds=1).module[1].weight.detach().flatten()
    assert torch.equal(weights, start.expand(2, -1))
    assert zeros.rows[-1]["accuracy"] not in (0.0, 1.0)


@pytest.mark.usefixtures("torchvision")
def test_classes_of_torchvision_by_name() -> None:
    table = {"augment": [{"name": "RandomHorizontalFlip", "options": {"p": 1.0}}]}
    solver = solver_of(table)
    assert solver.augment == (Augment("RandomHorizontalFlip", {"p": 1.0}),)
    assert hash(solver) == hash(solver_of(table))
    x = torch.arange(4.0).reshape(1, 1, 2, 2)
    assert augmented(x, solver.augment, Key(0)).tolist() == [[[[1.0, 0.0], [3.0, 2.0]]]]
    with refuses(ConfigError, "failed", "local.augment"):
        augmented(x, [Augment("RandomFlop")], Key(0))


def test_compiled_code_and_vmap_leave_augmented_training_to_others() -> None:
    assert compiles(ct.Solver())
    assert not compiles(ct.Solver(augment=(torch.neg,)))
    with refuses(ConfigError, "does-not-fit", "local.augment"):
        run(Augment(OWN), engine="vmap")


@pytest.mark.parametrize(
    ("name", "refusal"),
    [
        ("RandomCrop", ("not-installed", "local.augment")),
        ("nowhere:make", ("failed", "local.augment")),
        ("tests.local.test_augment:fails", ("failed", "local.augment")),
        ("tests.local.test_augment:longer", ("wrong-shape", "local.augment")),
    ],
)
def test_what_cannot_change_the_samples_is_refused_in_one_line(
    name: str, refusal: tuple[Code, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "torchvision.transforms.v2", None)
    with refuses(ConfigError, *refusal) as caught:
        run(Augment(name))
    assert str(caught.value).startswith("local.augment: ")
    assert "\n" not in str(caught.value)


def test_tables_are_refused_and_code_of_strangers_is_named() -> None:
    with refuses(ConfigError, "does-not-fit", "local.augment"):
        check_augment([torch.neg], torch.zeros(2, 3), table=True)
    check_augment([], torch.zeros(2, 3), table=True)
    tables = {"local": {"augment": [{"name": "RandomCrop"}, {"name": "os:system"}]}}
    assert [code.value for code in named_code(tables)] == ["os:system"]


def solver_of(table: dict[str, Any]) -> ct.Solver:
    """The solver of a table ``[local]``."""
    made: ct.Solver = table_of(ct.Solver).model_validate(table).made()
    return made


def test_a_folder_of_a_run_in_python_names_it(tmp_path: Path) -> None:
    table = to_plain(ct.Solver(augment=(ct.Augment(OWN, {"scale": 0.5}), ct.Augment("Gray"))))
    assert table["augment"] == [{"name": OWN, "options": {"scale": 0.5}}, {"name": "Gray"}]
    assert solver_of(table).augment[1] == ct.Augment("Gray")
    assert "augment" not in to_plain(ct.Solver())
    data = ct.load("digits", partition={"kind": "iid", "clients": 4})
    with refuses(ConfigError, "cannot-be-written", "local.augment"):
        ct.run(
            ct.fedavg(),
            data=data,
            model="mclr",
            local=ct.Solver(augment=(torch.neg,)),
            out=tmp_path / "run",
        )
