"""The figure that stands for a run: its name, which way is better, and how it is written."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal


def decimals_for(largest: float, digits: int = 4) -> int:
    """How many decimals give the largest of some values so many digits.

    Example:
        >>> [decimals_for(value) for value in (0.01234, 7.1, 101.2, 12345.0)]
        [5, 3, 1, 0]
        >>> decimals_for(1.0, 3), decimals_for(0.999, 3)  # a perfect score is as precise as others
        (3, 3)
    """
    return min(12, max(0, digits - math.ceil(math.log10(largest))))


@dataclass(frozen=True, slots=True)
class Headline:
    """A metric as people read it.

    Args:
        name: its name in rows and files: ``accuracy``, ``mae``.
        better: whether a higher or a lower value is better.
        unit: ``%``: a fraction, shown in percent; else it stands behind the number.
        label: its name in sentences; default: ``name``.
        decimals: digits behind the point of all values; default: four digits of each.

    Example:
        >>> mae = Headline("mae", better="lower", unit="mm", label="MAE")
        >>> Headline().text(0.9216), mae.text(3.14159), mae.text(None)
        ('92.2 %', '3.142 mm', '-')
        >>> mae.best([3.0, 2.0]), mae.gain(2.0, over=3.0)
        (2.0, 1.0)
    """

    name: str = "accuracy"
    better: Literal["higher", "lower"] = "higher"
    unit: str = "%"
    label: str = ""
    decimals: int | None = None

    def with_decimals_for(self, values: Iterable[float | None], digits: int = 4) -> Headline:
        """The same with one number of decimals for all values: so many digits of the largest.

        Example:
            >>> mae = Headline("mae", "lower", "").with_decimals_for([7.1416, 101.23])
            >>> mae.text(7.1416), mae.text(101.23), mae.short(0.2)
            ('7.1', '101.2', '0.2')
        """
        largest = max((abs(one) for one in values if one and math.isfinite(one)), default=0.0)
        # Percentages have theirs.
        if self.unit == "%" or not largest:
            return self
        return replace(self, decimals=decimals_for(largest, digits))

    @property
    def title(self) -> str:
        """The name in sentences."""
        return self.label or self.name

    @property
    def capital(self) -> str:
        """The name at the beginning of a sentence."""
        return self.title[0].upper() + self.title[1:]

    @property
    def best_key(self) -> str:
        """What the best value is called in a summary: ``max`` or ``min``."""
        if self.better == "higher":
            return "max"
        return "min"

    @property
    def keys(self) -> Keys:
        """The names of its figures in the row of a round."""
        return Keys(self.name)

    def best(self, values: Iterable[float]) -> float:
        """The best of some values."""
        if self.better == "higher":
            return max(values)
        return min(values)

    def gain(self, value: float, over: float) -> float:
        """How much better a value is than another; negative where it is worse."""
        if self.better == "higher":
            return value - over
        return over - value

    def reaches(self, value: float, target: float) -> bool:
        """Whether a value is as good as a target."""
        return self.gain(value, over=target) >= 0

    def text(self, value: float | None) -> str:
        """A value as people read it, ``-`` for none."""
        if value is None:
            return "-"
        if self.unit == "%":
            return f"{100 * value:.1f} %"
        return f"{value:{self._precision}} {self.unit}".rstrip()

    @property
    def scale(self) -> float:
        """What a value is multiplied by to be in its unit: fractions are shown in percent."""
        if self.unit == "%":
            return 100.0
        return 1.0

    @property
    def axis(self) -> str:
        """Name and unit, as a column's head or an axis has them."""
        return with_unit(self.title, self.unit)

    def digits(self, value: float | None, sign: str = "") -> str:
        """A value in its unit without the unit, for a column that has it in its head.

        Args:
            value: the headline, or a difference of two.
            sign: ``+``: also of what is positive.

        Example:
            >>> Headline().digits(0.9216), Headline("mae", "lower", "").digits(0.1234567, "+")
            ('92.16', '+0.1235')
        """
        if value is None:
            return "-"
        shown = self.scale * value
        # A percentage has a known range, so two decimals do; other units may be of any size.
        if self.unit == "%":
            return f"{shown:{sign}.2f}"
        return f"{shown:{sign}{self._precision}}"

    @property
    def _precision(self) -> str:
        return ".4g" if self.decimals is None else f".{self.decimals}f"

    def with_interval(self, value: float, low: float, high: float) -> str:
        """A value and the ends of its interval, the value alone where these are NaN.

        Example:
            >>> Headline().with_interval(0.75, 0.5, 0.875)
            '75.0 % (50.0 to 87.5)'
        """
        if math.isnan(value):
            return "-"
        if math.isnan(low) or math.isnan(high):
            return self.text(value)
        return f"{self.text(value)} ({self.short(low)} to {self.short(high)})"

    def short(self, value: float, sign: str = "") -> str:
        """A value in its unit without the unit, in few digits; ``sign`` as in `digits`."""
        return format(self.scale * value, f"{sign}{self.format}")

    @property
    def format(self) -> str:
        """How few digits are written: as Python and charts have it."""
        if self.unit == "%":
            return ".1f"
        if self.decimals is not None:
            return self._precision
        return ".3g"

    @property
    def step(self) -> str:
        """The unit of a difference: percentage points for a fraction."""
        if self.unit == "%":
            return "points"
        return self.unit

    def record(self) -> dict[str, str]:
        """As plain values, for a file."""
        record = {"name": self.name, "better": self.better, "unit": self.unit}
        return {**record, "label": self.title}

    @classmethod
    def of(cls, record: Mapping[str, Any]) -> Headline:
        """The headline of `record`."""
        better: Literal["higher", "lower"] = "higher"
        if record["better"] == "lower":
            better = "lower"
        return cls(str(record["name"]), better, str(record["unit"]), str(record["label"]))


