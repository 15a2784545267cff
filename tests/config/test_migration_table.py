"""``[migration]``: which clients lose their group because their data drifted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from coterie.config import registry
from coterie.config.identity import config_hash, differing
from coterie.errors import CheckpointError, ConfigError
from coterie.experiment import check
from coterie.experiment.traits import refuse_conflicts
from coterie.rules import migration
from coterie.runs.fitting import can_migrate, make_method
from coterie.runs.folder.store import RunFolder
from coterie.runs.run import run_config
from coterie.sweep.options import tables_for
from tests.refusals import refuses

# Some of them: docs/shifts.md lists all.
MIGRATING = [
    *("fedgroup", "fedgrouprox", "flexcfl", "ifca", "fesem"),
    *("fedclust", "pacfl", "flhc", "cfl", "fedgsp"),
]


def tables(name: str, options: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    return {
        "data": {"source": "digits", "partition": {"kind": "iid", "clients": 8}},
        "model": {"name": "mclr"},
        "local": {"epochs": 1},
        "train": {"rounds": 2},
        "engine": {"name": "serial"},
        "algorithm": {"name": name, **(options or {})},
        **more,
    }


def found_in(config: Any) -> Any:
    return config.resolved().get("migration")


def test_the_tau_of_a_server_is_no_migration() -> None:
    config = check(tables("fedadam", {"tau": 0.01}))
    assert config.options("algorithm")["tau"] == 0.01
    assert found_in(config) is None


def test_the_run_folder_says_the_migration_of_the_algorithm_itself() -> None:
    assert found_in(check(tables("flexcfl"))) == {"detector": "per_label", "tau": 0.2}
    assert found_in(check(tables("ifca"))) is None
    assert (
        check(check(tables("flexcfl")).resolved()).resolved() == check(tables("flexcfl")).resolved()
    )


def test_a_run_that_says_none_is_the_run_that_says_nothing() -> None:
    said = check(tables("ifca", migration={"detector": "none"})).resolved()
    unsaid = check(tables("ifca")).resolved()
    assert differing(said, unsaid) == []
    assert config_hash(said) == config_hash(unsaid)
    assert "migration.detector" in differing(
        check(tables("flexcfl")).resolved(),
        check(tables("flexcfl", migration={"detector": "none"})).resolved(),
    )


@pytest.mark.parametrize(
    ("given", "line"),
    [
        (
            tables("ifca", {"migration": "counts"}),
            "algorithm.migration: unknown key, got 'counts'; expected one of name, groups",
        ),
        (
            tables("flexcfl", {"tau": 0.5}),
            "algorithm.tau: unknown key, got 0.5; expected one of name, groups",
        ),
        (
            tables("ifca", migration={"detector": "count"}),
            "migration.detector: unknown choice, got 'count'; expected one of 'none', 'per_label'",
        ),
        (tables("ifca", migration={"tau": -1}), "migration.tau: out of range, got -1"),
        (tables("ifca", migration=3), "migration: wrong type, got 3; expected a table"),
        (
            tables("ifca", migration={"detektor": "none"}),
            "migration.detektor: unknown key, got 'none'; expected one of detector, tau; did you",
        ),
    ],
)
def test_mistakes_are_one_line(given: dict[str, Any], line: str) -> None:
    with pytest.raises(ConfigError) as caught:
        check(given, "c.toml")
    (only,) = str(caught.value).splitlines()
    assert only.startswith(f"c.toml: {line}")


def test_a_method_of_one_group_takes_none() -> None:
    config = check(tables("fedavg", migration={"detector": "counts"}))
    with refuses(ConfigError, "does-not-fit", "migration.detector"):
        refuse_conflicts(config, make_method(config))


def test_every_grouped_method_takes_the_table() -> None:
    config = check(tables("fedgroup", migration={"detector": "ordinal", "tau": 0.3}))
    method = make_method(config)
    assert method.assign.migration == migration.Migration("ordinal", 0.3)
    never = make_method(check(tables("flexcfl", migration={"detector": "none"})))
    assert not hasattr(never.assign, "migration")
    can = [name for name in registry.names("algorithm") if can_migrate(name)]
    assert set(MIGRATING) <= set(can)
    assert not {"fedavg", "fedprox", "ida", "rfedavg", "naive_gsp", "astraea"} & set(can)


def test_a_sweep_leaves_it_out_for_methods_of_one_group() -> None:
    names = ["fedavg", "ifca"]
    base = tables("ifca", migration={"detector": "counts"})
    assert "migration" not in tables_for("fedavg", names, base, ["migration.tau=0.1"], {})
    ours = tables_for("ifca", names, base, ["migration.tau=0.1"], {})
    assert ours["migration"] == {"detector": "counts", "tau": 0.1}


def test_a_sweep_gives_it_to_one_method_alone() -> None:
    names = ["flexcfl", "ifca"]
    base = tables("ifca", {"groups": 2})
    only = ["ifca.migration.detector=counts"]
    assert tables_for("ifca", names, base, only, {})["migration"] == {"detector": "counts"}
    assert "migration" not in tables_for("flexcfl", names, base, only, {})


def test_an_option_of_the_users_own_stays_the_users(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = "import coterie as ct\ndef birds(migration: str = 'south'): return ct.fedavg()\n"
    (tmp_path / "birds_of_passage.py").write_text(source)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    config = check(tables("birds_of_passage:birds", {"migration": "north"}))
    assert config.options("algorithm") == {"migration": "north"}


def test_the_list_names_no_option_that_is_a_table() -> None:
    assert "migration" not in registry.options("algorithm", "flexcfl")
    assert "tau" in registry.options("algorithm", "fedadam")


def test_a_run_stores_the_table_and_its_checkpoint_is_of_its_detector_alone(
    tmp_path: Path,
) -> None:
    given = tables("ifca", {"groups": 2}, migration={"detector": "counts"})
    run_config(check(given), tmp_path / "run")
    folder = RunFolder.open(tmp_path / "run")
    assert folder.resolved["migration"] == {"detector": "counts", "tau": 0.2}
    assert folder.checkpoints.latest(check(given).resolved()) is not None
    other = check(tables("ifca", {"groups": 2}, migration={"detector": "ordinal"})).resolved()
    with pytest.raises(CheckpointError) as caught:
        folder.checkpoints.latest(other)
    (problem,) = caught.value.problems
    assert (problem.code, problem.got) == ("differs", "other values of migration.detector")
