"""``[migration]``, and the options of version 0.1 that it replaces."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from coterie.config import check, registry, upgrade
from coterie.config.identity import config_hash, differing
from coterie.errors import ConfigError
from coterie.rules import migration
from coterie.runs.configured import can_migrate, make_method
from coterie.runs.run import run_config
from coterie.runs.store import RunFolder
from coterie.sweep.options import tables_for

# Some of them: docs/shifts.md lists all.
MIGRATING = [
    *("fedgroup", "fedgrouprox", "flexcfl", "ifca", "fesem"),
    *("fedclust", "pacfl", "flhc", "cfl", "fedgsp"),
]


@pytest.fixture(autouse=True)
def no_warning_yet() -> Iterator[None]:
    upgrade._warn_once.cache_clear()
    yield
    upgrade._warn_once.cache_clear()


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


def test_old_options_mean_the_same_and_are_reported_once(
    capsys: pytest.CaptureFixture[str],
) -> None:
    old = check(tables("ifca", {"groups": 2, "migration": "counts", "tau": 0.1}))
    new = check(
        tables("ifca", {"groups": 2}, migration={"detector": "counts", "tau": 0.1}),
    )
    assert old.resolved() == new.resolved()
    assert found_in(old) == {"detector": "counts", "tau": 0.1}
    check(tables("fesem", {"migration": "counts"}))
    assert capsys.readouterr().err.splitlines() == [
        "warning: algorithm.migration is deprecated; use [migration] detector",
        "warning: algorithm.tau is deprecated; use [migration] tau",
    ]


def test_tau_alone_keeps_the_detector_of_the_algorithm() -> None:
    config = check(tables("flexcfl", {"tau": 0.5}))
    assert found_in(config) == {"detector": "per_label", "tau": 0.5}


def test_other_taus_are_no_migration(capsys: pytest.CaptureFixture[str]) -> None:
    config = check(tables("fedadam", {"tau": 0.01}))
    assert config.options("algorithm")["tau"] == 0.01
    assert found_in(config) is None
    assert capsys.readouterr().err == ""


def test_the_run_folder_says_the_migration_of_the_algorithm_itself() -> None:
    assert found_in(check(tables("flexcfl"))) == {"detector": "per_label", "tau": 0.2}
    assert found_in(check(tables("ifca"))) is None
    assert (
        check(check(tables("flexcfl")).resolved()).resolved() == check(tables("flexcfl")).resolved()
    )


def test_an_equivalent_configuration_of_version_0_1_is_the_same_run() -> None:
    for name, detector in (("flexcfl", "per_label"), ("flexcfl", "none"), ("ifca", "none")):
        new = check(tables(name, migration={"detector": detector})).resolved()
        old = {**new, "algorithm": {**new["algorithm"], "migration": detector, "tau": 0.2}}
        old.pop("migration")
        assert differing(old, new) == []
        assert config_hash(old) == config_hash(new)
    assert "migration.detector" in differing(
        check(tables("flexcfl")).resolved(),
        check(tables("flexcfl", migration={"detector": "none"})).resolved(),
    )


@pytest.mark.parametrize(
    ("given", "line"),
    [
        (
            tables("ifca", {"migration": "counts"}, migration={"tau": 0.1}),
            "algorithm.migration: given twice, got 'counts'; expected it in [migration] alone",
        ),
        (
            tables("ifca", {"migration": "count"}),
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
    with pytest.raises(ConfigError, match=r"^migration.detector: the algorithm places no clients"):
        make_method(config)


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
    old = tables_for("ifca", names, tables("ifca"), ["algorithm.migration=counts"], {})
    assert found_in(check(old)) == {"detector": "counts", "tau": 0.2}


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


def test_a_run_stores_the_table_and_a_checkpoint_of_the_old_options_is_its_own(
    tmp_path: Path,
) -> None:
    given = tables("ifca", {"groups": 2}, migration={"detector": "counts"})
    run_config(check(given), tmp_path / "run")
    folder = RunFolder.open(tmp_path / "run")
    assert folder.resolved["migration"] == {"detector": "counts", "tau": 0.2}
    old = tables("ifca", {"groups": 2, "migration": "counts"})
    checkpoint = folder.checkpoints.latest(check(old).resolved())
    assert checkpoint is not None
    other = check(tables("ifca", {"groups": 2, "migration": "ordinal"})).resolved()
    with pytest.raises(Exception, match=r"got other values of migration\.detector;"):
        folder.checkpoints.latest(other)
