"""The figures of the page on personalised methods, from the runs of the federations."""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from benchmarks.personal import mixtures
from benchmarks.personal.federations import ADAPT, FEDERATIONS, UNSEEN, Federation
from benchmarks.personal.methods import METHODS
from benchmarks.results import records
from benchmarks.results.records import Measurement, Record, ResultPage

Found = Mapping[str, Any]

PAGE = "personal"
QUESTION = "What do personal layers, own models and groups gain, alone and together?"
# Way of scoring and figure of it -> metric on the page.
SHOWN = {
    ("accuracy", "value"): "seen",
    ("accuracy", "worst tenth"): "seen, worst tenth",
    ("adapted", "value"): "seen, adapted",
    ("unseen", "value"): "unseen",
    ("unseen adapted", "value"): "unseen, adapted",
}


def write(
    runs: Mapping[str, Sequence[Found]],
    mixed: Mapping[str, Sequence[Found]],
    machine: str | None,
    commit: str | None,
) -> None:
    """Write the figures of the federations that were measured whole. Of the others, and of those that
    have no runs here, the page keeps what it has.

    Args:
        runs: by the name of the federation.
        mixed: runs on planted mixtures, and of FedEM from several starts there, by name.
        machine: in words.
        commit: in which they are written down.
    """
    whole = {name: of_whole_seeds(found) for name, found in runs.items()}
    measured = {name: found for name, found in whole.items() if found}
    measurements = {name: measurement(name, machine, commit) for name in measured}
    found = {name: list(figures(name, ours)) for name, ours in measured.items()}
    for name, ours in mixed.items():
        if ours:
            measurements[name] = of_mixtures(name, machine, commit)
            make = MIXTURES[name]
            found[name] = list(make(ours))
    before = records.read(PAGE)
    for name in before.measurements:
        if name not in found:
            measurements[name] = before.measurements[name]
            found[name] = [one for one in before.records if one.measured == name]
    order = [name for name in (*FEDERATIONS, *MIXTURES) if name in found]
    # Methods that were measured again alone.
    order += [name for name in found if name not in order]
    page = ResultPage(
        question=QUESTION,
        topic="accuracy",
        settings=shared_settings(),
        measurements={name: measurements[name] for name in order},
        records=tuple(one for name in order for one in found[name]),
    )
    records.write(PAGE, page)


def shared_settings() -> str:
    """What all federations have in common."""
    solver = Federation("", "", {}, {}).local
    return (
        f"{solver.epochs} local epoch in batches of {solver.batch_size} by SGD with learning rate "
        f"{solver.lr}. {100 * UNSEEN:.0f} % of the clients, one at least, never train. Adaptation is "
        f"{ADAPT.text}."
    )


def measurement(name: str, machine: str | None, commit: str | None) -> Measurement:
    """Where the figures of a federation come from."""
    federation = FEDERATIONS[name]
    samples = f"at most {federation.samples} training samples of each client"
    return Measurement(
        what=federation.title,
        settings=f"{federation.per_round} clients a round, {samples}, {federation.groups} groups "
        "where a method needs a number.",
        machine=machine,
        date=datetime.date.today().isoformat(),
        commit=commit,
        command=f"python -m benchmarks.personal --out runs/personal --federations {name}",
    )


def of_whole_seeds(runs: Sequence[Found]) -> list[Found]:
    """The runs of the seeds in which every method was run: differences are paired by seed."""
    methods: dict[int, set[str]] = {}
    for one in runs:
        methods.setdefault(one["seed"], set()).add(one["method"])
    whole = [one for one in runs if methods[one["seed"]] >= set(METHODS)]
    return sorted(whole, key=lambda one: one["seed"])


def figures(name: str, runs: Sequence[Found]) -> Iterable[Record]:
    """All records of a federation."""
    for method in METHODS:
        ours = [one for one in runs if one["method"] == method]
        for (way, figure), metric in SHOWN.items():
            if way in ours[0]["scores"]:
                values = [one["scores"][way][figure] for one in ours]
                yield _record(name, ours, metric, "%", _percent(values))
        # The other methods are told how many groups to make.
        if method == "FedClust":
            yield _record(name, ours, "groups", "", [one["groups"] for one in ours])


def of_mixtures(name: str, machine: str | None, commit: str | None) -> Measurement:
    """Where the figures of planted mixtures come from."""
    solver = mixtures.LOCAL
    held = f"{mixtures.PARTITION['size']} samples of each client, a fifth of them to test on"
    what = mixtures.TITLE
    if name == mixtures.STARTS_NAME:
        what = f"FedEM from several starts, on the clients of seed {mixtures.CLIENTS_SEED}"
    return Measurement(
        what=what,
        settings=f"All clients train in each round, with learning rate {solver.lr}; {held}. Concepts "
        "differ in the order of the labels.",
        machine=machine,
        date=datetime.date.today().isoformat(),
        commit=commit,
        command=f"python -m benchmarks.personal --out runs/personal --federations {name}",
    )


def mixture_figures(runs: Sequence[Found]) -> Iterable[Record]:
    """All records of planted mixtures."""
    for method in mixtures.METHODS:
        ours = [one for one in runs if one["method"] == method]
        aim = mixtures.AIM if method in mixtures.SOFT else None
        for metric, key, unit, factor, places in (
            ("error of shares", "share_error", "", 1, 3),
            ("accuracy", "accuracy", "%", 100, 1),
        ):
            yield Record(
                case="planted mixtures",
                subject=method,
                metric=metric,
                unit=unit,
                values=tuple(round(factor * one[key], places) for one in ours),
                seeds=tuple(one["seed"] for one in ours),
                rounds=mixtures.ROUNDS,
                measured=mixtures.NAME,
                at_most=aim if metric == "error of shares" else None,
            )


def start_figures(runs: Sequence[Found]) -> Iterable[Record]:
    """All records of FedEM's starts, the one with the least training loss first."""
    for one in sorted(runs, key=lambda one: one["loss"]):
        for metric, key in (("training loss", "loss"), ("error of shares", "share_error")):
            yield Record(
                case="starts of FedEM",
                subject=f"start of seed {one['seed']}",
                metric=metric,
                unit="",
                values=(round(one[key], 3),),
                seeds=(one["seed"],),
                rounds=mixtures.ROUNDS,
                measured=mixtures.STARTS_NAME,
            )


# Name of a file of runs -> the records made of it.
MIXTURES = {mixtures.NAME: mixture_figures, mixtures.STARTS_NAME: start_figures}


def _percent(values: Sequence[float | None]) -> list[float | None]:
    return [None if value is None else round(100 * value, 1) for value in values]


def _record(
    name: str, runs: Sequence[Found], metric: str, unit: str, values: Sequence[float | None]
) -> Record:
    """A record of a method, one value for each seed."""
    return Record(
        case=FEDERATIONS[name].title,
        subject=runs[0]["method"],
        metric=metric,
        unit=unit,
        values=tuple(values),
        seeds=tuple(one["seed"] for one in runs),
        rounds=runs[0]["rounds"],
        measured=name,
    )
