"""Makes ``benchmarks/results/attacks.json`` of what ``benchmarks.attacks`` and others measured.

    python -m benchmarks.attack_records FOLDER --machine "..." --commit db7a952 --without 033207a

The folder has ``attacks-*.json`` (runs of ``benchmarks.attacks digits``), ``starts.json`` (accuracy
of IFCA by seed), ``honest-*.json`` (bounds on honest clients: lists of ``data``, ``method``,
``seed``, ``on``, ``off``) and ``time.json`` (milliseconds a round by kind of defence).
"""

from __future__ import annotations

import argparse
import datetime
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.attacks import digits
from benchmarks.results.records import FOLDER
from benchmarks.results.tables import _distinct
from coterie.core.arrays import BoolArray
from coterie.core.keys import Key
from coterie.engines.attacks import sign_flip
from coterie.runs.cohort import Sampler

NAMES = {
    "fedavg": "FedAvg",
    "fedgroup": "FedGroup",
    "flexcfl": "FlexCFL",
    "ifca": "IFCA",
    "fedclust": "FedClust",
}
DATA = {
    "digits": "planted digits",
    "mnist-mclr": "MNIST",
    "synthetic": "Synthetic(1, 1)",
    "emnist_letters_aj": "ten letters",
    "femnist": "FEMNIST",
}
METRICS = {"off": "off", "bounds": "bounds", "on": "on"}
# Runs without defences do not change with them.
MEASURED = {"off": "without", "bounds": "attacks", "on": "attacks"}
DIGITS = (
    "examples/digits.toml: 60 clients of three planted groups, 20 a round, logistic regression. "
    "FedClust is not given the number of groups."
)


