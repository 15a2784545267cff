"""Are groups found where they are known, and is their difference named?

    python -m benchmarks.blind --out runs/blind.json
    python -m benchmarks.blind --out runs/blind.json --seeds 0 1 --only skew --whole

For each federation of ``blind.toml``: the groups that FedGroup with ``groups = "auto"`` and FedClust
find, and what ``advise`` says of the number and the kind of differences. ``--whole`` also makes the
short runs of ``advise``, which say whether grouping helps; they take most of the time. What the file
has already is not measured again.
"""

from __future__ import annotations

import argparse
import json
import tomllib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

import coterie as ct
from coterie.core.arrays import IntArray
from coterie.core.keys import Key
from coterie.core.vectors import flatten
from coterie.data.loading import load_samples
from coterie.experiment import Experiment, check
from coterie.math.labellings import adjusted_rand_index
from coterie.studies.advise import advise
from coterie.studies.advise.answer import kinds_of
from coterie.studies.advise.differences import GroupDifferences, differences
from coterie.studies.advise.probe import ProbeResult, probe
from coterie.studies.advise.trials import TrialBudget, TrialSetup, with_algorithm

Row = dict[str, Any]
Generator = np.random.Generator
Change = Callable[[Tensor, Tensor, int], tuple[Tensor, Tensor]]

ROWS = 24_000  # that are drawn of a table
FEATURES = 20
CLASSES = 5  # of a table
SHIFT = 1.5  # of each feature, in standard deviations
# In what groups differ, in the words of `kinds_of`.
KINDS = {
    **dict.fromkeys(("rotate", "shift"), "inputs"),
    **dict.fromkeys(("swap", "permute", "slopes"), "labels"),
    "labels": "classes",
}


@dataclass(frozen=True)
class Federation:
    """Clients whose groups are known: client ``i`` is of group ``i mod groups``. The fields are
    explained in ``blind.toml``."""

    source: str
    how: str
    groups: int
    clients: int
    samples: int
    ratio: int

    @property
    def name(self) -> str:
        skew = f", skew 1:{self.ratio}" if self.ratio > 1 else ""
        return f"{self.source}, {self.how} {self.groups}, {self.clients} x {self.samples}{skew}"


FILE = tomllib.loads(Path(__file__).with_suffix(".toml").read_text("utf-8"))
FEDERATIONS = [Federation(*one) for one in FILE["federations"]]


def population(one: Federation, seed: int) -> ct.Population:
    """The clients of a federation. A sample may be held by several of them, in different groups."""
    rng = Key(seed).of(one.name).generator()
    x, y = _pool(one, rng)
    classes = 0 if one.source == "regression" else int(y.max()) + 1
    # In equal ratios, in random order, with the mean that was asked for.
    sizes = rng.permutation(one.ratio ** np.linspace(0, 1, one.clients))
    sizes = np.maximum(2, np.round(sizes * one.samples / sizes.mean())).astype(np.int64)
    groups = np.arange(one.clients) % one.groups
    change = _change(one, classes, rng)
    parts: list[tuple[Tensor, Tensor]] = []
    train = []
    test = []
    begin = 0
    for group, size in zip(groups, sizes, strict=True):
        # A quarter more, to test on.
        end = begin + size + size // 4 + 1
        rows = _rows(one, y, classes, int(group), end - begin, rng)
        parts.append(change(x[rows], y[rows], int(group)))
        train.append(np.arange(begin, begin + size))
        test.append(np.arange(begin + size, end))
        begin = end
    x, y = (torch.cat(column) for column in zip(*parts, strict=True))
    return ct.Population(x, y, tuple(train), tuple(test), classes=classes, planted=groups)


def _pool(one: Federation, rng: Generator) -> tuple[Tensor, Tensor]:
    """The samples that clients draw from."""
    if one.source in ("digits", "mnist"):
        samples = load_samples({"source": one.source})
        return samples.x, samples.y
    x = rng.normal(size=(ROWS, FEATURES))
    if one.source == "regression":
        return torch.from_numpy(x).float(), torch.zeros(ROWS)
    y = rng.integers(CLASSES, size=ROWS)
    x += rng.normal(size=(CLASSES, FEATURES))[y]
    return torch.from_numpy(x).float(), torch.from_numpy(y)


