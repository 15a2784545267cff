"""The advice as a table, Markdown, JSON and CSV."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from coterie.files import csv_text, escape_cell, markdown_lines, plain, refuse_unwritable_output
from coterie.headline import with_unit
from coterie.measures.verdict import FEDAVG
from coterie.studies.advise.answer import Advice, evidence
from coterie.studies.advise.configuration import short_toml
from coterie.studies.advise.trials import HELD_OUT, Trial
from coterie.terminal import ALONE, amount, counted, first_few, printable

CLIENTS_SHOWN = 12  # of a group
LABELS_SHOWN = 6
CLIENTS_MEAN = (
    "Clients' mean: of each client on its own held-out samples, weighted by their number."
)
ONE_GROUP = "The verdict leaves out a method that ended with one group: it cannot gain by groups."
WON_AND_LOST = (
    "Clients won / lost: the number of clients that are served better, and worse, than by that "
    "method, each on its own held-out samples."
)


# --- the table ------------------------------------------------------------------------------------


def trial_columns(advice: Advice) -> list[str]:
    """The heads of the table of the trials."""
    headline = advice.best.headline
    return [
        "method",
        f"{headline.title}, clients' mean",
        with_unit("gain", headline.step),
        "± 95 %",
        "clients won / lost",
        "groups",
        "bytes",
        "seconds",
    ]


def trial_rows(advice: Advice) -> list[list[str]]:
    """The table of the trials as text, with the bytes and seconds of the configuration suggested."""
    return [_trial_row(trial, advice) for trial in _all_trials(advice)]


def _all_trials(advice: Advice) -> tuple[Trial, ...]:
    return (*advice.plain, advice.alone, *advice.trials.values())


def _trial_row(trial: Trial, advice: Advice) -> list[str]:
    name = trial.name
    if name == advice.best.name:
        name += " *"
    gained = ["-", "-", "-"]
    found = advice.gains.get(trial.name)
    if found is not None:
        won = f"{found.won} / {found.lost}"
        gained = [*found.texts, won]
    groups = "none" if trial.name == ALONE else str(trial.groups)
    cost = advice.cost(trial)
    costs = [amount(cost["bytes"]), f"{cost['seconds']:.0f}"]
    return [name, trial.text, *gained, groups, *costs]


def recommended_groups(advice: Advice) -> list[dict[str, Any]]:
    """Each group that is recommended: its clients, training samples, and most frequent labels."""
    population = advice.population
    histograms = population.histograms()
    found = []
    for group in np.unique(advice.member[advice.member >= 0]):
        inside = np.flatnonzero(advice.member == group)
        total = histograms[inside].sum(axis=0)
        # Stable: labels of the same count stay in their order on every machine.
        largest = np.argsort(-total, kind="stable")[:LABELS_SHOWN]
        samples = max(1, int(total.sum()))
        labels = {str(label): float(total[label] / samples) for label in largest if total[label]}
        found.append(
            {
                "group": int(group),
                "clients": [population.names[client] for client in inside],
                "samples": int(population.sizes("train")[inside].sum()),
                "labels": labels,
            }
        )
    return found


def table_notes(advice: Advice) -> list[str]:
    """What the columns of the table mean, for a terminal: a line each."""
    rounds = counted(advice.config.train.rounds, "round")
    return [
        CLIENTS_MEAN,
        f"Gain: over {advice.bar.name}, the bar; ± is its 95 % interval. * marks the recommendation.",
        ONE_GROUP,
        WON_AND_LOST,
        f"Bytes and seconds: of {rounds}, as in suggested.toml.",
    ]


def comparison(advice: Advice, suggested: object) -> str:
    """The command that compares whole runs of what the verdict is about, with the options of the
    trials: by its default a method may make another number of groups."""
    method = advice.verdict.method or advice.best.name
    names = dict.fromkeys((FEDAVG, ALONE, method))
    words = ["coterie compare", shlex.quote(str(suggested)), "--algorithms", ",".join(names)]
    words += ["--seeds 0-4"]
    trial = advice.trials.get(method)
    if trial is not None:
        words += [f"--set {method}.{key}={value}" for key, value in trial.options.items()]
    return " ".join(words)


# --- Markdown -------------------------------------------------------------------------------------


def advice_markdown(advice: Advice) -> str:
    """The advice as Markdown."""
    lines = [f"# {advice.headline}", ""]
    lines += [f"- {line}" for line in evidence(advice)]
    names = trial_columns(advice)
    table = markdown_lines(names, trial_rows(advice), "l".ljust(len(names), "r"))
    lines += ["", *table, "", *_explanation(advice), "", "## Groups", ""]
    lines += _group_lines(advice)
    if advice.rates:
        tried = ", ".join(
            f"{rate:g}: {advice.best.headline.text(value)}" for rate, value in advice.rates.items()
        )
        text = f"Learning rates tried, with the results of three rounds of FedAvg: {tried}."
        lines += ["", text]
    lines += [
        "",
        "`clients.csv` lists the group of every client. `coterie run suggested.toml` starts the "
        "full run."
        f" `{comparison(advice, 'suggested.toml')}` compares whole runs.",
        "",
    ]
    return "\n".join(lines)


def _explanation(advice: Advice) -> list[str]:
    """What the columns mean."""
    return [
        f"{advice.best.headline.capital}: of the models after {counted(advice.budget.rounds, 'round')}, on a fifth of each",
        f"client's training samples, held out; mean over {counted(advice.budget.seeds, 'seed')}.",
        CLIENTS_MEAN,
        "",
        f"Gain: over {advice.bar.name}, the best of FedAvg, FedAvg with a warm start, and training",
        "alone: the difference of their clients' means. A warm start is the cold",
        "start of FedGroup with one group. It is included so that FedGroup's head start does not count",
        "as a gain of groups. The gain says nothing about longer runs, in which FedAvg may catch up.",
        "",
        "±: the larger of the uncertainty over clients and over seeds (Student's t).",
        "",
        WON_AND_LOST,
        "",
        ONE_GROUP,
        "",
        f"Bytes and seconds: of {counted(advice.config.train.rounds, 'round')}, as in "
        "`suggested.toml`, projected from",
        "those of the probe on this machine, without evaluation. * marks the recommendation.",
    ]


def _group_lines(advice: Advice) -> Iterator[str]:
    if advice.best.name == ALONE:
        yield "None: each client has a model of its own."
        return
    for group in recommended_groups(advice):
        clients = [escape_cell(printable(str(name))) for name in group["clients"]]
        names = first_few(clients, CLIENTS_SHOWN)
        labels = ", ".join(
            f"{escape_cell(label)} {100 * share:.0f} %" for label, share in group["labels"].items()
        )
        count = counted(len(clients), "client")
        if labels:
            labels = f"; labels {labels}"
        yield f"- group {group['group']}: {count} ({names}){labels}"


# --- JSON and files -------------------------------------------------------------------------------


def advice_json(advice: Advice) -> dict[str, Any]:
    """The advice as plain values."""
    return {
        "verdict": advice.verdict.answer,
        "bar": advice.bar.name,
        "headline": advice.headline,
        "recommended": advice.best.name,
        "measured_by": advice.best.headline.record(),
        "groups_found": advice.found.groups,
        "found_again": list(advice.found.groups_in_parts),
        "differing": asdict(advice.differing),
        "evidence": evidence(advice),
        "methods": {trial.name: _trial_json(trial, advice) for trial in _all_trials(advice)},
        "groups": recommended_groups(advice),
        "probe": {
            "rounds": advice.budget.rounds,
            "seeds": advice.budget.seeds,
            "held_out": HELD_OUT,
            "seconds": advice.seconds,
        },
        "learning_rates": {f"{rate:g}": value for rate, value in advice.rates.items()},
        "rounds_of_costs": advice.config.train.rounds,
    }


def _trial_json(trial: Trial, advice: Advice) -> dict[str, Any]:
    gained = None
    found = advice.gains.get(trial.name)
    if found is not None:
        gained = {"mean": found.mean, "half": found.half, "won": found.won, "lost": found.lost}
    return {
        "options": dict(trial.options),
        trial.headline.name: trial.score,
        "gain": gained,
        "groups": trial.groups,
        "cost": advice.cost(trial),
    }


def _clients_csv(advice: Advice) -> str:
    rows = []
    for client, name in enumerate(advice.population.names):
        margin = ""
        if np.isfinite(advice.found.margin[client]):
            margin = f"{advice.found.margin[client]:.4f}"
        by_update = int(advice.found.member[client])
        rows.append([name, int(advice.member[client]), by_update, margin])
    return csv_text(["client", "group", "group_by_update", "margin"], rows, end="\n")


def write_advice(advice: Advice, out: Path) -> list[Path]:
    """Write ``advise.md``, ``advise.json``, ``suggested.toml`` and ``clients.csv``; returns their
    paths."""
    # All texts are made before the first file is written.
    texts = {
        "advise.md": advice_markdown(advice),
        "advise.json": json.dumps(plain(advice_json(advice)), indent=1, ensure_ascii=False) + "\n",
        "suggested.toml": short_toml(advice.config),
        "clients.csv": _clients_csv(advice),
    }
    with refuse_unwritable_output("--out", out):
        for name, text in texts.items():
            # A client may have a name that is no UTF-8; its bytes are written with a backslash.
            (out / name).write_text(text, encoding="utf-8", errors="backslashreplace", newline="")
    return [out / name for name in texts]
