"""Whether grouping is worth it: the one definition, of `coterie advise`, `coterie compare`, the report
and the card of an export.

The bar is the better of FedAvg and training alone. A method with groups gains the mean, over clients
and seeds, of what each client gains on its own test samples, weighted by their number. Runs are
paired: the same seed means the same clients, samples and first model.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from coterie.headline import Headline
from coterie.measures.client_table import DIGITS, ScoredClients, reference_means
from coterie.measures.gains import Answer, Gain, gain_of_runs
from coterie.terminal import ALONE, counted

FEDAVG = "fedavg"
VERDICT = "verdict.json"  # of a sweep
ALONE_NOTE = (
    "Training alone cannot make predictions for new clients, because each model belongs to one "
    "client."
)
# Columns of predictions without a model, as sentences name them; others have a name of their own.
WITHOUT_MODEL = {
    "majority": "each client's majority class",
    "mean": "each client's mean",
    "constant": "a constant for each client",
}

# --- candidates and the bar -----------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ScoredRun:
    """The clients of one run.

    Args:
        seed: runs of different methods are paired by it.
        data: equal for runs with the same clients and data, whatever the seed.
    """

    seed: int
    data: Hashable
    clients: ScoredClients


@dataclass(frozen=True, slots=True)
class Candidate:
    """A method with its settings, over seeds.

    Args:
        name: as people read it.
        algorithm: the name of its algorithm.
        groups: with how many groups it ended: the median over its runs, of two the smaller.
    """

    name: str
    algorithm: str
    groups: int
    runs: Sequence[ScoredRun]

    @property
    def grouped(self) -> bool:
        """Whether it is one of the methods with groups; one that ended with a single group gained by
        something else."""
        return self.groups > 1 and self.algorithm not in (FEDAVG, ALONE)


def candidate(
    name: str, algorithm: str, runs: Iterable[tuple[Mapping[str, Any], int, ScoredClients]]
) -> Candidate:
    """The candidate of some finished runs: the configuration, the rounds and the clients of each."""
    scored = []
    groups = []
    for tables, rounds, table in runs:
        groups.append(len(np.unique(table.member[table.member >= 0])))
        scored.append(ScoredRun(int(tables.get("seed", 0)), _data(tables, rounds, table), table))
    # A method that found groups in a few seeds alone cannot show what groups gain.
    return Candidate(name, algorithm, statistics.median_low(groups or [0]), scored)


def _data(tables: Mapping[str, Any], rounds: int, table: ScoredClients) -> Hashable:
    """What has to be equal for a comparison to be one of methods."""
    # Where the data lie is no part of what they are.
    data = {key: value for key, value in tables.get("data", {}).items() if key != "root"}
    scene = [data, tables.get("shift"), tables.get("attack"), rounds]
    return json.dumps(scene, sort_keys=True, default=str), tuple(table.names)


def compare(ours: Candidate, theirs: Candidate, headline: Headline) -> Gain | None:
    """What one candidate gains over another; ``None`` without a pair of runs of the same seed."""
    # Clients are the same in all of them, and another seed may split their samples differently.
    pairs = [
        (a.clients, b.clients)
        for a in ours.runs
        for b in theirs.runs
        if (a.seed, a.data) == (b.seed, b.data)
    ]
    return gain_of_runs(pairs, headline)


# --- the verdict ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether grouping is worth it.

    Args:
        method: the best method with groups.
        bar: the better of FedAvg and training alone.
        gain: what the method gains over the bar.
        missing: what is missing for an answer, the end of a sentence.
        alone: whether the bar is training alone.
        reference: what predicts without a model, such as persistence, and is better than both.
        reference_mean: its clients' mean.
        single: other methods, which ended with one group in most of their runs.
    """

    answer: Answer
    method: str = ""
    bar: str = ""
    gain: Gain | None = None
    missing: str = ""
    alone: bool = False
    reference: str = ""
    reference_mean: float = 0.0
    single: Sequence[str] = ()

    @property
    def title(self) -> str:
        """The answer in a sentence, and a warning where predictions without a model are better."""
        if self.gain is None:
            return f"Whether grouping is worth it is not known: {self.missing}."
        return f"{self._answer(self.gain)} {self._warning(self.gain.headline)}".rstrip()

    def _answer(self, gain: Gain) -> str:
        gained = f"{gain.text} in {gain.headline.title} over {self.bar}"
        if self.answer == "helps":
            return f"Grouping helps: {self.method} gains {gained}."
        best = f"{self.method}, the best method with groups, gains {gained}."
        if self.answer == "does not help":
            return f"Grouping does not help: {best}"
        return f"No gain from grouping could be shown: {best}"

    def _warning(self, headline: Headline) -> str:
        if not self.reference:
            return ""
        digits = headline.with_decimals_for([self.reference_mean], DIGITS)
        value = f"{headline.title} {digits.text(self.reference_mean)}"
        name = WITHOUT_MODEL.get(self.reference, self.reference)
        return f"Neither is better than {name}, which needs no model ({value})."

    @property
    def detail(self) -> str:
        """What the answer rests on; empty where there is none."""
        parts = [ALONE_NOTE] if self.alone and self.answer != "helps" else []
        found = self.gain
        if found is not None:
            ours, theirs = found.figures
            joined = "of" if found.overlap.redrawn else "and"
            over = f"{counted(found.clients, 'client')} {joined} {counted(found.seeds, 'seed')}"
            parts.insert(0, f"{self.bar} is the better of FedAvg and training alone.")
            parts += [
                f"The clients' mean is compared: the {found.headline.title} of each client on "
                f"its own test samples, weighted by their number. Over {over} it is {ours} with "
                f"{self.method} and {theirs} with {self.bar}. ± is the 95 % interval of the gain.",
                found.overlap.note,
                f"{counted(found.won, 'client')} gained and {found.lost} lost.",
            ]
            if self.single:
                parts.append(
                    f"Not counted, since most runs ended with one group: {', '.join(self.single)}."
                )
        return " ".join(part for part in parts if part)

    @property
    def text(self) -> str:
        """The answer and what it rests on."""
        return f"{self.title} {self.detail}".rstrip()

    def record(self) -> dict[str, Any]:
        """As plain values, for a file."""
        found: dict[str, Any] = {"answer": self.answer, "text": self.text}
        if self.gain is not None:
            gain = self.gain
            found |= {"method": self.method, "bar": self.bar, "gain": gain.mean}
            # An infinite interval is no JSON: with one client and one seed there is none.
            found["half"] = gain.half if np.isfinite(gain.half) else None
            found |= {"clients": gain.clients, "seeds": gain.seeds}
            found["clients_mean"] = {self.method: gain.ours, self.bar: gain.theirs}
        if self.reference:
            found["clients_mean"][self.reference] = self.reference_mean
        return found