def _change(one: Federation, classes: int, rng: Generator) -> Change:
    """What is done to the samples of a client of a group."""
    orders = np.tile(np.arange(classes), (one.groups, 1))
    for group in range(1, one.groups):
        if one.how == "permute":
            orders[group] = rng.permutation(classes)
        if one.how == "swap":
            # Six labels in three pairs, or two of a table's five; other ones in each group.
            for pair in rng.permutation(classes)[: classes // 3 * 2].reshape(-1, 2):
                orders[group, pair] = pair[::-1]
    table = torch.from_numpy(orders)
    shifts = torch.from_numpy(rng.choice([-SHIFT, SHIFT], (one.groups, FEATURES))).float()
    slopes = torch.from_numpy(rng.normal(size=(one.groups, FEATURES)) / FEATURES**0.5).float()

    def change(x: Tensor, y: Tensor, group: int) -> tuple[Tensor, Tensor]:
        if one.source == "regression":
            y = x @ slopes[group] + 0.1 * torch.from_numpy(rng.normal(size=len(x))).float()
        match one.how:
            case "rotate":
                x = torch.rot90(x, group, (-2, -1))
            case "swap" | "permute":
                y = table[group][y]
            case "shift":
                x = x + shifts[group]
            case "noise":
                y = torch.from_numpy(rng.integers(classes, size=len(y)))
        return x, y

    return change


def _rows(
    one: Federation, y: Tensor, classes: int, group: int, size: int, rng: Generator
) -> IntArray:
    """The samples that a client draws, without repetition."""
    if one.how not in ("labels", "dirichlet"):
        return rng.choice(len(y), size, replace=False)
    own = np.array_split(np.arange(classes), one.groups)[group]
    shares = np.isin(np.arange(classes), own).astype(np.float64)
    if one.how == "dirichlet":
        shares = rng.dirichlet(np.full(classes, 0.5)) + 1e-9
    each = (shares / np.bincount(y.numpy(), minlength=classes))[y.numpy()]
    return rng.choice(len(y), size, replace=False, p=each / each.sum())


def settings_of(one: Federation, seed: int) -> dict[str, Any]:
    """The tables of a federation's runs."""
    task = "regression" if one.source == "regression" else "classification"
    local = {**FILE["settings"]["local"], "lr": FILE["rates"][one.source]}
    return {**FILE["settings"], "task": {"kind": task}, "local": local, "seed": seed}


def measure(one: Federation, seed: int, whole: bool) -> Row:
    """What the methods and ``advise`` find in a federation."""
    data = population(one, seed)
    tables = settings_of(one, seed)
    row: Row = {"federation": one.name, "seed": seed}
    for name, method in {"auto": ct.fedgroup(groups="auto"), "FedClust": ct.fedclust()}.items():
        # After one round of all clients all have a group.
        run = ct.run(method, data=data, rounds=1, clients_per_round=one.clients, **tables)
        row[f"{name} groups"] = len(np.unique(run.groups))
        row[f"{name} ARI"] = adjusted_rand_index(np.arange(one.clients) % one.groups, run.groups)
    # A name of data is needed, in whose place the clients are taken.
    source = {"source": "digits", "partition": {"kind": "iid"}}
    train = {"rounds": 15, "clients_per_round": min(10, one.clients)}
    algorithm = {"name": "fedavg"}
    config = check({**tables, "data": source, "train": train, "algorithm": algorithm}, file="")
    if whole:
        advice = advise(config, data)
        found, differing = advice.found, advice.differing
        row |= {"verdict": advice.verdict.answer, "headline": advice.headline}
    else:
        found, differing = analysis(config, data, seed)
    row |= {"advised": found.groups, "again": list(found.groups_in_parts)}
    return row | {"kinds": list(kinds_of(found.groups, differing))}


def analysis(
    config: Experiment, data: ct.Population, seed: int
) -> tuple[ProbeResult, GroupDifferences]:
    """What ``advise`` finds before it tries any method."""
    setup = TrialSetup.of(config, data, TrialBudget())
    spec = setup.spec(with_algorithm(config, "fedavg", {}), seed)
    key = Key(seed).of("advise")
    with setup.open_clients(spec) as clients:
        found = probe(clients, setup.population, flatten(spec.network.module), key)
    return found, differences(setup.population, found.member, key.of("differences"))


def scores(one: Federation, row: Row) -> dict[str, float]:
    """Which answers are right, from 0 to 1; half where ``advise`` leaves the kind open."""
    found = {name: row[f"{name} groups"] == one.groups for name in ("auto", "FedClust")}
    found["number"] = row["advised"] == one.groups
    same = sum(number == row["advised"] for number in row["again"])
    found["number has evidence"] = 2 * same >= len(row["again"])
    if one.how in KINDS:
        kinds = row["kinds"] if row["advised"] > 1 else ["nothing"]
        is_open = len(kinds) != 1 and (not kinds or KINDS[one.how] in kinds)
        found["kind"] = 0.5 if is_open else kinds == [KINDS[one.how]]
    # Whether groups pay where only inputs are shifted depends on the model.
    if "verdict" in row and one.how != "shift":
        found["helps"] = (row["verdict"] == "helps") == (one.groups > 1)
    return {name: float(right) for name, right in found.items()}


def report(rows: Sequence[Row]) -> str:
    """A line for each federation and seed, and the shares of right answers by seed."""
    known = {one.name: one for one in FEDERATIONS}
    names = ["auto groups", "auto ARI", "FedClust groups", "FedClust ARI"]
    names += ["advised", "again", "kinds", "verdict", "wrong"]
    lines = [f"| federation | seed | {' | '.join(names)} |", "|---" * (2 + len(names)) + "|"]
    shares: dict[tuple[int, str], list[float]] = {}
    for row in rows:
        found = scores(known[row["federation"]], row)
        for name, right in found.items():
            shares.setdefault((row["seed"], name), []).append(right)
        all_cells = {"verdict": "-", **row, "wrong": [n for n, right in found.items() if right < 1]}
        cells = [all_cells[name] for name in names]
        texts = [f"{cell:.2f}" if isinstance(cell, float) else str(cell) for cell in cells]
        lines.append(f"| {row['federation']} | {row['seed']} | {' | '.join(texts)} |")
    lines += [
        f"seed {seed}: {name} {np.mean(all_of):.1%}" for (seed, name), all_of in shares.items()
    ]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, required=True, help="the JSON file of all answers")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2, 3, 4])
    parser.add_argument("--only", default="", help="federations whose name holds this")
    parser.add_argument("--whole", action="store_true", help="make the short runs of advise, too")
    options = parser.parse_args()
    rows = json.loads(options.out.read_text("utf-8")) if options.out.exists() else []
    done = {(row["federation"], row["seed"]) for row in rows}
    for seed in options.seeds:
        for one in FEDERATIONS:
            if options.only not in one.name or (one.name, seed) in done:
                continue
            rows.append(measure(one, seed, options.whole))
            options.out.parent.mkdir(parents=True, exist_ok=True)
            options.out.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
            print(report(rows[-1:]).splitlines()[2], flush=True)
    print(report(rows))


if __name__ == "__main__":
    main()
