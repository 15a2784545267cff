"""Random calls of `coterie` with values of wrong types: each runs, or is refused by a coded error.

``python -m tests.python.random_calls --calls 1000 --seed 0`` prints what did neither.
"""

from __future__ import annotations

import argparse
import contextlib
import inspect
import io
import random
import tempfile
import traceback
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields
from functools import partial
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pandas as pd
import torch
from torch import nn

import coterie as ct
from coterie.algorithms import ALGORITHMS
from coterie.config.schema import table_of
from coterie.data.shifts import SHIFTS
from coterie.errors import Code, CoterieError
from coterie.experiment.tables import CHOICES, record_types, table_names
from coterie.models import MODELS
from coterie.rules.server import SERVERS
from tests.conftest import blobs, small_net

CODES = get_args(Code)
Call = Callable[[], Any]
FRAME = pd.DataFrame(
    {"age": [0.1, 0.2, 0.3, 0.4] * 6, "y": [0, 1] * 12, "client": ["a", "b", "c"] * 8}
)


class Strange:
    """An object that says of itself what no value says."""

    columns = 3
    __array__ = None

    def __eq__(self, other: object) -> Any:
        return np.array([True, False])

    def __hash__(self) -> int:
        return 3


# Values that fit; a call has some of them beside the wrong ones.
RIGHT: dict[str, Any] = {
    "rounds": 2,
    "clients_per_round": 3,
    "seed": 7,
    "evaluate": {"local": True},
    "server": "fedadam",
    "weigh": {"name": "trimmed_mean"},
    "shift": {"kind": "swap_all"},
    "quorum": {"min_replies": 1},
    "privacy": {"epsilon": 8.0, "clip": 0.5},
    "asynchronous": {"buffer": 2},
    "reply_times": {},
    "own_model": {"name": "ditto"},
    "secure": {},
}


TABLES: dict[str, Any] = {
    "data": {"source": "digits", "partition": {"kind": "iid", "clients": 4}},
    "model": {"name": "mclr"},
    "train": {"rounds": 1},
    "algorithm": {"name": "fedavg"},
    "engine": {"name": "serial"},
}


def strange_values() -> list[Any]:
    """Values of many types, few of which fit anywhere."""
    return [
        *(None, True, False, 0, 1, -1, 3, 2**31, 2**70, 0.5, -0.0, float("nan"), float("inf"), 1j),
        *(
            "",
            "x",
            "serial",
            "fedavg",
            "mclr",
            "a:b",
            "os:getcwd",
            "\x1b[2J",
            "a\nb",
            b"x",
            "é" * 200,
        ),
        *(
            [],
            [1],
            ["x"],
            [[]],
            [None],
            (),
            (1, 2),
            ("swap_all",),
            {1, 2},
            frozenset({"x"}),
            range(3),
        ),
        *({}, {1: 2}, {"x": 1}, {"name": "mclr"}, {"kind": "iid"}, {"name": [1]}, {"kind": {}}),
        *({"source": "digits"}, {"": {"": {}}}, {None: None}, {("a",): 1}, iter([1]), object()),
        *(
            np.int64(3),
            np.float32(0.5),
            np.bool_(True),
            np.zeros(3),
            np.zeros((2, 2)),
            np.array(["x"]),
        ),
        *(
            np.array([object()]),
            np.float64("nan"),
            torch.zeros(3),
            torch.tensor(3),
            FRAME,
            FRAME["age"],
        ),
        *(Path("x"), Path("/nowhere/x"), len, print, lambda: None, lambda *a, **k: None, dict, int),
        *(
            nn.Linear,
            nn.Linear(2, 2),
            nn.Module(),
            pd.DataFrame,
            Exception("x"),
            ...,
            NotImplemented,
        ),
        *(
            ct.fedavg,
            ct.fedavg(),
            ct.fedgroup(groups=2),
            ct.Solver(),
            ct.Training(rounds=1),
            ct.Privacy,
        ),
        *(ct.Privacy(epsilon=8.0), blobs(clients=6), ct.Population, ct.Groups, Strange(), Strange),
        *(SHIFTS["swap_all"], SHIFTS["swap_all"](), SERVERS["fedadam"], MODELS["mclr"], ct, ct.run),
    ]


