"""Makes ``benchmarks/results/attacks.json`` of what ``benchmarks.attacks`` and others measured.

    python -m benchmarks.attack_records FOLDER --machine "..." --commit db7a952

With ``--part mnist``, ``other``, ``mean`` or ``one`` only these records are made, and the others stay as
they are.
The folder has runs of ``benchmarks.attacks``: ``attacks-*.json`` (planted digits), ``new-*.json`` (the
same, with seeds by which nothing was chosen), ``other-*.json`` (other shares of attackers),
``mnist-*.json``, ``mean-*.json`` (a mean in which clients count the same) and ``one-*.json`` (one
attacker, twelve methods). It has ``starts.json``
(accuracy of IFCA by seed), ``honest-*.json`` (bounds on honest clients: lists of ``data``, ``method``,
``seed``, ``on``, ``off``) and ``time.json`` (milliseconds a round by kind of defence). ``measured.json``
says by key which measurements are older, and their ``commit``, ``date`` and so on.
"""

from __future__ import annotations

import argparse
import datetime
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from benchmarks.attacks import ATTACKS_TRIED, digits
from benchmarks.results.records import FOLDER, ResultPage, write
from coterie.clients.cohort import Sampler
from coterie.core.arrays import BoolArray
from coterie.core.keys import Key
from coterie.engines.attacks import sign_flip

T = TypeVar("T")

NAMES = {
    "fedavg": "FedAvg",
    "fedgroup": "FedGroup",
    "flexcfl": "FlexCFL",
    "ifca": "IFCA",
    "fedclust": "FedClust",
    "fesem": "FeSEM",
    "flhc": "FL+HC",
    "pacfl": "PACFL",
    "cfl": "CFL",
    "clove": "CLoVE",
    "sr_fca": "SR-FCA",
    "stocfl": "StoCFL",
}
DATA = {
    "digits": "planted digits",
    "mnist-mclr": "MNIST",
    "synthetic": "Synthetic(1, 1)",
    "emnist_letters_aj": "ten letters",
    "femnist": "FEMNIST",
}
METRICS = {
    "off": "off",
    "bounds": "bounds",
    "rule": "rule",
    "on": "rule that remembers",
    "even": "one vote a client",
}
# Where runs of each kind of defence come from; those without memory were not done again.
MEASURED = {"off": "without", "bounds": "attacks", "rule": "attacks", "on": "memory"}
DIGITS = (
    "examples/digits.toml: 60 clients of three planted groups, 20 a round, logistic regression. "
    "FedClust is not given the number of groups."
)
MNIST = (
    "1,000 clients with two digits each, sizes by a power law, 20 a round, 5 local epochs with batches "
    "of 10 and learning rate 0.03, logistic regression, three groups. FedClust trains one epoch for its "
    "signatures."
)
# A fifth of the clients attacks, and no method loses more points than that.
SHARE = 0.2
MOST_LOST = 3.0
# One attacker costs no method more points than that.
MOST_LOST_TO_ONE = 1.0
# Without attack, defences move no method by more points, up or down.
MOST_MOVED = 0.3
# A round with defences takes so many times as long at most.
MOST_TIME = 1.1
AIMED_AT = ("sign flip", "scaling", "1e14", "label flip")
Found = Mapping[tuple[str, str, float, str], Mapping[int, float]]


def accuracies(runs: list[Mapping[str, Any]]) -> Found:
    """Accuracies in per cent by seed, of each method, attack, share and kind of defence."""
    found: dict[tuple[str, str, float, str], dict[int, float]] = {}
    for run in runs:
        case = run["case"]
        key = (case["method"], case["attack"], case["share"], case["defences"])
        found.setdefault(key, {})[case["seed"]] = round(100 * run["accuracy"], 2)
    return found


def attack_records(
    found: Found, *, after: str = "", measured: Mapping[str, str] = MEASURED, rounds: int = 30
) -> list[dict[str, Any]]:
    """A record for each method, attack, share and kind of defence.

    Args:
        found: the accuracies.
        after: what a subject's name ends with.
        measured: the measurement of each kind of defence.
        rounds: of the runs.
    """
    records = []
    for method, title in NAMES.items():
        ours = {key[1:]: values for key, values in found.items() if key[0] == method}
        for attack, share in _distinct((attack, share) for attack, share, _ in ours):
            for defences, metric in METRICS.items():
                values = ours.get((attack, share, defences))
                if values:
                    name = _named(attack, share)
                    where = measured[defences]
                    records.append(record(name, title + after, metric, "%", values, where, rounds))
    return records


