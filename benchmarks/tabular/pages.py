"""The figures of a page of ``docs/results`` from the runs of a study."""

from __future__ import annotations

import datetime
import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from benchmarks.results import records
from benchmarks.results.records import FOLDER, ResultPage
from benchmarks.tabular.studies import GROUPED, TITLES, Study

Found = Mapping[str, Any]
Row = dict[str, Any]

# Metric of a task -> its name on a page, its unit, a factor, and its decimals.
METRICS = {
    "auroc": ("AUROC", "", 1, 3),
    "accuracy": ("accuracy", "%", 100, 1),
    "ece": ("calibration error", "", 1, 3),
    "mae": ("MAE", "", 1, 2),
    "rmse": ("RMSE", "", 1, 2),
}
SHOWN = {
    "heart-disease": ("auroc", "accuracy", "ece"),
    "parkinsons": ("mae", "rmse"),
    "parkinsons-patients": ("mae",),
    "beijing-air": ("mae", "rmse"),
    "beijing-air-gru": ("mae", "rmse"),
}
QUESTIONS = {
    "heart-disease": "What does grouping gain or cost for four hospitals?",
    "parkinsons": "How well can a score of Parkinson's disease be predicted?",
    "beijing-air": "How well can Beijing's air quality be forecast a day ahead?",
}
WHAT = {
    "heart-disease": "Hospitals",
    "parkinsons": "Unseen recordings",
    "parkinsons-patients": "Unseen patients",
    "beijing-air": "Stations",
    "beijing-air-gru": "Stations by a GRU",
}
SETTINGS = {
    "heart-disease": "A quarter of each hospital's rows is for testing, drawn by the seed.",
    "parkinsons": "A fifth of each patient's recordings is for testing, drawn by the seed.",
    "parkinsons-patients": "Every fifth patient is for testing; the seed says which ones, so that "
    "each patient is in the test set of one seed.",
    "beijing-air": "The last fifth of each station's hours is for testing. The seeds differ in first "
    "weights and batches alone, and the settings were chosen with the first seed.",
}
SETTINGS["beijing-air-gru"] = SETTINGS["beijing-air"]
# Studies whose figures stand on the page of another one.
PAGES = {"parkinsons-patients": "parkinsons", "beijing-air-gru": "beijing-air"}
# Of clients, where there are few enough to have columns of their own.
NAMED_CLIENTS = 12


def write(study: Study, runs: Sequence[Found], machine: str | None, commit: str | None) -> None:
    """Write the figures of a study into the file of its page, in place of those it has there."""
    name = PAGES.get(study.name, study.name)
    page = {
        "question": QUESTIONS[name],
        "topic": "accuracy",
        "settings": "All clients train in each round.",
        "measurements": {},
        "records": [],
    }
    if (FOLDER / f"{name}.json").exists():
        page = json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))
    kept = [one for one in page["records"] if one["measured"] != study.name]
    page["measurements"][study.name] = {
        "what": WHAT[study.name],
        "settings": SETTINGS[study.name],
        "machine": machine,
        "date": datetime.date.today().isoformat(),
        "commit": commit,
        "command": f"python -m benchmarks.tabular {study.name} --out runs/{study.name}.json",
    }
    page["records"] = kept + list(figures(study, of_whole_seeds(study, runs)))
    # Through the record, which says what is missing or twice.
    records.write(name, ResultPage.model_validate_json(json.dumps(page)))


def of_whole_seeds(study: Study, runs: Sequence[Found]) -> list[Found]:
    """The runs of the seeds of which all are done: differences are paired by seed."""
    wanted = 1 + len(study.networks) * len(study.methods)
    done = Counter(one["seed"] for one in runs)
    return [one for one in runs if done[one["seed"]] == wanted]


def figures(study: Study, runs: Sequence[Found]) -> Iterable[Row]:
    """All records of a study."""
    # Predictions without a network are the same for another network on the same samples.
    if study.by_fold or study.name not in PAGES:
        yield from _without_model(study, runs)
    for network in study.networks:
        for method in study.methods:
            ours = of_method(runs, network, method)
            if ours:
                yield from _scores(study, ours)
                case = _case(study, network)
                yield _record(study, ours, case, "rounds", _values(ours, "rounds"))
        for method in GROUPED:
            ours = of_method(runs, network, method)
            if ours and len(ours[0]["groups"]) <= NAMED_CLIENTS:
                yield from _members(study, ours)


