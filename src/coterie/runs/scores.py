"""The scores of a run's clients as a table: a line for each way in which they were scored."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from coterie.config.schema import table_of
from coterie.headline import Headline
from coterie.measures.own_models import Adaptation


@dataclass(frozen=True, slots=True)
class Way:
    """A way in which clients are scored: its title in sentences and heads of columns, what its
    figures are called in rows, and which model, clients and samples it takes."""

    title: str
    headline: Headline
    protocol: str

    @property
    def name(self) -> str:
        """The title, and that of the headline for the usual way."""
        return self.title or self.headline.title


def ways_of(
    resolved: Mapping[str, Any], headline: Headline, kept: Sequence[str] = ()
) -> tuple[Way, ...]:
    """The ways in which the clients of a run are scored, the usual one first.

    Args:
        kept: layers that stay with their client; by default those of ``[personal]``.

    Example:
        >>> tables = {"evaluate": {"adapt": {"epochs": 1, "layers": ["head"]}}}
        >>> for way in ways_of(tables, Headline()):
        ...     print(f"{way.name}: {way.protocol}")
        accuracy: clients that have a group, each on its own test samples with the model that serves it, not trained further
        adapted: the same clients and samples, with a copy of that model after 1 epoch on its own training samples, of head alone
    """
    evaluate: Mapping[str, Any] = resolved.get("evaluate", {})
    adapt = evaluate.get("adapt")
    kept = kept or resolved.get("personal", {}).get("layers", ())
    own = f", its own layers ({', '.join(kept)}) in it," if kept else ","
    tested = _tested_on(evaluate.get("validation"))
    served = f"clients that have a group, each on {tested} with the model that serves it"
    found = [Way("", headline, f"{served}{own} not trained further")]
    adapted = ""
    if adapt is not None:
        adaptation = table_of(Adaptation).model_validate(adapt).made()
        adapted = f"a copy of that model after {adaptation.text}"
        said = f"the same clients and samples, with {adapted}"
        found.append(_way("adapted", headline, said))
    if evaluate.get("local"):
        said = (
            f"clients that ever trained, each on {tested} with the network that its last training "
        )
        said += "left"
        found.append(_way("last local network", headline, said))
    if evaluate.get("unseen") is not None:
        said = "clients that never train, placed as the method places newcomers, each on "
        if evaluate.get("unseen_labels") is False:
            said = "clients that never train, placed by their inputs without labels, each on "
        said += f"{tested} with the model that serves its group, not trained further"
        found.append(_way("unseen", headline, said))
        if adapt is not None:
            said = f"the same clients that never train, with {adapted}"
            found.append(_way("unseen adapted", headline, said))
    if evaluate.get("training"):
        said = "clients that have a group, each on its own training samples with the model that serves "
        said += f"it{own} not trained further"
        found.append(_way("training", headline, said))
    return tuple(found)


def _tested_on(validation: float | None) -> str:
    if validation is None:
        return "its own test samples"
    return f"{100 * validation:g} % of its training samples, which it does not train on,"


def _way(title: str, headline: Headline, protocol: str) -> Way:
    key = headline.keys.others[title].value
    # The label is that of the usual way, whose unit and direction it has.
    return Way(title, replace(headline, name=key, label=headline.title), protocol)


# The figures over single clients after the value over all samples.
OF_CLIENTS = ("mean over clients", "worst tenth", "spread", "Jain's index")
NOTE = (
    "{0} is over all samples of the clients that were scored, after the last evaluated round. The "
    "figures after it are over clients of any size: their mean, the mean of the "
    "worst tenth, the standard deviation, and Jain's index, which is 1 if all are equal."
)


@dataclass(frozen=True, slots=True)
class ClientScores:
    """The last figures of one way of scoring: the headline over all samples, the mean of the tenth
    of clients that is served worst, and the standard deviation over clients."""

    way: Way
    value: float | None
    mean: float | None
    worst_tenth: float | None
    spread: float | None
    jain: float | None

    @property
    def texts(self) -> list[str]:
        """The figures as a line of a table has them."""
        headline = self.way.headline
        figures = (self.value, self.mean, self.worst_tenth, self.spread)
        jain = "-"
        if self.jain is not None:
            jain = f"{self.jain:.3f}"
        return [self.way.name, *(headline.text(value) for value in figures), jain]


def last_scores(
    rows: Sequence[Mapping[str, Any]], resolved: Mapping[str, Any], headline: Headline
) -> list[ClientScores]:
    """The figures of each way of scoring in the last round that has them; ways without any are left
    out.

    Example:
        >>> fairness = {"worst_tenth": 0.25, "spread": 0.25, "jain": 0.8}
        >>> row = {"accuracy": 0.5, "accuracy_mean": 0.5, "accuracy_fairness": fairness}
        >>> [found] = last_scores([row], {}, Headline())
        >>> found.texts
        ['accuracy', '50.0 %', '50.0 %', '25.0 %', '25.0 %', '0.800']
    """
    found = []
    for way in ways_of(resolved, headline):
        keys = way.headline.keys
        scored = [row for row in rows if row.get(keys.value) is not None]
        if scored:
            last = scored[-1]
            fairness = last.get(keys.fairness) or {}
            one = ClientScores(
                way,
                last[keys.value],
                last.get(keys.mean),
                fairness.get("worst_tenth"),
                fairness.get("spread"),
                fairness.get("jain"),
            )
            found.append(one)
    return found


def mean_scores(runs: Sequence[Sequence[ClientScores]]) -> list[ClientScores]:
    """The means over runs of one configuration with different seeds, way by way."""
    by_way: dict[str, list[ClientScores]] = {}
    for run in runs:
        for one in run:
            by_way.setdefault(one.way.headline.name, []).append(one)
    found = []
    for ones in by_way.values():
        figures = ("value", "mean", "worst_tenth", "spread", "jain")
        means = {name: mean_of_known(getattr(one, name) for one in ones) for name in figures}
        found.append(ClientScores(ones[0].way, **means))
    return found


def mean_of_known(values: Iterable[float | None]) -> float | None:
    """The mean of the values that are known; ``None`` where none is."""
    known = [value for value in values if value is not None]
    if not known:
        return None
    return statistics.fmean(known)


def deviation_of_known(values: Iterable[float | None]) -> float | None:
    """The standard deviation of the values that are known; ``None`` for fewer than two."""
    known = [value for value in values if value is not None]
    if len(known) < 2:
        return None
    # With n - 1: the seeds are a sample of all seeds.
    return statistics.stdev(known)


def protocol_notes(scores: Sequence[ClientScores]) -> list[str]:
    """What the scores of a table are of, a sentence for each way of scoring."""
    found: dict[str, None] = {}
    for one in scores:
        name = one.way.name
        found[f"{name[0].upper()}{name[1:]}: {one.way.protocol}."] = None
    return list(found)
