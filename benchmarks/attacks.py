"""Accuracy of honest clients under attack, without and with defences.

    python -m benchmarks.attacks digits --seeds 0,1,2 --out digits.json
    python -m benchmarks.attacks mnist --seeds 0 --shares 0.2 --out mnist.json

Runs are written one by one, and those that the file has already are not done again. ``--options`` are
of all methods, and are not looked at for that: use another file for them.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import coterie as ct
from coterie.data.population import Population
from coterie.engines.attacks import ATTACKS, Attack
from coterie.rules.robust import geometric_median
from coterie.rules.weighing import evenly

METHODS = ("fedavg", "fedgroup", "flexcfl", "ifca", "fedclust")
# Name -> kind of attack, its options.
ATTACKS_TRIED: dict[str, tuple[str, dict[str, Any]]] = {
    "sign flip": ("sign_flip", {}),
    "-10x": ("sign_flip", {"factor": 10.0}),
    "scaling": ("scaling", {"factor": 100.0}),
    "1e14": ("scaling", {"factor": 1e14}),
    "label flip": ("label_flip", {}),
    "noise": ("noise", {}),
    "ALIE": ("alie", {}),
    "collusion": ("collusion", {}),
}
# Methods that have outliers without being asked.
OUTLIERS_BY_DEFAULT = ("stocfl", "clove", "sr_fca")
DEFENCES = ("off", "bounds", "rule", "on", "even", "mean")
RULES = {
    "rule": geometric_median(),
    "on": geometric_median(remember=True),
    "even": geometric_median(remember=True, evenly=True),
}


@dataclass(frozen=True)
class Case:
    """One run.

    Args:
        method: its name.
        attack: its name in ``ATTACKS_TRIED``, or ``none``.
        share: of attackers; 0 with an attack is one attacker.
        defences: ``off``; ``bounds``, as by default; ``rule``: with the geometric median and without
            outliers in cold starts, too, of which IFCA has one then; ``on``: all of it, and the
            geometric median remembers; ``even``: all of that, and clients count the same; ``mean``: no
            defence, and clients count the same.
        seed: of everything.
    """

    method: str
    attack: str
    share: float
    defences: str
    seed: int


def cases(arguments: argparse.Namespace) -> Iterator[Case]:
    """All runs: the honest ones first, then the shares in their order."""
    for seed in arguments.seeds:
        for method in arguments.methods:
            for defences in arguments.defences:
                yield Case(method, "none", 0.0, defences, seed)
    for share in arguments.shares:
        for seed in arguments.seeds:
            for attack in arguments.attacks:
                for method in arguments.methods:
                    for defences in arguments.defences:
                        yield Case(method, attack, share, defences, seed)


def make_attack(case: Case, clients: int) -> Attack | None:
    """The attack of a case; a single attacker is another client for each seed."""
    if case.attack == "none":
        return None
    kind, options = ATTACKS_TRIED[case.attack]
    who: dict[str, Any] = {"share": case.share}
    if not case.share:
        who = {"clients": ((7 + 11 * case.seed) % clients,)}
    return ATTACKS[kind](**who, **options)


@dataclass(frozen=True)
class Federation:
    """Clients, and how methods run on them.

    Args:
        data: of the clients.
        settings: arguments of ``ct.run``.
        alpha: clients of a cold start for each group.
        fedclust: options of FedClust, which finds the number of groups if there are none.
    """

    data: Population
    settings: dict[str, Any]
    alpha: int
    fedclust: Mapping[str, Any] = field(default_factory=dict)


def digits(seed: int) -> Federation:
    """Planted digits, as ``examples/digits.toml``."""
    partition = {"kind": "planted", "clients": 60, "groups": 3, "how": "swap"}
    data = ct.load("digits", partition=partition, seed=seed)
    settings = {"rounds": 30, "clients_per_round": 20, "local": ct.Solver(5, 10, 0.1)}
    return Federation(data, settings, alpha=10)


def mnist(seed: int) -> Federation:
    """MNIST of 1,000 clients with two digits each, as ``examples/mnist-mclr.toml``.

    30 rounds of 5 epochs and not 300 of 10, so that a run takes two seconds.
    """
    partition = {"kind": "power_law", "clients": 1000, "classes_per_client": 2}
    data = ct.load("mnist", partition=partition, seed=seed, pixels="standardised")
    settings = {"rounds": 30, "clients_per_round": 20, "local": ct.Solver(5, 10, 0.03)}
    return Federation(data, settings, alpha=20, fedclust={"groups": 3, "warmup_epochs": 1})


DATA = {"digits": digits, "mnist": mnist}


def options_of(
    case: Case, federation: Federation, others: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """The arguments of the method of a case, and others of all methods."""
    options: dict[str, Any] = {}
    if case.method in ("fedgroup", "flexcfl"):
        options = {"groups": 3, "alpha": federation.alpha}
    elif case.method == "ifca":
        options = {"groups": 3}
    elif case.method == "fedclust":
        options = dict(federation.fedclust)
    if case.defences in RULES:
        if case.method == "ifca":
            options |= {"init": "robust_cold_start", "alpha": federation.alpha}
        elif case.method != "fedavg":
            options["outliers"] = "leave_out"
    elif case.defences != "bounds" and case.method in OUTLIERS_BY_DEFAULT:
        options["outliers"] = "keep"
    return options | dict(others or {})


def run_case(
    case: Case, federation: Federation, others: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """The last five accuracies' mean of a run, what was clipped, and its seconds."""
    data = federation.data
    began = time.perf_counter()
    result = ct.run(
        getattr(ct, case.method)(**options_of(case, federation, others)),
        data=data,
        model="mclr",
        engine="serial",
        seed=case.seed,
        attack=make_attack(case, data.clients),
        bounds={"enabled": case.defences not in ("off", "mean")},
        weigh=evenly if case.defences == "mean" else RULES.get(case.defences),
        train={"evaluate_every": 2},
        **federation.settings,
    )
    seconds = time.perf_counter() - began
    last = result.accuracy[-5:]
    touched: dict[str, int] = {}
    for row in result.rows:
        for reason, count in {**row.get("clipped", {}), **row["refused"]}.items():
            touched[reason] = touched.get(reason, 0) + count
    return {
        "accuracy": sum(last) / len(last) if last else None,
        "touched": touched,
        "seconds": round(seconds, 2),
    }


