"""A federation that has begun gets sites, and replaces them."""

from __future__ import annotations

import csv
import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch

pytest.importorskip("flwr", reason="the extra 'flower' is not installed")

from coterie.cli.main import invoke
from coterie.data.partitions import partition_bytes
from coterie.errors import ConfigError
from coterie.export import export_run
from coterie.flower.server.attendance import names_only
from coterie.flower.watch.status import read_status
from coterie.report.load import view_of
from coterie.runs.folder.store import RunFolder
from coterie.terminal import summary_table
from tests.conftest import PATIENCE
from tests.engines.fake_grid import FakeGrid, contexts
from tests.engines.test_flower import (
    FEDERATED,
    SETTINGS,
    Hook,
    Reported,
    deploy,
    every_method,
    groups,
    models,
    registered_names,
)
from tests.engines.test_flower import tables as six_clients
from tests.refusals import refuses

FIVE = {"clients": 5, "min_clients": 4}
SIX = {"clients": 6, "min_clients": 4}


def tables(name: str = "flexcfl", **options: Any) -> dict[str, Any]:
    """Six clients, of whom the sixth is not expected: a round asks five."""
    found = six_clients(name, **{"rounds": 6, **options})
    return found | {"train": {**found["train"], "clients_per_round": 5}}


def grid_of(folder: Path, config: Mapping[str, Any]) -> tuple[FakeGrid, Any]:
    """The first five clients, and the context of the sixth."""
    every = contexts(config, SETTINGS, range(6), folder)
    grid = FakeGrid(every)
    return grid, grid.contexts.pop(105)


def group_rows(folder: Path) -> dict[str, dict[str, str]]:
    with (folder / "run" / "groups.csv").open() as file:
        return {row["client"]: row for row in csv.DictReader(file)}


def test_a_site_joins_a_run_that_has_no_place_for_it(tmp_path: Path) -> None:
    config = tables()
    grid, sixth = grid_of(tmp_path, config)
    joins = Hook(1, lambda: grid.contexts.update({105: sixth}))
    deploy(tmp_path, config, grid, reported=joins, **FIVE)
    assert not joins.refused
    assert joins.lines == ["client 'client-05' joined"]
    # Asked in round 3, and there in the next one, as one for which there was a place.
    (event,) = (row["attendance"] for row in joins.rows if row["attendance"])
    assert event == [{"kind": "joined", "clients": ["client-05"]}]
    rows = group_rows(tmp_path)
    assert list(rows) == [f"client-0{i}" for i in range(6)]
    assert rows["client-05"]["group"] == rows["client-01"]["group"] != rows["client-00"]["group"]
    assert int(rows["client-05"]["since_round"]) >= 2
    run = tmp_path / "run"
    assert list(view_of(run).names) == list(rows)
    assert list(read_status(run).names) == list(rows)
    assert sum(group.clients for group in export_run(run).card.figures.groups) == 6


def test_more_sites_than_expected_begin_a_run(tmp_path: Path) -> None:
    config = tables(rounds=1)
    reported = deploy(
        tmp_path, config, FakeGrid(contexts(config, SETTINGS, range(6), tmp_path)), **FIVE
    )
    assert not reported.lines
    assert registered_names(tmp_path) == [f"client-0{i}" for i in range(6)]
    assert len(reported.rows[-1]["client_scores"]) == 6


def test_a_summary_says_how_many_clients_the_last_round_scored(tmp_path: Path) -> None:
    config = tables(rounds=3)
    grid, _ = grid_of(tmp_path, config)
    leaves = Hook(1, lambda: grid.contexts.pop(104))
    deploy(tmp_path, config, grid, reported=leaves, **FIVE)
    summary = RunFolder.open(tmp_path / "run").results.summary()
    assert summary is not None
    assert summary["clients"] == 5
    assert summary["over_clients"]["scored"] == 4
    assert "4 of 5 clients scored" in summary_table(summary, "run").plain
    complete = {**summary, "clients": 4}
    assert "clients scored" not in summary_table(complete, "run").plain


