"""``coterie advise``: reads, probes, tells, and writes what it found."""

from __future__ import annotations

import csv
import itertools
import json
from collections.abc import Mapping, Sequence
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np

from coterie.errors import ConfigError
from coterie.runs.files import plain
from coterie.runs.run import load_data
from coterie.studies.advise.configuration import configuration
from coterie.studies.advise.decision import Advice, advise, summary_of
from coterie.studies.advise.trials import Trial
from coterie.sweep.table import escape_markdown
from coterie.terminal import (
    amount,
    columns_table,
    console,
    counted,
    duration,
    percent,
    printable,
    say,
)

# clients and labels of a group that are named
SHOWN = 12
LABELS = 6
COLUMNS = (
    "method",
    "accuracy",
    "gain, points",
    "± 95 %",
    "clients won / lost",
    "groups",
    "bytes",
    "seconds",
)


def go(
    path: Path,
    out: Path | None,
    assignments: Sequence[str],
    values: Mapping[str, Any],
    columns: Mapping[str, str | None],
    rounds: int,
    seeds: int,
    methods: Sequence[str],
) -> Advice:
    """Advise on a configuration or a file of data; writes ``advise.md``, ``advise.json``,
    ``suggested.toml`` and ``clients.csv`` into ``out``, by default a new folder of ``runs``."""
    bare = path.suffix in (".parquet", ".npz")
    config = configuration(path, assignments, values, columns)
    _, _, population = load_data(config)
    if getattr(population, "lazy", False):
        raise ConfigError(
            f"advise: a federation that is made client by client, got {path}; expected data that are read"
        )
    out = _folder(out)
    samples = int(population.sizes("train").sum())
    classes = "1 class" if population.classes == 1 else f"{population.classes} classes"
    clients = counted(population.clients, "client")
    say(f"{clients}, {counted(samples, 'training sample')}, {classes}, {config.model.name}")
    given = {assignment.partition("=")[0].strip() for assignment in assignments}
    found = advise(
        config,
        population,
        search=bare and "local.lr" not in given,
        bare=bare and "train.clients_per_round" not in given,
        rounds=rounds,
        seeds=seeds,
        methods=methods,
        told=lambda line: say(f"  {line}"),
    )
    files = write(found, out)
    terminal = console()
    terminal.print(
        "",
        found.headline,
        *summary_of(found),
        "",
        columns_table(list(COLUMNS), cells(found)),
        sep="\n",
        soft_wrap=True,
    )
    said = f"{counted(len(files), 'file')} in {out}: {', '.join(file.name for file in files)}"
    say(f"\n{said}; took {duration(found.seconds)}")
    say(f"next: coterie run {out / 'suggested.toml'}")
    return found


def _folder(out: Path | None) -> Path:
    """The folder to write into, which is there from now on; by default the first
    ``runs/advise-<n>`` that was not."""
    for n in itertools.count(1):
        path = out or Path("runs") / f"advise-{n}"
        try:
            path.mkdir(parents=True, exist_ok=out is not None)
            break
        except OSError as error:
            if isinstance(error, FileExistsError) and out is None:
                continue
            raise ConfigError(
                f"--out: cannot be written ({error.strerror}), got {path}; expected a folder that can be made"
            ) from None
    return path


# --- what is shown --------------------------------------------------------------------------------


def cells(advice: Advice) -> list[list[str]]:
    """The table of the trials as text; bytes and seconds are for the rounds of the configuration
    suggested."""
    return [_cells(trial, advice) for trial in (*advice.plain, *advice.trials.values())]


def _cells(trial: Trial, advice: Advice) -> list[str]:
    cost = advice.cost(trial)
    found = advice.gains.get(trial.name)
    gained = ["-"] * 3
    if found is not None:
        gained = [
            f"{100 * found.mean:+.1f}",
            f"{100 * found.half:.1f}",
            f"{found.won} / {found.lost}",
        ]
    costs = [amount(cost["bytes"]), f"{cost['seconds']:.0f}"]
    mark = " *" if trial.name == advice.best.name else ""
    return [trial.name + mark, percent(trial.accuracy), *gained, str(trial.groups), *costs]


def groups_of(advice: Advice) -> list[dict[str, Any]]:
    """Each group that is recommended: its clients, samples, and largest labels."""
    population = advice.population
    found = []
    histograms = population.histograms()
    for g in np.unique(advice.member[advice.member >= 0]):
        inside = np.flatnonzero(advice.member == g)
        total = histograms[inside].sum(axis=0)
        order = np.argsort(-total, kind="stable")[:LABELS]
        found.append(
            {
                "group": int(g),
                "clients": [population.names[i] for i in inside],
                "samples": int(population.sizes("train")[inside].sum()),
                "labels": {
                    str(c): float(total[c] / max(1, total.sum())) for c in order if total[c]
                },
            }
        )
    return found