def main() -> None:
    """Run what is not done yet."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", choices=DATA)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--seeds", type=_list_of(int), default=[0, 1, 2])
    parser.add_argument("--shares", type=_list_of(float), default=[0.2])
    parser.add_argument("--methods", type=_list_of(str), default=list(METHODS))
    parser.add_argument("--attacks", type=_list_of(str), default=list(ATTACKS_TRIED))
    parser.add_argument("--defences", type=_list_of(str), default=list(DEFENCES))
    parser.add_argument("--options", type=json.loads, default={})
    arguments = parser.parse_args()
    done = json.loads(arguments.out.read_text()) if arguments.out.exists() else []
    known = {json.dumps(one["case"]) for one in done}
    end = time.monotonic() + 60 * arguments.minutes
    made: dict[int, Federation] = {}
    for case in cases(arguments):
        if json.dumps(asdict(case)) in known:
            continue
        if time.monotonic() > end:
            break
        if case.seed not in made:
            made[case.seed] = DATA[arguments.data](case.seed)
        found = run_case(case, made[case.seed], arguments.options)
        done.append({"case": asdict(case), "options": arguments.options, **found})
        print(done[-1], flush=True)
        arguments.out.write_text(json.dumps(done) + "\n", encoding="utf-8")


def _list_of(kind: Any) -> Any:
    return lambda text: [kind(part) for part in text.split(",")]


if __name__ == "__main__":
    main()