def test_rounds_before_a_site_joins_are_those_without_it(tmp_path: Path) -> None:
    config = tables()
    grid, sixth = grid_of(tmp_path, config)
    joins = Hook(1, lambda: grid.contexts.update({105: sixth}))
    deploy(tmp_path, config, grid, reported=joins, **FIVE)
    alone = deploy(tmp_path / "b", config, grid_of(tmp_path / "b", config)[0], **FIVE)
    together = deploy(tmp_path / "c", config, grid_of(tmp_path / "c", config)[0], **SIX)
    before = [row["accuracy"] for row in alone.rows]
    assert [row["accuracy"] for row in joins.rows][:2] == before[:2]
    # A place that nobody takes changes nothing, and is in no figure of a report.
    assert [row["accuracy"] for row in together.rows] == before
    assert len(view_of(tmp_path / "c" / "run").names) == 5


@pytest.mark.sampled(1)
@pytest.mark.parametrize("clients", [5, 6, 9])
def test_a_killed_run_goes_on_with_the_site_that_joined(clients: int, tmp_path: Path) -> None:
    """To the same bits as one that was not killed, whatever `clients` is by then."""
    config = tables()

    class Killed(Hook):
        def __call__(self, what: str, value: Any) -> None:
            super().__call__(what, value)
            if what == "round" and value["round"] == 3:
                raise KeyboardInterrupt

    def run(folder: Path, kind: type[Hook]) -> None:
        grid, sixth = grid_of(folder, config)
        came = kind(1, lambda: grid.contexts.update({105: sixth}))
        deploy(folder, config, grid, reported=came, **FIVE)

    run(tmp_path / "a", Hook)
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path / "b", Killed)
    every = FakeGrid(contexts(config, SETTINGS, range(6), tmp_path / "b"))
    deploy(tmp_path / "b", config, every, resume=True, clients=clients, min_clients=4)
    assert torch.equal(models(tmp_path / "a" / "run"), models(tmp_path / "b" / "run"))
    assert group_rows(tmp_path / "a") == group_rows(tmp_path / "b")


def test_a_run_that_was_stopped_goes_on_with_more_sites(tmp_path: Path) -> None:
    """The checkpoint has places for those alone that were there."""
    config = tables()
    grid, sixth = grid_of(tmp_path, config)
    stops = Hook(2, lambda: grid.contexts.clear())
    before = dict(grid.contexts)
    with pytest.raises(Exception, match="too few clients"):
        deploy(tmp_path, config, grid, reported=stops, longest_wait=0.2, **FIVE)
    assert len(RunFolder(tmp_path / "run").checkpoints.saved().groups.member) == 5
    grid.contexts |= {**before, 105: sixth}
    resumed = deploy(tmp_path, config, grid, resume=True)
    assert [row["round"] for row in resumed.rows] == [3, 4, 5]
    assert int(group_rows(tmp_path)["client-05"]["group"]) >= 0


def test_a_run_that_is_over_gets_more_rounds_and_a_site(tmp_path: Path) -> None:
    """The rounds are those of a run that had as many from the beginning."""
    grid, sixth = grid_of(tmp_path / "a", tables(rounds=2))
    deploy(tmp_path / "a", tables(rounds=2), grid, **FIVE)
    done = deploy(tmp_path / "a", tables(rounds=4), grid, resume=True, **FIVE)
    assert [row["round"] for row in done.rows] == [2, 3]
    deploy(tmp_path / "b", tables(rounds=4), grid_of(tmp_path / "b", tables())[0], **FIVE)
    assert torch.equal(models(tmp_path / "a" / "run"), models(tmp_path / "b" / "run"))
    grid.contexts[105] = sixth
    deploy(tmp_path / "a", tables(rounds=7), grid, resume=True, **FIVE)
    assert int(group_rows(tmp_path / "a")["client-05"]["group"]) >= 0
    with refuses(ConfigError, "out-of-range", "--set train.rounds"):
        deploy(tmp_path / "a", tables(rounds=6), grid, resume=True, **FIVE)


