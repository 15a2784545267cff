"""What the published scoreboard says of methods on clients that differ as the user's do."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from coterie.studies.advise.differences import LEVEL, GroupDifferences
from coterie.studies.scoreboard.results_file import published, read_results
from coterie.studies.scoreboard.suite import BASELINE, ORACLE, Suite
from coterie.terminal import counted

SUITE = "small"
SHOWN = 3  # of the best methods
ALONE = "local"
# In what groups may differ, and how a sentence says it.
WORDS = {
    "inputs": "whose groups see different things",
    "labels": "whose groups give the same things different labels",
    "classes": "whose groups have different classes",
    "shares": "without groups, whose clients have unlike shares of the classes",
    "nothing": "whose clients are alike",
}
# What may be the case where no groups are found.
WITHOUT_GROUPS = ("nothing", "shares")


@dataclass(frozen=True)
class MethodScores:
    """The mean score of each method over the federations of a kind.

    Args:
        kind: in what the clients differ.
        federations: how many there are.
        scores: method -> mean score from 0 to 1, the best first.
    """

    kind: str
    federations: int
    scores: Mapping[str, float]

    @property
    def text(self) -> str:
        """The record in a sentence or two.

        Example:
            >>> found = MethodScores("nothing", 2, {"fedavg": 0.9, "ifca": 0.85, "local": 0.8})
            >>> for part in found.text.split(": ")[1].split(". "):
            ...     print(part)
            ifca 85.0 %, and beside them fedavg 90.0 %, local 80.0 %
            No method is better than fedavg there.
        """
        plain = (BASELINE, ALONE)
        best = [name for name in self.scores if name not in plain][:SHOWN]
        parts = [f"{name} {100 * self.scores[name]:.1f} %" for name in best]
        beside = [
            f"{name} {100 * self.scores[name]:.1f} %" for name in plain if name in self.scores
        ]
        text = (
            f"On the scoreboard, over {counted(self.federations, 'federation')} "
            f"{WORDS[self.kind]}: "
            f"{', '.join(parts)}, and beside them {', '.join(beside)}."
        )
        first = next(iter(self.scores))
        if first in plain:
            text += f" No method is better than {first} there."
        return text


def kinds_of(groups: int, differing: GroupDifferences) -> tuple[str, ...]:
    """In what clients may differ, in the words of the scoreboard.

    Args:
        groups: that first updates show.
        differing: how far apart they are in labels and in inputs.

    Example:
        >>> kinds_of(3, GroupDifferences(2.0, 0.005, 1.0, 0.5)), kinds_of(1, GroupDifferences())
        (('classes',), ('nothing', 'shares'))
    """
    if groups < 2:
        return WITHOUT_GROUPS
    # Who has other classes has other inputs, too, so classes come first.
    if differing.p_labels is not None and differing.p_labels < LEVEL:
        return ("classes",)
    if differing.p_inputs is not None and differing.p_inputs < LEVEL:
        return ("inputs",)
    return ("labels",)


def method_scores(kind: str) -> MethodScores:
    """The scores on the federations of a kind: with defaults, at equal work, of the clients that
    train.

    Args:
        kind: of `WORDS`.
    """
    results = read_results(published(SUITE))
    suite = Suite.model_validate(results["suite"])
    names = {
        one.name
        for one in suite.federations
        if one.score == "served" and _is_of_kind(kind, one.differ, one.groups)
    }
    scores: dict[str, list[float]] = {}
    for entry in results["entries"]:
        if entry["federation"] in names and entry["settings"] == "defaults":
            found = _mean([run["equal_work"] for run in entry["runs"]])
            if found is not None:
                scores.setdefault(entry["method"], []).append(found)
    whole = {
        method: statistics.fmean(found)
        for method, found in scores.items()
        # A method that was refused somewhere has no mean that could be compared.
        if len(found) == len(names) and method != ORACLE
    }
    ordered = dict(sorted(whole.items(), key=lambda item: -item[1]))
    return MethodScores(kind, len(names), ordered)


def _is_of_kind(kind: str, differ: str, groups: int | None) -> bool:
    if kind == "shares":
        return groups is None and differ == "classes"
    if kind == "nothing":
        return groups is None and differ == "nothing"
    return groups is not None and differ == kind


def _mean(values: Sequence[Any]) -> float | None:
    known = [float(value) for value in values if value is not None]
    return statistics.fmean(known) if known else None