def attack_records(runs: list[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """A record for each method, attack, share and kind of defence."""
    found: dict[tuple[str, str, str], dict[int, float]] = {}
    for run in runs:
        case = run["case"]
        attack = case["attack"]
        if attack != "none":
            who = "one attacker" if not case["share"] else f"{100 * case['share']:.0f} %"
            attack = f"{attack}, {who}"
        key = (NAMES[case["method"]], attack, METRICS[case["defences"]])
        found.setdefault(key, {})[case["seed"]] = round(100 * run["accuracy"], 2)
    attacks = _distinct(attack for _, attack, _ in found)
    return [
        record(attack, method, metric, "%", values, MEASURED[metric], 30)
        for method in NAMES.values()
        for attack in attacks
        for metric in METRICS.values()
        if (values := found.get((method, attack, metric)))
    ]


def start_records(values: Mapping[str, float]) -> list[dict[str, Any]]:
    """IFCA from random models without attackers: accuracies in per cent by seed."""
    by_seed = {int(seed): value for seed, value in values.items()}
    return [record("none, many seeds", "IFCA", "bounds", "%", by_seed, "starts", 30)]


def chance_records(seeds: Sequence[int] = (0, 1, 2)) -> list[dict[str, Any]]:
    """How a fifth of the clients falls on the three planted groups, and on their replies.

    A round is lost for a group where at least half of its replies are of attackers.
    """
    most: dict[int, float] = {}
    lost: dict[int, float] = {}
    for seed in seeds:
        data, settings, _ = digits(seed)
        assert data.planted is not None
        able = np.flatnonzero(data.sizes("train") > 0)
        attack = sign_flip(share=0.2)
        attacks = np.isin(np.arange(data.clients), attack.attackers(able, data.clients, Key(seed)))
        sampler = Sampler("cover_then_uniform", able, settings["clients_per_round"], Key(seed))
        of_group = [data.planted == j for j in np.unique(data.planted)]
        hostile = max(of_group, key=lambda members: int((attacks & members).sum()))
        most[seed] = int((attacks & hostile).sum())
        cohorts = [sampler(number) for number in range(settings["rounds"])]
        lost[seed] = int(sum(_half(attacks[ids[hostile[ids]]]) for ids in cohorts))
    return [
        record("attackers, 20 %", "of one group of 20", metric, unit, values, "chance", None)
        for metric, unit, values in (
            ("attackers", "clients", most),
            ("rounds lost", "rounds", lost),
        )
    ]


def _half(attacks: BoolArray) -> bool:
    return len(attacks) > 0 and 2 * int(attacks.sum()) >= len(attacks)


def honest_records(runs: list[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """How many replies of honest clients were touched, and what that did to the accuracy."""
    records = []
    for data in _distinct(run["data"] for run in runs):
        touched: dict[int, float] = {}
        change: dict[int, float] = {}
        ours = [run for run in runs if run["data"] == data]
        for seed in sorted({run["seed"] for run in ours}):
            those = [run for run in ours if run["seed"] == seed]
            replies = sum(run["on"]["replies"] for run in those)
            touched[seed] = 100 * sum(sum(r["on"]["touched"].values()) for r in those) / replies
            change[seed] = max(
                100 * abs(run["on"]["accuracy"] - run["off"]["accuracy"]) if run["off"] else 0.0
                for run in those
            )
        for metric, unit, values, most in (
            ("replies clipped", "%", touched, None),
            ("largest change of an accuracy", "points", change, 0.3),
        ):
            rounded = {seed: round(value, 3) for seed, value in values.items()}
            one = record("honest clients", DATA[data], metric, unit, rounded, "honest", None)
            records.append(one | ({"at_most": most} if most else {}))
    return records


def record(
    case: str,
    subject: str,
    metric: str,
    unit: str,
    values: Mapping[int, float],
    measured: str,
    rounds: int | None,
) -> dict[str, Any]:
    """A record as the file has it, its values by seed."""
    seeds = sorted(values)
    return {
        "case": case,
        "subject": subject,
        "metric": metric,
        "unit": unit,
        "values": [values[seed] for seed in seeds],
        "seeds": seeds,
        "rounds": rounds,
        "measured": measured,
    }


def main() -> None:
    """Write the file of the page."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--machine", required=True)
    parser.add_argument("--commit", required=True)
    parser.add_argument("--without", required=True, help="commit of the runs without defences")
    arguments = parser.parse_args()
    folder = arguments.folder
    runs = _read(folder, "attacks-*.json")
    honest = _read(folder, "honest-*.json")
    times = json.loads((folder / "time.json").read_text())
    starts = json.loads((folder / "starts.json").read_text())
    where = {
        "machine": arguments.machine,
        "date": datetime.date.today().isoformat(),
        "commit": arguments.commit,
    }
    page = {
        "question": "How many attackers does a method bear?",
        "topic": "accuracy",
        "settings": "Accuracies are of the honest clients, the mean of the last five evaluations.",
        "measurements": {
            "attacks": {
                "what": "Attacks on planted digits, with defences",
                "settings": f"{DIGITS} IFCA starts from a robust cold start in `on`, from random "
                "models else.",
                "command": "python -m benchmarks.attacks digits --seeds 0,1,2 --shares 0,0.1,0.2 "
                "--defences bounds,on",
                **where,
            },
            "without": {
                "what": "Attacks on planted digits, without defences",
                "settings": f"{DIGITS} Not every attack was run with every seed.",
                "command": "python -m benchmarks.attacks digits --seeds 0,1,2 --shares 0,0.1,0.2 "
                "--defences off",
                **where,
                "commit": arguments.without,
            },
            "starts": {
                "what": "IFCA's random models without attackers",
                "settings": "examples/digits.toml.",
                "command": "python -m benchmarks.attacks digits --methods ifca --attacks none "
                "--shares 0 --defences bounds --seeds 0,1,...,15",
                **where,
            },
            "chance": {
                "what": "Attackers of one group",
                "settings": "The planted group with the most attackers, and the rounds of 30 in which "
                "at least half of its replies are theirs.",
                "command": "python -m benchmarks.attack_records",
                **where,
            },
            "honest": {
                "what": "Bounds on honest clients",
                "settings": "The five methods with the configurations of examples, 30 rounds of "
                "digits and FEMNIST (with logistic regression), 40 of ten letters, 50 of the others.",
                "command": None,
                **where,
            },
            "times": {
                "what": "Time of a round",
                "settings": "FedAvg with logistic regression on MNIST, 20 clients a round, serial "
                "engine, processor time without evaluation, four times 15 rounds.",
                "command": None,
                **where,
            },
        },
        "records": [
            *attack_records(runs),
            *start_records(starts),
            *chance_records(),
            *honest_records(honest),
            *(
                {
                    "case": "a round of FedAvg",
                    "subject": name.replace("_", " "),
                    "metric": "processor time",
                    "unit": "ms",
                    "values": [round(value, 1) for value in values],
                    "seeds": None,
                    "rounds": None,
                    "measured": "times",
                }
                for name, values in times.items()
            ),
        ],
    }
    text = json.dumps(page, indent=1) + "\n"
    (FOLDER / "attacks.json").write_text(text, encoding="utf-8")


def _read(folder: Path, pattern: str) -> list[Any]:
    return [one for file in sorted(folder.glob(pattern)) for one in json.loads(file.read_text())]


if __name__ == "__main__":
    main()