def test_a_site_takes_the_place_of_another(tmp_path: Path) -> None:
    config = tables()
    grid, sixth = grid_of(tmp_path, config)

    def replace_one() -> None:
        del grid.contexts[104]
        grid.contexts[105] = sixth

    reported = Hook(1, replace_one)
    deploy(tmp_path, config, grid, reported=reported, **FIVE)
    assert not reported.refused
    rows = group_rows(tmp_path)
    # Who left keeps its number, and the group that it had.
    assert list(rows) == registered_names(tmp_path) == [f"client-0{i}" for i in range(6)]
    assert rows["client-05"]["group"] == rows["client-01"]["group"]
    assert len(reported.rows[-1]["client_scores"]) == 5


@pytest.mark.parametrize(
    ("config", "why"),
    [
        (tables("fedgwc"), "stores per-client values that cannot be extended"),
        (
            tables("fedavg")
            | {"privacy": {"noise": 0.1, "clip": 1.0, "randomness": "seed_not_private"}},
            "the noise of [privacy] was chosen",
        ),
    ],
)
def test_where_no_site_can_join_it_is_refused_and_the_run_goes_on(
    config: dict[str, Any], why: str, tmp_path: Path
) -> None:
    grid, sixth = grid_of(tmp_path, config)
    joins = Hook(1, lambda: grid.contexts.update({105: sixth}))
    deploy(tmp_path, config, grid, reported=joins, **FIVE)
    assert joins.refused == {"mismatch": 1}
    (line,) = [line for line in joins.lines if line.startswith("refused")]
    assert line.startswith(
        "refused: client 'client-05': too many clients, got 6; expected at most 5"
    )
    assert why in line
    assert len(joins.rows) == 6
    assert list(group_rows(tmp_path)) == [f"client-0{i}" for i in range(5)]


def test_a_private_run_goes_on_with_the_number_of_clients_of_its_noise(tmp_path: Path) -> None:
    privacy = {"noise": 0.1, "clip": 1.0, "randomness": "seed_not_private"}
    config = tables("fedavg", rounds=2) | {"privacy": privacy}
    deploy(tmp_path, config, grid_of(tmp_path, config)[0], **FIVE)
    with refuses(ConfigError, "differs", "clients"):
        deploy(tmp_path, config, grid_of(tmp_path, config)[0], resume=True)


def test_a_folder_is_read_in_which_a_site_has_its_number_and_no_place_yet(tmp_path: Path) -> None:
    """As a kill between the two leaves it."""
    config = tables()
    deploy(tmp_path, config, grid_of(tmp_path, config)[0], **FIVE)
    run = RunFolder(tmp_path / "run")
    names = json.loads((run.path / "nodes.json").read_text())
    names["clients"].append("client-05")
    run.write(
        {
            "nodes.json": json.dumps(names).encode(),
            "partition.npz": partition_bytes(names_only(names["clients"], 6)),
        }
    )
    assert len(view_of(run.path).names) == 6
    placed = groups(tmp_path / "run")
    figures = export_run(run.path).card.figures.groups
    assert [one.clients for one in figures] == [placed.count(0), placed.count(1), 1]


# --- as if there had been a place from the beginning ----------------------------------------------

# Some that keep different things of their clients; the others are slow to try.
KEEPING = ("ifca", "flexcfl", "cfl", "rfedavg", "fedgsp", "naive_gsp", "ida", "ditto", "fedper")
CANNOT = ("fedgwc", "scaffold")


def four_clients(folder: Path, name: str, **settings: Any) -> Reported:
    """A run of a method, in which the fourth client comes after two rounds."""
    config = every_method(name) | {"train": {"rounds": 5, "clients_per_round": 3}}
    grid = FakeGrid(contexts(config, SETTINGS, range(4), folder))
    fourth = grid.contexts.pop(103)
    comes = Hook(1, lambda: grid.contexts.update({103: fourth}))
    return deploy(folder, config, grid, reported=comes, min_clients=3, **settings)


