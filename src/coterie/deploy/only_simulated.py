"""What a configuration may say of a simulation alone."""

from __future__ import annotations

from dataclasses import is_dataclass
from typing import Any, NamedTuple

from coterie.config.wording import shown
from coterie.errors import ConfigError
from coterie.experiment import Experiment


class OnlySimulated(NamedTuple):
    """A table or a key that real clients have no use for.

    Args:
        value: in the configuration; ``None``, ``False`` or nothing where it is not set.
    """

    key: str
    value: Any
    why: str
    expected: str

    @property
    def line(self) -> str:
        return f"{self.key}: {self.why}, got {self._got}; expected {self.expected}"

    @property
    def _got(self) -> str:
        if is_dataclass(self.value):
            return "a table"
        if isinstance(self.value, tuple):
            return ", ".join(str(one) for one in self.value)
        return shown(self.value)


def check_real(config: Experiment) -> None:
    """Refuse what only a simulation can do, all of it at once."""
    lines = [one.line for one in _only_simulated(config) if one.value not in (None, False, ())]
    if lines:
        raise ConfigError("\n".join(lines))


def _only_simulated(config: Experiment) -> list[OnlySimulated]:
    return [
        OnlySimulated("shift.kind", _shifts(config), "real data move by themselves", "no [shift]"),
        OnlySimulated(
            "availability",
            config.availability,
            "real clients come and go by themselves",
            "no [availability]",
        ),
        OnlySimulated(
            "reply_times",
            config.reply_times,
            "real clients take the time that they take",
            "none (deploy.toml: reply_wait)",
        ),
        OnlySimulated(
            "asynchronous",
            config.asynchronous,
            "rounds of real clients wait for their replies so far",
            "no [asynchronous]",
        ),
        OnlySimulated(
            "secure",
            config.secure,
            "only simulated, as Flower's secure aggregation hides no updates",
            "no [secure]",
        ),
        OnlySimulated(
            "attack.kind",
            _attack(config),
            "only a simulation makes clients attack",
            "no [attack]",
        ),
        *_measured_only_in_simulations(config),
    ]


def _measured_only_in_simulations(config: Experiment) -> list[OnlySimulated]:
    evaluate = config.evaluate
    train = config.train
    all_rows = "nodes train on all their rows"
    return [
        OnlySimulated(
            "evaluate.local",
            evaluate.local,
            "nodes do not remember the networks that they trained",
            "false",
        ),
        OnlySimulated(
            "evaluate.training",
            evaluate.training,
            "nodes score their test samples alone",
            "false",
        ),
        OnlySimulated(
            "evaluate.adapt",
            evaluate.adapt,
            "nodes adapt no models before they score them yet",
            "none",
        ),
        OnlySimulated(
            "evaluate.unseen",
            evaluate.unseen,
            "only a simulation knows clients that never train",
            "none",
        ),
        OnlySimulated("evaluate.validation", evaluate.validation, all_rows, "none"),
        OnlySimulated("train.hold_out", train.hold_out, all_rows, "none"),
        OnlySimulated("train.measures", train.measures, "what no client sends", "none"),
    ]


def _shifts(config: Experiment) -> tuple[str, ...]:
    return tuple(shift["kind"] for shift in config.shifts())


def _attack(config: Experiment) -> str | None:
    if config.attack is None:
        return None
    return config.name("attack")