def verdict(candidates: Sequence[Candidate], headline: Headline) -> Verdict:
    """Whether grouping is worth it, by some runs; what is missing where they cannot say.

    It rests on the best method with groups. The best of many methods looks better than it is, so
    confirm an answer that is close on new seeds.
    """
    scored = [one for one in candidates if one.runs]
    grouped = [one for one in scored if one.grouped]
    plain = {name: [one for one in scored if one.algorithm == name] for name in (FEDAVG, ALONE)}
    lacking = [f"no finished run of {name}" for name, found in plain.items() if not found]
    if not grouped:
        lacking.append("no method that ended with several groups in most of its runs")
    if lacking:
        return Verdict("unknown", missing=f"there is {' and '.join(lacking)}")
    if len({run.data for one in (*grouped, *plain[FEDAVG], *plain[ALONE]) for run in one.runs}) > 1:
        return Verdict("unknown", missing="the runs have different clients, data or rounds")
    bar = best_of([*plain[FEDAVG], *plain[ALONE]], headline)
    gains = [(one, compare(one, bar, headline)) for one in grouped]
    known = [(one, found) for one, found in gains if found is not None]
    if not known:
        missing = f"no client has {headline.title} of its own under the same seed of {bar.name} and"
        return Verdict("unknown", missing=f"{missing} of a method with groups")
    best, gain = max(known, key=lambda each: each[1].mean)
    single = [one.name for one in scored if not one.grouped and one.algorithm not in plain]
    alone = bar.algorithm == ALONE
    found = Verdict(gain.answer, best.name, bar.name, gain, alone=alone, single=single)
    return with_reference(found, [run.clients for run in best.runs])


def with_reference(found: Verdict, tables: Sequence[ScoredClients]) -> Verdict:
    """The verdict, with what predicts best without a model where that is better than both methods."""
    gain = found.gain
    if gain is None:
        return found
    means = reference_means(tables, gain.headline)
    best = gain.headline.best([gain.ours, gain.theirs, *means.values()])
    for name, value in means.items():
        if value == best and best not in (gain.ours, gain.theirs):
            return replace(found, reference=name, reference_mean=value)
    return found


def verdict_of(gains: Mapping[str, Gain], bar: str) -> Verdict:
    """Whether grouping is worth it, by the gains of methods with groups over the bar."""
    if not gains:
        missing = "no method ended with several groups"
        return Verdict("unknown", bar=bar, missing=missing, alone=bar == ALONE)
    name, gain = max(gains.items(), key=lambda each: each[1].mean)
    return Verdict(gain.answer, name, bar, gain, alone=bar == ALONE)


def best_of(candidates: Sequence[Candidate], headline: Headline) -> Candidate:
    """The candidate that serves clients best, each compared with the best of those before it; the
    earlier one where two are equal or not comparable."""
    best, *others = candidates
    for other in others:
        found = compare(other, best, headline)
        if found is not None and found.mean > 0:
            best = other
    return best