@dataclass(frozen=True, slots=True)
class Keys:
    """Where a row has the figures of its headline.

    Args:
        value: over the clients that have a group.

    Example:
        >>> Keys("mae").groups
        'mae_groups'
    """

    value: str

    @property
    def all(self) -> str:
        """Over all clients."""
        return f"{self.value}_all"

    @property
    def mean(self) -> str:
        """The mean over clients with a group, whatever their sizes."""
        return f"{self.value}_mean"

    @property
    def groups(self) -> str:
        """One value for each group."""
        return f"{self.value}_groups"

    @property
    def quantiles(self) -> str:
        """Quantiles over clients with a group."""
        return f"{self.value}_quantiles"

    @property
    def fairness(self) -> str:
        """How evenly clients with a group are served."""
        return f"{self.value}_fairness"

    @property
    def adapted(self) -> Keys:
        """Of the same clients and models after local adaptation."""
        return Keys(f"{self.value}_adapted")

    @property
    def local(self) -> Keys:
        """Of the networks that clients trained last."""
        return Keys(f"{self.value}_local")

    @property
    def unseen(self) -> Keys:
        """Of clients that never train."""
        return Keys(f"{self.value}_unseen")

    @property
    def training(self) -> Keys:
        """On training samples."""
        return Keys(f"{self.value}_training")

    @property
    def others(self) -> dict[str, Keys]:
        """The other ways in which clients can be scored, by what they are called in tables."""
        return {
            "adapted": self.adapted,
            "last local network": self.local,
            "unseen": self.unseen,
            "unseen adapted": self.unseen.adapted,
            "training": self.training,
        }

    @property
    def error(self) -> str:
        """The standard error, where a sample of the clients was scored."""
        return f"{self.value}_error"


def with_unit(name: str, unit: str) -> str:
    """A name and a unit, as a column's head or an axis has them; some figures have no unit."""
    if not unit:
        return name
    return f"{name}, {unit}"


ACCURACY = Headline()


def other_scores(row: Mapping[str, Any], headline: Headline) -> str:
    """What a row says of the other ways of scoring, in words; empty where there are none.

    Example:
        >>> other_scores({"accuracy": 0.9, "accuracy_adapted": 0.95, "accuracy_unseen": 0.5}, ACCURACY)
        'adapted 95.0 %, unseen 50.0 %'
    """
    found = []
    for title, keys in headline.keys.others.items():
        if row.get(keys.value) is not None:
            found.append(f"{title} {headline.text(row[keys.value])}")
    return ", ".join(found)