def of_method(runs: Sequence[Found], network: str, method: str) -> list[Found]:
    """The runs of a method with a network, by seed."""
    found = [one for one in runs if (one["network"], one["method"]) == (network, method)]
    return sorted(found, key=lambda one: one["seed"])


def _case(study: Study, name: str) -> str:
    """A case, told from that of another study on the same page."""
    return f"unseen patients, {name}" if study.by_fold else name


def _values(runs: Sequence[Found], key: str) -> list[Any]:
    return [one[key] for one in runs]


def _record(
    study: Study, runs: Sequence[Found], case: str, metric: str, values: Sequence[float | None]
) -> Row:
    """A record of a method, one value for each of its runs."""
    return {
        "case": case,
        "subject": TITLES[runs[0]["method"]],
        "metric": metric,
        "unit": "",
        "values": list(values),
        "seeds": _values(runs, "seed"),
        "rounds": None,
        "measured": study.name,
    }


def _scores(study: Study, runs: Sequence[Found]) -> Iterable[Row]:
    """The metrics on all test samples, and for each client where there are few."""
    network = runs[0]["network"]
    clients = ["all", *(name for name in runs[0]["scores"] if name != "all")]
    # Each seed of a study of unseen clients tests others.
    if study.by_fold or len(clients) > NAMED_CLIENTS:
        clients = [name for name in clients if name in ("all", "placed by ten")]
    for client in clients:
        for metric in SHOWN[study.name]:
            if metric not in runs[0]["scores"][client]:
                continue
            title, unit, factor, places = METRICS[metric]
            raw = [one["scores"][client][metric] for one in runs]
            values = [None if value is None else round(factor * value, places) for value in raw]
            found = _record(study, runs, _case(study, client), f"{title}, {network}", values)
            yield {**found, "unit": unit}


def _members(study: Study, runs: Sequence[Found]) -> Iterable[Row]:
    """The group of each client, numbered from 1 in the order in which clients name them."""
    network = runs[0]["network"]
    by_run = [in_order(one["groups"]) for one in runs]
    for client in runs[0]["groups"]:
        values = [groups[client] for groups in by_run]
        found = _record(study, runs, TITLES[runs[0]["method"]], f"group, {network}", values)
        yield {**found, "subject": client}


def in_order(groups: Mapping[str, int]) -> dict[str, int]:
    """Groups with the numbers 1, 2, ... in the order of their first clients.

    Example:
        >>> in_order({"a": 2, "b": 0, "c": 2})
        {'a': 1, 'b': 2, 'c': 1}
    """
    numbers = {group: at for at, group in enumerate(dict.fromkeys(groups.values()), 1)}
    return {client: numbers[group] for client, group in groups.items()}


def _without_model(study: Study, runs: Sequence[Found]) -> Iterable[Row]:
    """Predictions that no network makes, as more subjects beside the methods."""
    ours = of_method(runs, "", "none")
    if study.criterion == "log_loss":
        yield from _majority(study, ours)
        return
    for name in ours[0]["without model"]:
        values = [round(one["without model"][name], 2) for one in ours]
        yield {
            "case": _case(study, "placed by ten" if name == "mean of the ten" else "all"),
            "subject": name,
            "metric": "MAE, no network",
            "unit": "",
            "values": values,
            "seeds": _values(ours, "seed"),
            "rounds": None,
            "measured": study.name,
        }


def _majority(study: Study, runs: Sequence[Found]) -> Iterable[Row]:
    """The accuracy of each client's most frequent class."""
    for client in runs[0]["without model"]["majority"]:
        found = [one["without model"]["majority"][client] for one in runs]
        yield {
            "case": client,
            "subject": "most frequent class",
            "metric": "accuracy, no network",
            "unit": "%",
            "values": [round(100 * value, 1) for value in found],
            "seeds": _values(runs, "seed"),
            "rounds": None,
            "measured": study.name,
        }
