"""What a first writer of a method, a rule or an objective gets wrong is one line that says so."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional

import coterie as ct
from coterie.core.own_model import OwnTrained
from coterie.core.training import WithOwnModel
from tests.conftest import blobs, small_net
from tests.refusals import refuses

OPTIONS: dict[str, Any] = {
    "data": blobs(),
    "model": small_net(),
    "local": ct.Solver(epochs=1, batch_size=5, lr=0.1),
    "rounds": 2,
    "engine": "serial",
}


class Own:
    """A rule that is right; each test spoils one part of it."""

    plain_sgd = False

    def lengths(self, d: int) -> dict[str, int]:
        return {"v": d}

    def first(self, sent: Tensor) -> Any:
        return {"v": sent}

    def train(self, training: Any, own: Any) -> Any:
        update, loss = training.run(training.start)
        return OwnTrained(update, loss, own)

    def serve(self, sent: Tensor, own: Any) -> Any:
        return own["v"]


class ShortFirst(Own):
    def first(self, sent: Tensor) -> Any:
        return {"v": sent[:5]}


class NothingStored(Own):
    def train(self, training: Any, own: Any) -> Any:
        return OwnTrained(torch.zeros_like(training.start), 0.0, {})


class ATuple(Own):
    def train(self, training: Any, own: Any) -> Any:
        return (*training.run(training.start), own)


class OneRow(Own):
    def train(self, training: Any, own: Any) -> Any:
        update, loss = training.run(training.start)
        return OwnTrained(update[None], loss, own)


class ServesANetwork(Own):
    def serve(self, sent: Tensor, own: Any) -> Any:
        return torch.nn.Linear(2, 2)


class WithoutSgd:
    lengths = Own.lengths
    first = Own.first
    train = Own.train


@dataclass(frozen=True)
class Number:
    mu: float = 0.0

    def loss(self, module: Any, x: Tensor, y: Tensor, received: Any) -> Any:
        return functional.cross_entropy(module(x), y).item()


class EachSample(Number):
    def loss(self, module: Any, x: Tensor, y: Tensor, received: Any) -> Any:
        return functional.cross_entropy(module(x), y, reduction="none")


class WithoutMu:
    loss = Number.loss


def test_the_rule_that_is_right_runs() -> None:
    assert len(ct.run(ct.fedavg(), own_model=Own(), **OPTIONS).rows) == 2


@pytest.mark.parametrize(
    ("rule", "line"),
    [
        (Own, "own_model: is a class (Own); expected Own()"),
        (
            WithoutSgd(),
            "own_model: wrong type, got a WithoutSgd; expected a name, a table of a name ",
        ),
        (ShortFirst(), "own_model: ShortFirst.first: 'v' has the wrong shape, got [5]; expected ["),
        (
            NothingStored(),
            "own_model: NothingStored.train returned other names than those in `lengths`, ",
        ),
        (
            ATuple(),
            "own_model: ATuple.train returned the wrong type (tuple); expected an OwnTrained (client ",
        ),
        (OneRow(), "own_model: OneRow.train: the update has the wrong shape, got [1, "),
        (
            ServesANetwork(),
            "own_model: ServesANetwork.serve: the model is not a tensor (Linear); expected [",
        ),
    ],
)
def test_a_rule_for_own_models_that_is_wrong(rule: Any, line: str) -> None:
    with pytest.raises(ct.CoterieError) as caught:
        ct.run(ct.fedavg(), own_model=rule, **OPTIONS)
    assert str(caught.value).startswith(line)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("objective", "line"),
    [
        (
            WithoutMu(),
            "objective: wrong type, got a WithoutMu; expected a name, a table of a name ",
        ),
        (Number, "objective: is a class (Number); expected Number()"),
        (Number(), "objective: Number.loss at "),
        (EachSample(), "objective: EachSample.loss at "),
    ],
)
def test_an_objective_that_is_wrong(objective: Any, line: str) -> None:
    with pytest.raises(ct.CoterieError) as caught:
        ct.run(ct.fedavg(), objective=objective, **OPTIONS)
    assert str(caught.value).startswith(line)


def test_what_lacks_a_part_is_refused_with_the_names_of_all_parts() -> None:
    for option, wrong, parts in (
        ("own_model", WithoutSgd(), "plain_sgd, lengths, first and train"),
        ("objective", WithoutMu(), "mu and loss(module, x, y, received)"),
    ):
        with refuses(ct.ConfigError, "wrong-type", option) as caught:
            ct.run(ct.fedavg(), **OPTIONS | {option: wrong})
        assert caught.value.problems[0].allowed.endswith(f"a record with {parts}")


@pytest.mark.parametrize(
    ("local", "line"),
    [
        (
            ct.Train(how=WithOwnModel(WithoutSgd())),
            "own_model: lacks plain_sgd (a WithoutSgd",
        ),  # type: ignore[arg-type]
        (
            ct.Train(WithoutMu()),
            "objective: lacks mu (a WithoutMu); expected a record with mu",
        ),  # type: ignore[arg-type]
    ],
)
def test_the_same_in_a_method(local: ct.Train, line: str) -> None:
    with pytest.raises(ct.ConfigError) as caught:
        ct.run(replace(ct.fedavg(), local=local), **OPTIONS)
    assert str(caught.value).startswith(line)


def test_a_network_that_fails_is_named_by_file_and_line() -> None:
    class Failing(torch.nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            raise KeyError("v")

    with refuses(ct.CoterieError, "does-not-fit", "model.name") as caught:
        ct.run(ct.fedavg(), **OPTIONS | {"model": Failing(6, 4)})
    assert "KeyError in test_check.py, line" in str(caught.value)

    class FailsLater(torch.nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            if self.training:
                raise KeyError("v")
            return super().forward(x)

    with refuses(ct.CoterieError, "failed", "client 0") as caught:
        ct.run(ct.fedavg(), **OPTIONS | {"model": FailsLater(6, 4)})
    assert "KeyError in test_check.py, line" in str(caught.value)


@pytest.mark.parametrize("option", ["own_model", "objective"])
def test_a_class_inside_a_function_cannot_be_sent_to_the_pool(option: str) -> None:
    class Inside(Own):
        mu = 0.0

        def loss(self, module: Any, x: Tensor, y: Tensor, received: Any) -> Tensor:
            return functional.cross_entropy(module(x), y)

    pool = OPTIONS | {option: Inside(), "engine": {"name": "pool", "workers": 2}}
    with refuses(ct.ConfigError, "failed", "engine.name"):
        ct.run(ct.fedavg(), **pool)
    assert len(ct.run(ct.fedavg(), **pool | {"engine": "serial"}).rows) == 2