def _named(attack: str, share: float) -> str:
    if attack == "none":
        return attack
    if not share:
        return f"{attack}, one attacker"
    return f"{attack}, {100 * share:.0f} %"


def lost_records(
    found: Found, case: str, measured: str, defences: str = "on", rounds: int = 30
) -> list[dict[str, Any]]:
    """The points that a fifth of the clients costs each method under all defences, seed by seed."""
    records = []
    for method, title in NAMES.items():
        honest = found.get((method, "none", 0.0, defences), {})
        for attack in ATTACKS_TRIED:
            attacked = found.get((method, attack, SHARE, defences), {})
            lost = {
                seed: round(honest[seed] - value, 2)
                for seed, value in attacked.items()
                if seed in honest
            }
            if not lost:
                continue
            subject = f"{title}, all defences"
            one = record(case, subject, attack, "points", lost, measured, rounds)
            aim = {"at_most": MOST_LOST} if attack in AIMED_AT else {}
            records.append(one | aim)
    return records


def change_records(found: Found, case: str, measured: Mapping[str, str]) -> list[dict[str, Any]]:
    """The points by which robust rules move each method without an attack, seed by seed."""
    records = []
    for method, title in NAMES.items():
        off = found.get((method, "none", 0.0, "off"), {})
        for defences in ("on", "even"):
            on = found.get((method, "none", 0.0, defences), {})
            moved = {seed: round(on[seed] - off[seed], 2) for seed in off if seed in on}
            if not moved:
                continue
            one = record(case, title, METRICS[defences], "points", moved, measured[defences], 30)
            records.append(one | {"at_least": -MOST_MOVED, "at_most": MOST_MOVED})
    return records


def mean_records(folder: Path) -> list[dict[str, Any]]:
    """The points by which a mean moves where clients count the same, without attack and defence."""
    found = accuracies(_read(folder, "mean-*.json"))
    records = []
    for method, title in NAMES.items():
        by_samples = found.get((method, "none", 0.0, "off"), {})
        evenly = found.get((method, "none", 0.0, "mean"), {})
        moved = {seed: round(evenly[seed] - by_samples[seed], 2) for seed in evenly}
        if moved:
            case = "mean without attack, MNIST"
            # Not the title alone, by which the tables of all attacks are made.
            subject = f"{title}, a mean"
            metric = "one vote a client in place of one a sample"
            records.append(record(case, subject, metric, "points", moved, "mean", 30))
    return records


def one_records(folder: Path) -> list[dict[str, Any]]:
    """The accuracies beside one attacker, and the points that it costs, seed by seed."""
    runs = _read(folder, "one-*.json")
    accuracy = []
    lost = []
    for options in _distinct(json.dumps(run["options"]) for run in runs):
        found = accuracies([run for run in runs if json.dumps(run["options"]) == options])
        # Not the title alone, by which the tables of all attacks are made.
        after = ", ".join(json.loads(options).values()) or "bounds"
        for method, title in NAMES.items():
            honest = found.get((method, "none", 0.0, "bounds"))
            if honest is None:
                continue
            name = f"{title}, {after}"
            case = "one attacker, seeds 21 to 25"
            accuracy.append(record(case, name, "honest", "%", honest, "one-21", 30))
            for attack in ATTACKS_TRIED:
                values = found.get((method, attack, 0.0, "bounds"))
                if values is None:
                    continue
                accuracy.append(record(case, name, attack, "%", values, "one-21", 30))
                points = {seed: round(honest[seed] - values[seed], 2) for seed in values}
                case_lost = "points lost to one attacker"
                one = record(case_lost, name, attack, "points", points, "one-21", 30)
                lost.append(one | {"at_most": MOST_LOST_TO_ONE})
    return [*accuracy, *lost]


def start_records(values: Mapping[str, float]) -> list[dict[str, Any]]:
    """IFCA from random models without attackers: accuracies in per cent by seed."""
    by_seed = {int(seed): value for seed, value in values.items()}
    return [record("none, many seeds", "IFCA", "bounds", "%", by_seed, "starts", 30)]