@dataclass
class Calls:
    """Calls that are drawn one after another."""

    rng: random.Random
    place: Path

    def __post_init__(self) -> None:
        self.values = strange_values()
        self.population = blobs(clients=6)
        self.net = small_net()
        self.experiment = ct.Experiment.from_tables(TABLES)
        FRAME.to_csv(self.place / "t.csv", index=False)
        data = ct.load(FRAME, features=["age"])
        self.results = [
            ct.run("fedavg", data=data, model="mclr", rounds=1, engine="serial"),
            ct.run("fedavg", data=self.population, model=self.net, rounds=1, engine="serial"),
        ]
        self.makers = [self.run] * 6 + [self.load] * 3 + [self.by_hand] * 2
        self.makers += [self.table, self.factory, self.record, self.result, self.held, self.opened]

    def draw(self) -> Iterator[tuple[str, Call]]:
        """A call and what it is, without end."""
        while True:
            yield self.rng.choice(self.makers)()

    def value(self) -> Any:
        """A value of any type; half of the time one that stands in something else."""
        rng = self.rng
        value = rng.choice(self.values)
        if rng.random() < 0.2:
            return rng.choice([[value], (value, value), {"name": value}, {"kind": value}])
        return value

    def wrong(self, names: Any, most: int = 2) -> dict[str, Any]:
        """Some of these names with values of any type."""
        names = list(names)
        count = self.rng.choice((0, 1, most))
        return {name: self.value() for name in self.rng.sample(names, min(len(names), count))}

    def in_table(self, name: str) -> Any:
        """A table of an experiment with wrong values in it."""
        if name in record_types():
            return self.wrong(table_of(record_types()[name]).model_fields)
        selector = "kind" if name in ("shift", "attack", "task") else "name"
        return {selector: self.value(), **self.wrong(["x", "groups", "lr", "mu"], 1)}

    def _runs(self, method: Any, options: Mapping[str, Any]) -> Any:
        given = {"data": self.population, "model": self.net, "rounds": 1, "engine": "serial"}
        local = ct.Solver(epochs=1, batch_size=50)
        return ct.run(method, **{**given, "local": local, **options})

    # --- what is called -------------------------------------------------------------------------

    def run(self) -> tuple[str, Call]:
        """`ct.run` with wrong arguments, or with wrong values in its tables."""
        names = {*table_names(), "rounds", "clients_per_round", "on_round", "out"} - {"algorithm"}
        options = self.wrong(sorted(names))
        right = self.rng.sample(sorted(RIGHT), self.rng.randint(0, 3))
        options = {name: RIGHT[name] for name in right} | options
        for name in sorted(set(options) - set(right)):
            if name in {*record_types(), *CHOICES} - {"data"} and self.rng.random() < 0.5:
                options[name] = self.in_table(name)
                if name == "engine":
                    options[name]["name"] = "serial"  # others start processes
        if options.get("out") is not None and isinstance(options["out"], str | Path):
            options["out"] = self.place / str(self.rng.random()) / Path(options["out"]).name
        options.setdefault("engine", "serial")
        method: Any = ct.fedavg()
        if self.rng.random() < 0.2:
            method = self.value()
        return f"run {method!r} {options}", partial(self._runs, method, options)

    def load(self) -> tuple[str, Call]:
        """`ct.load` of every form of data."""
        iid = {"kind": "iid", "clients": 3}
        path = str(self.place / "t.csv")
        source, given = self.rng.choice(
            [
                (FRAME, {}),
                ("digits", {"partition": iid}),
                ({"source": "digits", "partition": iid}, {}),
                ("file", {"path": path, "client": "client"}),
                ("file", {"path": [path], "client": "client", "features": "*"}),
                ({"source": FRAME, "features": ["age"]}, {}),
            ]
        )
        names = ["partition", "seed", "root", "targets", "path", "features", "label", "client"]
        names += ["split", "shape", "columns", "encode", "window"]
        if self.rng.random() < 0.15:
            source = self.value()
        options = {**given, **self.wrong(names)}
        return f"load {source!r} {options}", partial(ct.load, source, **options)

    def by_hand(self) -> tuple[str, Call]:
        """An `Experiment` with wrong fields, and its run."""
        read = self.experiment
        given = {"data": self.population, "model": self.net, "train": read.train}
        given |= {"algorithm": ct.fedavg(), "engine": read.engine}
        options = self.wrong([one.name for one in fields(ct.Experiment)])

        def call() -> Any:
            return ct.run(ct.Experiment(**{**given, **options}))

        return f"Experiment {options}", call

    def table(self) -> tuple[str, Call]:
        """`from_tables`, `from_toml` and `with_table`."""
        tables = {**TABLES, **self.wrong([*table_names(), "x"])}
        name = self.rng.choice([*table_names(), self.value()])
        keys = self.wrong(["rounds", "lr", "epochs", "x"])
        value = self.value()
        return self.rng.choice(
            [
                (f"from_tables {tables}", partial(ct.Experiment.from_tables, tables)),
                (f"from_tables {value!r}", partial(ct.Experiment.from_tables, value)),
                (f"from_toml {value!r}", partial(ct.Experiment.from_toml, value)),
                (f"with_table {name!r}", partial(self.experiment.with_table, name, **keys)),
            ]
        )

    def factory(self) -> tuple[str, Call]:
        """A method of a factory with a wrong option, and its run."""
        name = self.rng.choice(sorted(ALGORITHMS))
        options = list(inspect.signature(ALGORITHMS[name]).parameters)
        given = self.wrong(options) if len(options) > 1 else {}

        def call() -> Any:
            return self._runs(ALGORITHMS[name](**given), {})

        return f"{name} {given}", call

    def record(self) -> tuple[str, Call]:
        """A record with wrong fields, and a run with it."""
        kinds = {**record_types(), "local": ct.Solver}
        name = self.rng.choice(sorted(kinds))
        needed = {"rounds": 1} if name == "train" else {}
        given = {**needed, **self.wrong([one.name for one in fields(kinds[name])])}

        def call() -> Any:
            return self._runs("fedavg", {name: kinds[name](**given)})

        return f"{name} {given}", call

    def held(self) -> tuple[str, Call]:
        """A `Population` with wrong fields."""
        given = {"x": np.zeros((4, 6), np.float32), "y": [0, 1, 0, 1], "classes": 2}
        given |= {"train": ([0, 1], [2]), "test": ([3], [])}
        names = [one.name for one in fields(ct.Population) if one.init]
        given |= self.wrong(names)

        def call() -> Any:
            return self._runs("fedavg", {"data": ct.Population(**given), "model": "mclr"})

        return f"Population {given}", call

    def result(self) -> tuple[str, Call]:
        """A method of a result with wrong arguments."""
        result = self.rng.choice(self.results)
        value = self.value()
        if isinstance(value, str | Path):
            value = self.place / str(self.rng.random()) / Path(value).name
        other = self.wrong(["client", "onnx"], 1)
        return self.rng.choice(
            [
                (f"save {value!r}", partial(result.save, value)),
                (f"report {value!r}", partial(result.report, value)),
                (f"export {value!r} {other}", partial(result.export, value, **other)),
                (f"predict {value!r}", partial(result.predict, value)),
                (f"model_for {value!r}", partial(result.model_for, value)),
                (f"vector_for {value!r}", partial(result.vector_for, value)),
            ]
        )

    def opened(self) -> tuple[str, Call]:
        """A run folder that is none, opened and resumed."""
        value = self.value()
        options = self.wrong(["rounds", "data", "trust", "on_round"])
        return self.rng.choice(
            [
                (f"open {value!r}", partial(ct.Result.open, value, trust=self.value())),
                (f"resume {value!r} {options}", partial(ct.resume, value, **options)),
            ]
        )


def failures(calls: int, seed: int) -> tuple[list[str], int, int]:
    """What neither ran nor was refused by a coded error; how many ran, and how many were refused."""
    found = []
    ran = 0
    refused = 0
    with tempfile.TemporaryDirectory() as place, contextlib.chdir(place):
        drawn = Calls(random.Random(seed), Path(place)).draw()
        for number, (what, call) in zip(range(calls), drawn, strict=False):
            try:
                with warnings.catch_warnings(), contextlib.redirect_stderr(io.StringIO()):
                    warnings.simplefilter("ignore")
                    call()
                ran += 1
            except CoterieError as error:
                refused += 1
                coded = all(one.code in CODES and one.code != "other" for one in error.problems)
                if error.code == 70 or not coded or not error.problems:
                    found.append(f"{number}: {what}\n{error!r}")
            except Exception:  # noqa: BLE001 - any is a failure, whatever it is
                found.append(f"{number}: {what}\n{traceback.format_exc(limit=-4)}")
    return found, ran, refused


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--calls", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    found, ran, refused = failures(given.calls, given.seed)
    print("\n\n".join(found))
    print(f"{ran} ran, {refused} refused, {len(found)} failed")


if __name__ == "__main__":
    main()
