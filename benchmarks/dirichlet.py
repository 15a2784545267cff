"""FedClust's Table I with both scorings and both readings of a client's test set, in one training.

    python benchmarks/dirichlet.py fedavg/fmnist fedclust/fmnist --rounds 20 --seeds 0-2
    python -m benchmarks.results.collect dirichlet.json --machine "two cores ..."

A line is one of Table 1a of ``coterie reproduce fedclust``, or of its table ``sweep``. Which test
samples a client has changes no training, so this script trains once where the command trains twice,
and fills in all lines of the same training: 1a to 1d, or a row of the sweep by both readings. It
also runs fewer rounds than the paper. Runs of one dataset and seed share the training before the
clustering, which is the same in all of them. The results file is that of the command, and is written
after every run.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from torch import Tensor

from coterie.clients.clients import Clients, ClientStores
from coterie.core.arrays import IntArray
from coterie.core.engine import Engine, Reply
from coterie.core.keep import ClientStore
from coterie.core.keys import Key
from coterie.core.work import Train, Work
from coterie.engines import make_clients
from coterie.measures.scoring import Evaluate, Evaluation, score_round
from coterie.runs.compose import Composed, compose
from coterie.runs.loop import RoundResult
from coterie.runs.run import Run
from coterie.studies.reproduce.papers import Line
from coterie.studies.reproduce.tables import overlay, paper
from coterie.sweep.grid import read_seeds

READINGS = ("labels_present", "proportional")
# Of the metrics of the lines, the figure of a row.
FIGURES = {"mean_local": "accuracy_mean", "mean_last_local": "accuracy_local_mean"}


# --- lines ----------------------------------------------------------------------------------------


def training_of(line: Line) -> str:
    """The configuration of a line without the reading of the test set: equal for equal training."""
    reading = {"data": {"partition": {"test": ""}}}
    return json.dumps(overlay(line.tables or {}, reading), sort_keys=True)


def reading_of(line: Line) -> str:
    """Which test samples a client has."""
    assert line.tables is not None
    return str(line.tables["data"]["partition"]["test"])


def lines_of(name: str) -> list[Line]:
    """The lines of a training, that with this name first."""
    lines = [line for table in paper("fedclust").tables for line in table.lines]
    first = next(line for line in lines if line.table in ("1a", "sweep") and line.name == name)
    wanted = training_of(first)
    # The sweep has a line of Table 1 again; it is one training, and both are filled in.
    return [line for line in lines if line.metric in FIGURES and training_of(line) == wanted]


# --- training once --------------------------------------------------------------------------------


class SharedSignatures:
    """An engine that remembers what clients sent before they were clustered.

    Args:
        engine: reaches the clients.
        networks: the clients' local networks; ``None``: they are not remembered.
        known: replies and networks by dataset and seed, for all runs of this process.
        name: of the dataset and the seed.
    """

    def __init__(
        self, engine: Engine, networks: ClientStore | None, known: dict[str, Any], name: str
    ) -> None:
        self.engine = engine
        self.networks = networks
        self.known = known
        self.name = name

    def run(
        self, work: Work, ids: IntArray, models: Tensor, which: IntArray, *, key: Key
    ) -> Sequence[Reply]:
        networks = self.networks
        assert networks is not None
        # FedClust's clients train once to send a slice of their update; nobody else does.
        if not isinstance(work, Train) or work.upload is None:
            return self.engine.run(work, ids, models, which, key=key)
        if self.name not in self.known:
            replies = self.engine.run(work, ids, models, which, key=key)
            self.known[self.name] = (replies, networks.state())
        replies, state = self.known[self.name]
        networks.restore(state)
        return replies

    def set_population(self, population: Any) -> None:
        self.engine.set_population(population)

    def close(self) -> None:
        self.engine.close()


@dataclass(frozen=True)
class Scored:
    """What a run's models and networks make of the clients' test samples.

    Args:
        rounds: that were done.
        figures: by reading of the test set and key of the row.
        groups: of clients.
        largest: clients of the largest group.
    """

    rounds: int
    figures: Mapping[tuple[str, str], float]
    groups: int
    largest: int


def train(
    line: Line, seed: int, rounds: int, scored_after: Sequence[int], known: dict[str, Any]
) -> Iterator[Scored]:
    """One run, scored by both readings after some of its rounds.

    Args:
        line: says what runs.
        seed: of the run.
        rounds: how many.
        scored_after: so many rounds.
        known: what clients sent before they were clustered, in other runs.
    """
    composed = {reading: prepared_as(line, seed, rounds, reading) for reading in READINGS}
    spec = composed[READINGS[0]].spec
    # Never scored by the run itself: this script does that, by both readings.
    train = replace(spec.schedule.train, evaluate_every=10**9)
    spec = replace(spec, schedule=replace(spec.schedule, train=train))
    with spec.make_clients("serial", {}) as made:
        name = f"{line.tables['data']['source']} {seed}" if line.tables else ""
        engine = SharedSignatures(made.engine, made.stores.networks, known, name)
        clients = replace(made, engine=engine)
        for result in Run.start(spec, clients).rounds():
            if result.round + 1 in scored_after:
                yield _scored(result, composed, clients)


def prepared_as(line: Line, seed: int, rounds: int, reading: str) -> Composed:
    """The run of a line with so many rounds and one reading of the test set."""
    changed = {"data": {"partition": {"test": reading}}, "train": {"rounds": rounds}}
    tables = overlay(line.tables or {}, changed)
    return compose(replace(line, tables=tables).configs(seed)[0])


def _scored(result: RoundResult, composed: Mapping[str, Composed], clients: Clients) -> Scored:
    figures = {}
    for reading, one in composed.items():
        spec = one.spec
        module = spec.network.module
        with make_clients(spec.population, module, spec.local, "serial") as others:
            stores = ClientStores(networks=clients.stores.networks)
            scored = replace(others, stores=stores)
            testable = spec.population.sizes("test") > 0
            row = score_round(
                scored,
                testable,
                result.served,
                result.groups,
                Key(0),
                Evaluation(Evaluate(local=True)),
            )
        for key in FIGURES.values():
            figures[reading, key] = 100 * row[key]
    sizes = result.groups.sizes()
    return Scored(result.round + 1, figures, int((sizes > 0).sum()), int(sizes.max()))


# --- the results file -----------------------------------------------------------------------------


def record(content: dict[str, Any], lines: Sequence[Line], seed: int, scored: Scored) -> None:
    """Put the figures of a run into the lines of a results file."""
    for line in lines:
        value = scored.figures[reading_of(line), FIGURES[line.metric]]
        found = _entry(content, line, scored.rounds)
        found["values"].append(value)
        found["seeds"].append(seed)
        found["groups"].append([scored.groups, scored.largest])


def _entry(content: dict[str, Any], line: Line, rounds: int) -> dict[str, Any]:
    """The entry of a line after so many rounds; a new one if there is none."""
    found: dict[str, Any]
    for known in content["lines"]:
        if (known["table"], known["line"], known["rounds"]) == (line.table, line.name, rounds):
            found = known
            return found
    found = {
        "paper": line.paper,
        "table": line.table,
        "line": line.name,
        "unit": line.unit,
        "metric": line.metric,
        "printed": line.printed,
        "place": line.place,
        "values": [],
        "seeds": [],
        "groups": [],
        "last10": [],
        "rounds": rounds,
        "full_rounds": line.full_rounds,
        "notes": line.notes,
        "problem": "",
    }
    content["lines"].append(found)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("lines", nargs="+", metavar="LINE", help="fedclust/fmnist, ward/10, ...")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--score-after", type=int, nargs="*", default=(), help="default: the last")
    parser.add_argument("--seeds", default="0")
    parser.add_argument("--out", type=Path, default=Path("dirichlet.json"))
    options = parser.parse_args()
    names = " ".join(options.lines)
    command = f"python benchmarks/dirichlet.py {names} --rounds {options.rounds}"
    content: dict[str, Any] = {"command": f"{command} --seeds {options.seeds}", "lines": []}
    known: dict[str, Any] = {}
    for seed in read_seeds(options.seeds):
        for name in options.lines:
            lines = lines_of(name)
            begun = time.process_time()
            after = [*options.score_after, options.rounds]
            for scored in train(lines[0], seed, options.rounds, after, known):
                record(content, lines, seed, scored)
                options.out.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
                shown = {" ".join(k): round(v, 1) for k, v in scored.figures.items()}
                print(
                    f"{name} seed {seed}, {scored.rounds} rounds, {scored.groups} groups, "
                    f"largest {scored.largest}: {shown}",
                    flush=True,
                )
            print(f"    {time.process_time() - begun:.0f} s of this process", flush=True)


if __name__ == "__main__":
    main()
