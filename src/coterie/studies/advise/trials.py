"""Short runs of methods on the clients' training samples, scored on a part of them that is held
out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from torch import nn

from coterie.clients.clients import Clients
from coterie.config import RunConfig, check
from coterie.core.arrays import FloatArray, IntArray
from coterie.core.keys import Key
from coterie.core.solver import Solver
from coterie.data import Population
from coterie.engines import make_clients
from coterie.measures.scoring import each_client
from coterie.methods.override import fit_to_model
from coterie.methods.serving import served_by
from coterie.methods.step import as_algorithm
from coterie.models import build, decay_for, starts
from coterie.runs.cohort import Sampler
from coterie.runs.loop import simulate
from coterie.runs.run import make_method

HELD_OUT = 0.2
RATES = (0.3, 0.1, 0.03, 0.01, 0.003)
DRAWS = 1000
LEVEL = 0.95
T_95 = {2: 12.706, 3: 4.303, 4: 3.182, 5: 2.776}  # of Student's t for so many seeds


def held_out(population: Population, key: Key) -> Population:
    """The clients' training samples, a fifth of each client's set apart to score on; test samples
    are not looked at.

    A client with one sample keeps it for training.
    """
    train = []
    test = []
    for client, rows in enumerate(population.train):
        rows = key.client(client).generator().permutation(rows)
        cut = min(len(rows) - 1, max(1, round(HELD_OUT * len(rows)))) if len(rows) > 1 else 0
        train.append(np.sort(rows[cut:]))
        test.append(np.sort(rows[:cut]))
    return population.with_parts(tuple(train), tuple(test))


@dataclass(frozen=True, slots=True)
class Trial:
    """What short runs of a method came to.

    Args:
        name: the algorithm.
        options: of it.
        correct: float64 ``[seeds, N]``, held-out samples classified correctly at the end.
        size: float64 ``[N]``, held-out samples.
        member: int64 ``[N]``, the groups at the end, of the first seed.
        rows: of all rounds of the first seed.
    """

    name: str
    options: Mapping[str, Any]
    correct: FloatArray
    size: FloatArray
    member: IntArray
    rows: Sequence[Mapping[str, Any]] = field(repr=False)

    @property
    def accuracy(self) -> float:
        """Mean over the seeds, a fraction."""
        return float(self.correct.sum() / (len(self.correct) * self.size.sum()))

    @property
    def groups(self) -> int:
        """Groups with members."""
        return len(np.unique(self.member[self.member >= 0]))

    def cost(self, rounds: int, share: float = 1.0) -> dict[str, float]:
        """Bytes and seconds of so many rounds, each a usual one, and what the rounds here took
        beyond usual ones.

        A usual round is the median of all but the first: cold starts come once, and one round of
        those that meet everybody asks but the rest.

        Args:
            rounds: how many.
            share: of the clients asked here that are asked in a round of those.
        """
        moved = [row["transfers"]["down_bytes"] + row["transfers"]["up_bytes"] for row in self.rows]
        spent = [row["seconds"]["total"] - row["seconds"]["evaluation"] for row in self.rows]
        later = slice(1, None) if len(moved) > 1 else slice(None)
        found = {}
        for name, values in (("bytes", moved), ("seconds", spent)):
            usual = float(np.median(values[later]))
            found[name] = max(0.0, float(sum(values)) + (rounds * share - len(values)) * usual)
        return found


@dataclass(frozen=True, slots=True)
class Bench:
    """What all trials share: the configuration, the clients with a part held out, the network, who
    is asked."""

    config: RunConfig
    population: Population
    module: nn.Module
    decay: tuple[str, ...]
    cohort: int

    @classmethod
    def of(cls, config: RunConfig, population: Population) -> Bench:
        """The clients with a part held out; a cohort is large enough to meet everybody within ten
        rounds."""
        name = config.model.name
        options = config.options("model")
        module = build(
            name, population.shape, population.classes, Key(config.seed).of("model"), **options
        )
        decay = decay_for(name, module, config.local.l2, **options)
        cohort = min(
            population.clients, max(config.train.clients_per_round, -(-population.clients // 10))
        )
        return cls(
            config, held_out(population, Key(config.seed).of("held_out")), module, decay, cohort
        )

    def door(self, module: nn.Module, lr: float | None = None) -> Clients:
        """The door to the clients."""
        local = self.config.local.model_dump()
        engine = self.config.engine
        solver = Solver(**{**local, **({} if lr is None else {"lr": lr})})
        name: Literal["pool", "serial"] = "serial" if engine.name == "serial" else "pool"
        return make_clients(
            name, self.population, module, solver, decay=self.decay, workers=engine.workers
        )

    def trial(
        self,
        name: str,
        options: Mapping[str, Any],
        rounds: int,
        seeds: int,
        lr: float | None = None,
    ) -> Trial:
        """Run a method with some seeds."""
        config = with_algorithm(self.config, name, options)
        correct = []
        member = np.empty(0, np.int64)
        rows: list[dict[str, Any]] = []
        size = np.empty(0)
        for seed in range(config.seed, config.seed + seeds):
            key = Key(seed)
            method, module = fit_to_model(make_method(config), self.module, key.of("model"))
            able = np.flatnonzero(self.population.sizes("train") > 0)
            sampler = Sampler("cover_then_uniform", able, min(self.cohort, len(able)), key)
            with self.door(module, lr) as door:
                every = list(
                    simulate(
                        as_algorithm(method),
                        door,
                        self.population,
                        starts(module, key),
                        sampler,
                        rounds,
                        key,
                        evaluate_every=rounds,
                    )
                )
                models, which = served_by(every[-1].groups)
                testable = np.flatnonzero(self.population.sizes("test") > 0)
                right, all_ = each_client(
                    door, testable, models, which, key.at(rounds).of("evaluate")
                )
            correct.append(right.astype(np.float64))
            if not rows:
                size = all_.astype(np.float64)
                member = every[-1].groups.member
                rows = [step.row for step in every]
        return Trial(name, dict(options), np.stack(correct), size, member, rows)


def with_algorithm(config: RunConfig, name: str, options: Mapping[str, Any]) -> RunConfig:
    """The same configuration with another algorithm."""
    return check({**config.resolved(), "algorithm": {"name": name, **options}}, config.file)


def best_rate(bench: Bench, rounds: int = 3) -> tuple[float, dict[float, float]]:
    """The learning rate of those tried with which FedAvg gets furthest in a few rounds, and what
    each reached."""
    reached = {lr: bench.trial("fedavg", {}, rounds, 1, lr).accuracy for lr in RATES}
    return max(reached, key=lambda lr: reached[lr]), reached


@dataclass(frozen=True, slots=True)
class Gain:
    """A difference of two accuracies, fractions.

    Args:
        mean: over clients (by their samples) and seeds.
        half: half the width of its 95 % interval: the larger of that over clients (bootstrap) and
            over seeds (t).
        won: clients that gained, on the mean over the seeds.
        lost: clients that lost.
    """

    mean: float
    half: float
    won: int
    lost: int


def gain(ours: Trial, theirs: Trial, key: Key) -> Gain:
    """What one method gains over another on the same held-out samples.

    Example:
        >>> def trial(*correct):
        ...     size, none = np.array([4.0, 4.0]), np.zeros(2, int)
        ...     return Trial("x", {}, np.array([correct], float), size, none, ())
        >>> found = gain(trial(3, 4), trial(2, 1), Key(0))
        >>> found.mean, found.won, found.lost
        (0.5, 2, 0)
    """
    each = ours.correct - theirs.correct
    over = each.mean(axis=0)
    known = np.flatnonzero(ours.size > 0)
    rng = key.of("bootstrap").generator()
    drawn = rng.choice(known, (DRAWS, len(known)))
    means = over[drawn].sum(axis=1) / ours.size[drawn].sum(axis=1)
    low, high = np.quantile(means, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    seeds = each.sum(axis=1) / ours.size.sum()
    t = (
        T_95.get(len(seeds), 2.0) * float(seeds.std(ddof=1)) / np.sqrt(len(seeds))
        if len(seeds) > 1
        else 0.0
    )
    half = max(float(high - low) / 2, float(t))
    return Gain(
        float(over.sum() / ours.size.sum()), half, int((over > 0).sum()), int((over < 0).sum())
    )
