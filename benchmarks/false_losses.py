"""Accuracy of honest clients where one client reports false losses, by methods that group by losses.

    python -m benchmarks.false_losses --seeds 10,11,12,13,14 --out false-losses.json

24 clients of digits in three groups, which swap labels, hold different classes, or see images turned,
or 24 clients whose classes are drawn by Dirichlet's distribution. All train in each of 20 rounds. One
client, another for each seed, reports in place of its losses:

- ``endless``: 1e12 times as much; ``x20`` and ``x4``: 20 and 4 times as much;
- ``zero``: nothing; ``one``: all but the first model's losses, times a million;
- ``reversed``: those of the models in reverse order;
- ``random``: each times the exponential of a Gaussian number of standard deviation 3.

Its updates are honest. ``outliers = "keep"`` is how the papers' methods are; the default is
``leave_out``.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
from torch import Tensor

import coterie as ct
from coterie.core import FloatArray, IntArray, Key, Reply, Work
from coterie.engines.attacks import ATTACKS
from coterie.engines.attacks.attack import AttackingEngine
from coterie.methods.method import Method

CLIENTS = 24
PARTITIONS: dict[str, dict[str, Any]] = {
    "swap": {"kind": "planted", "clients": CLIENTS, "groups": 3, "how": "swap"},
    "labels": {"kind": "planted", "clients": CLIENTS, "groups": 3, "how": "labels"},
    "rotate": {"kind": "planted", "clients": CLIENTS, "groups": 3, "how": "rotate"},
    "dirichlet": {"kind": "dirichlet", "clients": CLIENTS, "beta": 0.3},
}
METHODS: dict[str, Callable[[], Method]] = {
    "clove": lambda: ct.clove(3),
    "clove, keep": lambda: ct.clove(3, outliers="keep"),
    "sr_fca": ct.sr_fca,
    "sr_fca, keep": lambda: ct.sr_fca(outliers="keep"),
    "ifca": lambda: ct.ifca(3),
    "ifca, restarts": lambda: ct.ifca(3, restarts=3),
    "feddrift": lambda: ct.feddrift(start="alone", every=2),
}
LIES = ("none", "endless", "x20", "x4", "zero", "reversed", "random", "one")


def lied(losses: FloatArray, lie: str, key: Key) -> FloatArray:
    """What a client reports in place of its losses ``[1, k]``."""
    if lie == "reversed":
        return losses[:, ::-1]
    if lie == "random":
        return losses * np.exp(key.generator().normal(0, 3, losses.shape))
    if lie == "one":
        return losses * np.where(np.arange(losses.shape[1]), 1e6, 1.0)
    return losses * {"endless": 1e12, "x20": 20.0, "x4": 4.0, "zero": 0.0}[lie]


def lying(lie: str) -> Callable[..., list[Reply]]:
    """`AttackingEngine.run` with false losses of the attackers in place of forged updates."""

    def run(
        engine: AttackingEngine,
        work: Work,
        ids: IntArray,
        models: Tensor,
        which: IntArray,
        *,
        key: Key,
    ) -> list[Reply]:
        replies = engine.engine.run(work, ids, models, which, key=key)
        if lie == "none":
            return list(replies)
        return [_changed(reply, engine.attackers, lie, key.of("lie")) for reply in replies]

    return run


def _changed(reply: Reply, attackers: IntArray, lie: str, key: Key) -> Reply:
    fields = dict(reply.fields)
    for name in {"loss", "train_loss"} & set(fields):
        fields[name] = fields[name].astype(float)
        for row in np.flatnonzero(np.isin(reply.ids, attackers)).tolist():
            told = lied(fields[name][row].reshape(1, -1), lie, key)
            fields[name][row] = told.reshape(fields[name][row].shape)
    return replace(reply, fields=fields)


def accuracy(method: Method, data: ct.Population, lie: str, seed: int) -> float:
    """The mean accuracy of the last five rounds, per cent."""
    liar = (7 + 11 * seed) % CLIENTS
    with mock.patch.object(AttackingEngine, "run", lying(lie)):
        result = ct.run(
            method,
            data=data,
            model="mclr",
            rounds=20,
            clients_per_round=CLIENTS,
            local=ct.Solver(5, 10, 0.1),
            seed=seed,
            attack=ATTACKS["scaling"](clients=(liar,), factor=1.0),
            engine="serial",
        )
    return 100 * float(np.mean([row["accuracy"] for row in result.rows[-5:]]))


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", default="10,11,12,13,14")
    parser.add_argument("--methods", nargs="*", default=list(METHODS), choices=list(METHODS))
    parser.add_argument("--data", nargs="*", default=list(PARTITIONS), choices=list(PARTITIONS))
    parser.add_argument("--lies", nargs="*", default=list(LIES), choices=LIES)
    parser.add_argument("--out", type=Path, default=Path("build/false-losses.json"))
    args = parser.parse_args(arguments)
    seeds = [int(seed) for seed in args.seeds.split(",")]
    found: list[dict[str, Any]] = []
    for partition in args.data:
        data = {
            seed: ct.load("digits", partition=PARTITIONS[partition], seed=seed) for seed in seeds
        }
        for name in args.methods:
            for lie in args.lies:
                values = [accuracy(METHODS[name](), data[seed], lie, seed) for seed in seeds]
                found.append({"data": partition, "method": name, "lie": lie, "accuracy": values})
                shown = " ".join(f"{value:6.2f}" for value in values)
                print(
                    f"{partition:10} {name:15} {lie:9} {np.mean(values):6.2f}  {shown}", flush=True
                )
                args.out.parent.mkdir(parents=True, exist_ok=True)
                args.out.write_text(json.dumps({"seeds": seeds, "runs": found}, indent=1) + "\n")


if __name__ == "__main__":
    main()
