"""The plan of a sweep: every run of some algorithms, seeds and values of a grid.

A run is identified by a hash of its configuration and its data, without the settings that cannot
change results. The first digits of that hash name its folder, so the same run is never executed
twice, whichever sweep it belongs to.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from coterie.config.identity import config_hash
from coterie.config.toml_text import put, read
from coterie.core.process import cores
from coterie.errors import ConfigError, Problem
from coterie.experiment import Experiment, check
from coterie.experiment.experiment import fit_to_clients
from coterie.experiment.traits import refuse_conflicts
from coterie.headline import Headline
from coterie.runs.columns import assume_task
from coterie.runs.fitting import make_method
from coterie.sweep.data_hash import availability_digest, data_key, hash_data
from coterie.sweep.grid import read_grid
from coterie.sweep.options import (
    check_algorithms,
    check_base,
    check_option,
    is_algorithm_key,
    key_for,
    tables_for,
)

# Each run is validated and held in memory: so many take minutes to plan.
MAX_RUNS = 10_000
# Hexadecimal digits of a run's id. With 48 bits, two of 10,000 runs share an id once in five
# million sweeps.
ID_DIGITS = 12

Point = tuple[tuple[str, str | None], ...]
Cell = tuple[str, int, int]  # algorithm, index of the point of the grid, seed


@dataclass(frozen=True, slots=True)
class SweepRun:
    """One run of a sweep.

    Args:
        id: the first digits of the hash of configuration and data; the name of its folder.
        point: the grid point, key -> value as text. ``None`` marks a key that does not apply to this
            algorithm.
    """

    id: str
    algorithm: str
    seed: int
    point: Point
    tables: Mapping[str, Any] = field(repr=False, compare=False)

    @classmethod
    def of(cls, config: Experiment) -> SweepRun:
        """The run of a configuration that says all of its data: they need not be read for its id."""
        resolved = config.resolved()
        run_id = config_hash(resolved)[:ID_DIGITS]
        return cls(run_id, config.name("algorithm"), config.seed, (), resolved)

    @property
    def name(self) -> str:
        """The run as a line of the terminal names it."""
        values = [f"{key}={value}" for key, value in self.point if value is not None]
        return ", ".join([self.algorithm, *values, f"seed {self.seed}"])


@dataclass(frozen=True, slots=True)
class SweepPlan:
    """The runs of a sweep.

    Args:
        cells: (algorithm, index of the point, seed) -> run. Cells of the same configuration share
            one run.
        refused: algorithm -> why it cannot be run with this configuration. Its cells have no runs to
            do, and the others run without it.
        headline: what finished runs were measured by; ``None``: that of their task.
    """

    algorithms: tuple[str, ...]
    seeds: tuple[int, ...]
    keys: tuple[str, ...]
    points: tuple[tuple[str, ...], ...]
    cells: Mapping[Cell, SweepRun]
    refused: Mapping[str, str] = field(default_factory=dict)
    headline: Headline | None = None

    @property
    def allowed(self) -> tuple[str, ...]:
        """The algorithms that are not refused."""
        return tuple(name for name in self.algorithms if name not in self.refused)

    @property
    def runs(self) -> list[SweepRun]:
        """Every run once, in the order of the cells, without those that are refused."""
        # Cells of options that do not apply share a run; a dictionary keeps its first place.
        known = {run.id: run for run in self.cells.values()}
        return [run for run in known.values() if run.algorithm not in self.refused]

    def side_by_side(self, jobs: int) -> SweepPlan:
        """The plan for several runs at a time: each gets its share of the cores, and as many worker
        processes with their threads as fit."""
        cells = {cell: _with_workers(run, jobs) for cell, run in self.cells.items()}
        return replace(self, cells=cells)


def cores_per_run(jobs: int) -> int:
    """The cores for each of several runs that go side by side, at least one.

    Example:
        >>> cores_per_run(10_000)
        1
    """
    return max(1, cores() // jobs)


def _with_workers(run: SweepRun, jobs: int) -> SweepRun:
    engine = run.tables["engine"]
    workers = cores_per_run(jobs * engine["threads"])
    return replace(run, tables={**run.tables, "engine": {**engine, "workers": workers}})


def make_plan(
    path: Path | str,
    algorithms: Sequence[str] = (),
    seeds: Sequence[int] = (),
    grid: Sequence[str] = (),
    overrides: Sequence[str] = (),
    values: Mapping[str, Any] = {},
    option: str = "--grid",
) -> SweepPlan:
    """Plan a sweep. All configurations are validated and all data are read before any run starts.

    The options of ``[algorithm]`` belong to the algorithm that it names. Another algorithm has its
    own defaults, except for options of the same name, range and default. In overrides and grid,
    ``algorithm.x`` applies to all algorithms that have an option ``x``, and ``NAME.x`` to the
    algorithm ``NAME`` alone.

    Args:
        grid: ``key=v1,v2``, each.
        overrides: ``key=value``, each.
        values: key path -> value, set last; ``None`` sets nothing.
        option: where the grid comes from, for messages.
    """
    base = read(path)
    # An algorithm's option must wait until it is known which algorithms have it.
    for_algorithms = []
    for override in overrides:
        if is_algorithm_key(override, algorithms):
            for_algorithms.append(override)
        else:
            put(base, override)
    base_name, base_seed = check_base(base, str(path))
    names = tuple(algorithms) or (base_name,)
    check_algorithms(names)
    for override in for_algorithms:
        check_option("--set", override.partition("=")[0].strip(), names)
    # Seeds and algorithms of the configuration are those of a sweep of one run.
    all_seeds = tuple(seeds) or (base_seed,)
    choices = read_grid(grid, names, option)
    points = tuple(itertools.product(*choices.values()))
    count = len(names) * len(points) * len(all_seeds)
    if count > MAX_RUNS:
        what = "too many runs for a sweep"
        expected = f"at most {MAX_RUNS}"
        raise ConfigError("out-of-range", "compare", what, found=count, allowed=expected)
    # The plan without its runs says which cells there are.
    layout = SweepPlan(names, all_seeds, tuple(choices), points, {})
    tables = _tables_of_cells(layout, base, for_algorithms, values)
    configs = _validate_all(tables, str(path))
    return _with_runs(layout, configs)


def _tables_of_cells(
    layout: SweepPlan, base: Mapping[str, Any], overrides: Sequence[str], values: Mapping[str, Any]
) -> dict[Cell, dict[str, Any]]:
    found = {}
    for name in layout.algorithms:
        for index, point in enumerate(layout.points):
            # The grid comes after the overrides, so it wins where both set the same key.
            assignments = [*overrides, *map("=".join, zip(layout.keys, point, strict=True))]
            for seed in layout.seeds:
                # What the command line sets, such as the engine, wins over everything.
                last = {"seed": seed, **values}
                cell = (name, index, seed)
                found[cell] = tables_for(name, layout.algorithms, base, assignments, last)
    return found


def _validate_all(tables: Mapping[Cell, Mapping[str, Any]], file: str) -> dict[Cell, Experiment]:
    """Every configuration, validated; what is wrong with several of them is reported once."""
    configs = {}
    found: list[Problem] = []
    for cell, one in tables.items():
        try:
            configs[cell] = check(one, file)
        except ConfigError as error:
            found += [_of_algorithm(problem, cell[0]) for problem in error.problems]
    if found:
        raise ConfigError.of(found)
    return configs


def _of_algorithm(problem: Problem, name: str) -> Problem:
    """The problem with the algorithm that has it, unless all of them have it."""
    if "algorithm" in str(problem):
        return replace(problem, of=name)
    return problem


def _with_runs(layout: SweepPlan, configs: Mapping[Cell, Experiment]) -> SweepPlan:
    data = hash_data(configs.values())
    cells = {}
    for cell, config in configs.items():
        name, index, seed = cell
        known = data[data_key(config)]
        config = fit_to_clients(config, known.clients)
        if known.numbers:
            config = assume_task(config)
        resolved = config.resolved()
        # The data count, too: the same path may hold other samples tomorrow.
        whole = config_hash(resolved) + known.digest + availability_digest(config)
        run_id = hashlib.sha256(whole.encode()).hexdigest()[:ID_DIGITS]
        point = tuple(
            (key, value if key_for(name, key, layout.algorithms) else None)
            for key, value in zip(layout.keys, layout.points[index], strict=True)
        )
        cells[cell] = SweepRun(run_id, name, seed, point, resolved)
    return replace(layout, cells=cells, refused=_refused(configs))


def _refused(configs: Mapping[Cell, Experiment]) -> dict[str, str]:
    """The algorithms that cannot have the personal layers of a configuration, keep what optimisers
    remember, or be scored as it says, and why. Such a baseline, `local` for one, does not stop the
    others; its row in the table says why it has no runs."""
    found: dict[str, Problem] = {}
    for (name, _, _), config in configs.items():
        evaluate = config.evaluate
        scored = evaluate.adapt or evaluate.unseen or evaluate.local
        keeps = config.personal is not None or config.local.keep_state
        if name in found or not (keeps or scored):
            continue
        try:
            refuse_conflicts(config, make_method(config))
        except ConfigError as error:
            # What else is wrong with a factory ends its runs, and is said then.
            for problem in error.problems:
                if problem.path.startswith(("personal.layers", "local.keep_state", "evaluate.")):
                    found.setdefault(name, replace(problem, file=""))
    if found and len(found) == len({name for name, _, _ in configs}):
        raise ConfigError.of(found.values())
    return {name: str(problem) for name, problem in found.items()}
