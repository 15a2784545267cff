"""The demonstration: a federation in which one model cannot suit all clients, with and without
groups."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from rich.console import Console

from coterie.experiment import Experiment
from coterie.headline import ACCURACY
from coterie.report.load import view_of
from coterie.report.page import write_page
from coterie.report.titles import headline
from coterie.report.view import RunView, displayed_round, group_agreement, newcomer_placements
from coterie.runs.loop import RoundResult
from coterie.runs.run import run_config
from coterie.terminal import console as terminal
from coterie.terminal import sizes

CLIENTS = 60
POPULATIONS = 3
NEWCOMERS = 10
ROUNDS = 30
ARRIVAL = 15  # the round, counted from 0, in which the newcomers join
LINE_EVERY = 5  # rounds, in the terminal
TITLE = f"Coterie demonstration: images of digits on {CLIENTS} clients"
SETTING = (
    f"{CLIENTS} clients hold real images of hand-written digits. They form {POPULATIONS} "
    "populations: one has the original images, one has images rotated by 90 degrees, and one "
    "has images rotated by 180 degrees. The algorithms do not know which client belongs to "
    "which population. "
    f"{NEWCOMERS} of the clients join late, in round {displayed_round(ARRIVAL)}."
)
PARTITION = {"kind": "planted", "clients": CLIENTS, "groups": POPULATIONS, "how": "rotate"}
COMMON: Mapping[str, Any] = {
    "data": {"source": "digits", "partition": PARTITION},
    "model": {"name": "mclr"},
    "local": {"epochs": 5, "batch_size": 10, "lr": 0.1},
    "train": {"rounds": ROUNDS, "clients_per_round": 15},
    "shift": {"kind": "arrivals", "round": ARRIVAL, "count": NEWCOMERS},
}
METHODS: Mapping[str, Mapping[str, Any]] = {
    "FedAvg": {"name": "fedavg"},
    "Local": {"name": "local"},
    "FedGroup": {"name": "fedgroup", "groups": POPULATIONS, "alpha": 5, "pretrain_steps": 50},
}


def run_demo(out: Path, console: Console | None = None) -> Path:
    """Run FedAvg, training alone and FedGroup on the same clients and cohorts, from the same model, and
    write a page that compares them."""
    if console is None:
        console = terminal()
    console.print(SETTING)
    runs = []
    with TemporaryDirectory() as folder:
        for name, algorithm in METHODS.items():
            config = Experiment.from_tables({**COMMON, "algorithm": algorithm})
            run_config(config, f"{folder}/{name}", RoundLines(name, console))
            # Without its tables a run is named as its paper names the method.
            runs.append(replace(view_of(Path(folder) / name), tables={}))
    page = write_page(Path(out) / "demo.html", runs, TITLE, intro=SETTING)
    _print_result(runs, console)
    console.print(f"page: {page.resolve()}", soft_wrap=True)
    return page


@dataclass
class RoundLines:
    """Prints a line now and then, called after each round of a run. Its seconds are those of the rounds,
    without start-up."""

    name: str
    console: Console
    seconds: float = 0.0

    def __call__(self, result: RoundResult) -> None:
        done = displayed_round(result.round)
        self.seconds += result.row["seconds"]["total"]
        if done not in (1, ROUNDS) and done % LINE_EVERY:
            return
        groups = "one model"
        if self.name == "Local":
            groups = "a model for each client"
        if result.groups.k > 1:
            groups = f"groups of {sizes(result.groups.sizes().tolist())}"
        accuracy = f"accuracy {ACCURACY.text(result.row['accuracy'])}"
        seconds = f"{self.seconds:.1f} s"
        self.console.print(
            f"{self.name:<8}  round {done:>2}/{ROUNDS}  {accuracy}  {seconds}  {groups}"
        )


def _print_result(runs: Sequence[RunView], console: Console) -> None:
    console.print(headline(runs))
    for run in runs:
        if run.group_count > 1:
            right = sum(bool(placed.right) for placed in newcomer_placements(run))
            console.print(
                "groups against planted populations: "
                f"adjusted Rand index {group_agreement(run):.2f}; "
                f"{right} of {len(run.newcomer_ids)} newcomers placed with their own population"
            )