def chance_records(seeds: Sequence[int] = (0, 1, 2)) -> list[dict[str, Any]]:
    """How a fifth of the clients falls on the three planted groups, and on their replies, and how many
    honest clients are in the group that all attackers of a collusion join.

    A round is lost for a group where at least half of its replies are of attackers.
    """
    most: dict[int, float] = {}
    lost: dict[int, float] = {}
    beside: dict[int, float] = {}
    for seed in seeds:
        federation = digits(seed)
        data = federation.data
        assert data.planted is not None
        able = np.flatnonzero(data.sizes("train") > 0)
        attack = sign_flip(share=0.2)
        attacks = np.isin(np.arange(data.clients), attack.attackers(able, data.clients, Key(seed)))
        # The first honest client is the one that all attackers of a collusion imitate.
        honest = np.setdiff1d(able, np.flatnonzero(attacks))
        of_victim = data.planted[honest] == data.planted[honest[0]]
        beside[seed] = int(of_victim.sum())
        sampler = Sampler(
            "cover_then_uniform", able, federation.settings["clients_per_round"], Key(seed)
        )
        of_group = [data.planted == j for j in np.unique(data.planted)]
        hostile = max(of_group, key=lambda members: int((attacks & members).sum()))
        most[seed] = int((attacks & hostile).sum())
        cohorts = [sampler(number) for number in range(federation.settings["rounds"])]
        lost[seed] = int(sum(_half(attacks[ids[hostile[ids]]]) for ids in cohorts))
    return [
        record("attackers, 20 %", "of one group of 20", metric, unit, values, "chance", None)
        for metric, unit, values in (
            ("attackers", "clients", most),
            ("rounds lost", "rounds", lost),
            ("honest beside colluders", "clients", beside),
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


def measurements(where: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Every measurement of the page.

    Args:
        where: machine, date and commit of those that say nothing else.
    """
    command = "python -m benchmarks.attacks"
    return {
        "attacks": {
            "what": "Attacks on planted digits, with bounds and a rule",
            "settings": f"{DIGITS} IFCA starts from a robust cold start with the rule, from random "
            "models else.",
            "command": f"{command} digits --shares 0,0.1,0.2 --defences bounds,rule",
            **where,
        },
        "memory": {
            "what": "Attacks on planted digits, with a rule that remembers",
            "settings": DIGITS,
            "command": f"{command} digits --shares 0.2 --defences on",
            **where,
        },
        "new": {
            "what": "Attacks on planted digits, new seeds",
            "settings": DIGITS,
            "command": f"{command} digits --seeds 3,4,5 --shares 0.2 --defences on",
            **where,
        },
        "other": {
            "what": "Attacks on planted digits, other shares",
            "settings": f"{DIGITS} A tenth and one attacker with the rule that remembers alone.",
            "command": f"{command} digits --shares 0.3 --defences off,on, and --shares 0,0.1 --defences on",
            **where,
        },
        "mnist": {
            "what": "Attacks on MNIST, with a rule that remembers",
            "settings": MNIST,
            "command": f"{command} mnist --shares 0.2 --defences on",
            **where,
        },
        "votes": {
            "what": "Attacks on MNIST, without defences and where all clients of a round count the same",
            "settings": MNIST,
            "command": f"{command} mnist --shares 0,0.1,0.2,0.3 --defences off,even",
            **where,
        },
        "mean": {
            "what": "A mean in which all clients of a round count the same, on MNIST",
            "settings": f"{MNIST} No defence and no attackers.",
            "command": f"{command} mnist --attacks none --shares 0 --defences off,mean",
            **where,
        },
        "one-21": {
            "what": "One attacker on planted digits, seeds 21 to 25",
            "settings": f"{DIGITS} Options are the defaults, but for those that a row names.",
            "command": f"{command} digits --seeds 21,22,23,24,25 --shares 0 --defences bounds "
            '--attacks "sign flip,scaling,label flip,ALIE" --methods fedavg,...,stocfl, and with '
            """--options '{"outliers": "keep"}' --methods fedclust,stocfl""",
            **where,
        },
        "without": {
            "what": "Attacks on planted digits, without defences",
            "settings": f"{DIGITS} Not every attack was run with every seed.",
            "command": f"{command} digits --shares 0,0.1,0.2 --defences off",
            **where,
        },
        "starts": {
            "what": "IFCA's random models without attackers",
            "settings": "examples/digits.toml.",
            "command": f"{command} digits --methods ifca --attacks none --shares 0 --defences bounds "
            "--seeds 0,1,...,15",
            **where,
        },
        "chance": {
            "what": "Attackers of one group",
            "settings": "The planted group with the most attackers, and the rounds of 30 in which "
            "at least half of its replies are theirs. The honest clients of the group that colluders join.",
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
            "engine, processor time with one evaluation, four times 15 rounds, all kinds in turn.",
            "command": "python -m benchmarks.defence_time --out time.json",
            **where,
        },
    }


def time_records(times: Mapping[str, Sequence[float]]) -> list[dict[str, Any]]:
    """Milliseconds of a round by kind of defence, and how often that of a round without any."""
    records = []
    for name, values in times.items():
        ratios = [value / without for value, without in zip(values, times["off"], strict=True)]
        for metric, unit, found, places in (
            ("processor time", "ms", values, 1),
            ("times a round without defences", "", ratios, 2),
        ):
            if name == "off" and found is ratios:
                continue
            by_place = {place: round(value, places) for place, value in enumerate(found)}
            one = record("a round of FedAvg", name, metric, unit, by_place, "times", None)
            aim = {"at_most": MOST_TIME} if metric != "processor time" else {}
            records.append(one | {"seeds": None} | aim)
    return records


def page_records(folder: Path) -> list[dict[str, Any]]:
    """All figures of the page, in the order of its tables."""
    digits_runs = accuracies(_read(folder, "attacks-*.json"))
    new = accuracies(_read(folder, "new-*.json"))
    starts = json.loads((folder / "starts.json").read_text())
    return [
        *lost_records(digits_runs, "points lost, seeds of the choice", "memory"),
        *lost_records(new, "points lost, new seeds", "new"),
        *attack_records(digits_runs),
        *change_records(digits_runs, "change without attack", MEASURED),
        *attack_records(new, after=", new seeds", measured=dict.fromkeys(METRICS, "new")),
        *other_records(folder),
        *mnist_records(folder),
        *mean_records(folder),
        *one_records(folder),
        *start_records(starts),
        *chance_records(),
        *honest_records(_read(folder, "honest-*.json")),
        *time_records(json.loads((folder / "time.json").read_text())),
    ]


def other_records(folder: Path) -> list[dict[str, Any]]:
    """The figures of other shares of attackers on planted digits."""
    found = accuracies(_read(folder, "other-*.json"))
    return attack_records(found, measured=dict.fromkeys(METRICS, "other"))


def mnist_records(folder: Path) -> list[dict[str, Any]]:
    """The figures on MNIST, in the order of their tables."""
    found = accuracies(_read(folder, "mnist-*.json"))
    where = dict.fromkeys(METRICS, "votes") | {"on": "mnist"}
    return [
        *lost_records(found, "points lost, MNIST", "mnist"),
        *lost_records(found, "points lost, MNIST, one vote a client", "votes", "even"),
        *attack_records(found, after=" on MNIST", measured=where),
        *change_records(found, "change without attack, MNIST", where),
    ]


# Of each part, the measurements that its records have, and what makes them.
PARTS: Mapping[str, tuple[Sequence[str], Callable[[Path], list[dict[str, Any]]]]] = {
    "mnist": (("mnist", "votes"), mnist_records),
    "other": (("other",), other_records),
    "mean": (("mean",), mean_records),
    "one": (("one-21",), one_records),
}


def main() -> None:
    """Write the file of the page."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--machine", required=True)
    parser.add_argument("--commit", required=True)
    parser.add_argument("--part", choices=PARTS, help="keep the records of everything else")
    arguments = parser.parse_args()
    folder = arguments.folder
    where = {
        "machine": arguments.machine,
        "date": datetime.date.today().isoformat(),
        "commit": arguments.commit,
    }
    older = json.loads((folder / "measured.json").read_text())
    all_measurements = measurements(where)
    if arguments.part:
        before = json.loads((FOLDER / "attacks.json").read_text())
        remade, make = PARTS[arguments.part]
        kept = [one for one in before["records"] if one["measured"] not in remade]
        # Runs without attackers are in more than one measurement; the first one counts.
        known = {_place(one) for one in kept}
        records = [*kept, *(one for one in make(folder) if _place(one) not in known)]
        all_measurements = before["measurements"] | {key: all_measurements[key] for key in remade}
    else:
        records = page_records(folder)
    used = {one["measured"] for one in records}
    page = {
        "question": "How many attackers can a method withstand?",
        "topic": "accuracy",
        "settings": "Accuracies are of the honest clients, the mean of the last five evaluations.",
        "measurements": {
            key: found | older.get(key, {})
            for key, found in all_measurements.items()
            if key in used
        },
        "records": records,
    }
    write("attacks", ResultPage.model_validate_json(json.dumps(page)))


def _place(one: Mapping[str, Any]) -> tuple[str, ...]:
    """Where a record stands on the page."""
    return one["case"], one["subject"], one["metric"]


def _distinct(items: Iterable[T]) -> list[T]:
    return list(dict.fromkeys(items))


def _read(folder: Path, pattern: str) -> list[Any]:
    return [one for file in sorted(folder.glob(pattern)) for one in json.loads(file.read_text())]


if __name__ == "__main__":
    main()