@pytest.mark.parametrize(
    "name",
    [
        name if name in KEEPING else pytest.param(name, marks=pytest.mark.slow)
        for name in FEDERATED
        if name not in CANNOT
    ],
)
def test_it_is_as_if_there_had_been_a_place(name: str, tmp_path: Path) -> None:
    grown = four_clients(tmp_path / "a", name, clients=3)
    spare = four_clients(tmp_path / "b", name, clients=4)
    assert not grown.refused
    assert torch.equal(models(tmp_path / "a" / "run"), models(tmp_path / "b" / "run"))
    assert groups(tmp_path / "a" / "run") == groups(tmp_path / "b" / "run")
    # Where all are of one group, a place has it before its client comes, who is scored at once.
    for before, after in zip(grown.rows, spare.rows, strict=True):
        assert before["round"] == 2 or before["accuracy"] == after["accuracy"]


def test_what_a_site_that_joined_keeps_can_be_forgotten(tmp_path: Path) -> None:
    four_clients(tmp_path, "fedper", clients=3)
    cache = tmp_path / "cache"
    assert len(list(cache.glob("**/kept.safetensors"))) == 4
    assert invoke(["node", "forget", "client-03", "--cache", str(cache)]) == 0
    assert len(list(cache.glob("**/kept.safetensors"))) == 3


# --- who is waited for ----------------------------------------------------------------------------


def test_the_first_round_waits_for_all_and_later_ones_for_enough(tmp_path: Path) -> None:
    """One site that is lost stops nobody."""
    config = tables(rounds=3)
    grid, _ = grid_of(tmp_path, config)
    late = grid.contexts.pop(104)

    class Coming(Hook):
        def __call__(self, what: str, value: Any) -> None:
            super().__call__(what, value)
            if what == "waiting":
                self.lines.append(value)
                grid.contexts[104] = late

    reported = Coming(0, lambda: grid.contexts.pop(102))
    began = time.monotonic()
    waits = {"clients": 5, "start_clients": 5, "min_clients": 3, "longest_wait": PATIENCE}
    deploy(tmp_path, config, grid, reported=reported, **waits)
    assert time.monotonic() - began < PATIENCE
    (line,) = [line for line in reported.lines if line.startswith("waiting for")]
    assert line.startswith("waiting for 1 client to connect")
    assert registered_names(tmp_path) == [f"client-0{i}" for i in range(5)]
    assert [len(row["client_scores"]) for row in reported.rows] == [5, 4, 4]
    assert reported.rows[1]["attendance"] == [{"kind": "left", "clients": ["client-02"]}]


def test_a_run_begins_without_a_site_that_never_comes(tmp_path: Path) -> None:
    config = tables(rounds=2)
    grid, _ = grid_of(tmp_path, config)
    waits = {"clients": 6, "start_clients": 6, "min_clients": 3, "longest_wait": 0.2}
    reported = deploy(tmp_path, config, grid, **waits)
    assert [len(row["client_scores"]) for row in reported.rows] == [5, 5]


def test_a_resumed_run_waits_for_those_who_took_part_last(tmp_path: Path) -> None:
    config = tables(rounds=4)
    waits = {"clients": 5, "start_clients": 5, "min_clients": 3, "longest_wait": PATIENCE}

    class Killed(Hook):
        def __call__(self, what: str, value: Any) -> None:
            super().__call__(what, value)
            if what == "round" and value["round"] == 1:
                raise KeyboardInterrupt

    grid, _ = grid_of(tmp_path, config)
    lost = Killed(0, lambda: grid.contexts.pop(104))
    with pytest.raises(KeyboardInterrupt):
        deploy(tmp_path, config, grid, reported=lost, **waits)
    # Four were there, of whom one connects a little later.
    late = grid.contexts.pop(101)

    class Coming(Reported):
        def __call__(self, what: str, value: Any) -> None:
            super().__call__(what, value)
            if what == "waiting":
                self.lines.append(value)
                grid.contexts[101] = late

    began = time.monotonic()
    resumed = deploy(tmp_path, config, grid, resume=True, reported=Coming(), **waits)
    assert time.monotonic() - began < PATIENCE
    (line,) = [line for line in resumed.lines if line.startswith("waiting for")]
    assert line.startswith("waiting for 1 client to connect")
    assert [row["attendance"] for row in resumed.rows] == [[], []]