def markdown(advice: Advice) -> str:
    """The advice as Markdown."""
    lines = [f"# {advice.headline}", "", *(f"- {line}" for line in summary_of(advice)), ""]
    head = [*COLUMNS]
    rules = ["---", *["---:"] * (len(head) - 1)]
    lines += [
        f"| {' | '.join(escape_markdown(cell) for cell in row)} |"
        for row in (head, rules, *cells(advice))
    ]
    rounds = counted(advice.config.train.rounds, "round")
    lines += [
        "",
        f"Accuracy: of the models after {counted(advice.rounds, 'round')}, on a fifth of each client's training",
        f"samples, held out; mean over {counted(advice.seeds, 'seed')}. ±: the larger of the uncertainty over clients",
        "(bootstrap) and over seeds (Student's t). The gain is over the better of the two FedAvg: a warm start is the",
        "cold start of FedGroup with one group, so that FedGroup's head start is not taken for a gain of groups. It",
        "says nothing of longer runs, in which FedAvg may catch up.",
        "",
        f"Bytes and seconds: of {rounds}, as `suggested.toml` has them, projected from those of the probe on this",
        "machine, without evaluation. * is what is recommended.",
        "",
        "## Groups",
        "",
    ]
    for group in groups_of(advice):
        names = ", ".join(
            escape_markdown(printable(str(name))) for name in group["clients"][:SHOWN]
        )
        more = (
            f", and {len(group['clients']) - SHOWN} more" if len(group["clients"]) > SHOWN else ""
        )
        labels = ", ".join(
            f"{escape_markdown(c)} {100 * share:.0f} %" for c, share in group["labels"].items()
        )
        lines.append(
            f"- group {group['group']}: {counted(len(group['clients']), 'client')} ({names}{more}); labels {labels}"
        )
    if advice.rates:
        tried = ", ".join(f"{lr:g}: {percent(value)}" for lr, value in advice.rates.items())
        lines += ["", f"Learning rates tried, with what three rounds of FedAvg reached: {tried}."]
    lines += [
        "",
        "`clients.csv` has the group of every client; `coterie run suggested.toml` does the whole run.",
        "",
    ]
    return "\n".join(lines)


def as_json(advice: Advice) -> dict[str, Any]:
    """The advice as plain values."""

    def trial(one: Trial) -> dict[str, Any]:
        found = advice.gains.get(one.name)
        gained = (
            None
            if found is None
            else {"mean": found.mean, "half": found.half, "won": found.won, "lost": found.lost}
        )
        return {
            "options": dict(one.options),
            "accuracy": one.accuracy,
            "gain": gained,
            "groups": one.groups,
            "cost": advice.cost(one),
        }

    return {
        "verdict": advice.verdict,
        "headline": advice.headline,
        "recommended": advice.best.name,
        "groups_found": advice.found.groups,
        "found_again": list(advice.found.again),
        "differing": dict(advice.differing),
        "evidence": summary_of(advice),
        "methods": {one.name: trial(one) for one in (*advice.plain, *advice.trials.values())},
        "groups": groups_of(advice),
        "probe": {
            "rounds": advice.rounds,
            "seeds": advice.seeds,
            "held_out": 0.2,
            "seconds": advice.seconds,
        },
        "learning_rates": {f"{lr:g}": value for lr, value in advice.rates.items()},
        "rounds_of_costs": advice.config.train.rounds,
    }


def write(advice: Advice, out: Path) -> list[Path]:
    """Write the four files; returns their paths."""
    table = StringIO()
    writer = csv.writer(table, lineterminator="\n")
    writer.writerow(["client", "group", "group_by_update", "margin"])
    for i, name in enumerate(advice.population.names):
        margin = advice.found.margin[i]
        kept = f"{margin:.4f}" if np.isfinite(margin) else ""
        writer.writerow([name, int(advice.member[i]), int(advice.found.member[i]), kept])
    texts = {
        "advise.md": markdown(advice),
        "advise.json": json.dumps(plain(as_json(advice)), indent=1, ensure_ascii=False) + "\n",
        "suggested.toml": advice.config.toml(),
        "clients.csv": table.getvalue(),
    }
    try:
        for name, text in texts.items():
            (out / name).write_text(text, encoding="utf-8", errors="backslashreplace", newline="")
    except OSError as error:
        raise ConfigError(
            f"--out: cannot be written ({error.strerror}), got {out}; expected a folder that can be written"
        ) from None
    return [out / name for name in texts]
