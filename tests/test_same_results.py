"""The comparison of two commits: it covers the contract suite, and it finds what differs."""

from __future__ import annotations

import argparse
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from coterie.algorithms import ALGORITHMS
from tests.conftest import blobs, small_net
from tests.contract import cases
from tests.contract.cases import SPECIAL, contract_cases, method_of
from tests.contract.test_algorithms import CASES
from tests.same_results import Allowed, Stored, content, differences, flat, read_case, report
from tests.same_results_cases import (
    CONTRACT,
    MNIST,
    case_names,
    planted_population,
    run_and_store,
    run_case,
    small_network,
    store,
)

ROW: dict[str, Any] = {
    "round": 0,
    "loss": 0.1,
    "sizes": [2, 1],
    "notes": {"seconds": {"grouping": 1.0}, "plan": "cold"},
    "transfers": {"up": {"models": 3}},
    "refused": {},
}


def stored(**changed: Any) -> Stored:
    """The result of a case with three clients in two groups."""
    models = np.array([[0.0, 1.0], [2.0, 3.0]], np.float32)
    return replace(Stored(models, np.array([0, 1, 0]), [ROW, ROW | {"round": 1}]), **changed)


def found(new: Stored) -> list[tuple[int | None, str, str, str]]:
    """The differences between the result above and another one."""
    return [(one.round, one.field, one.base, one.new) for one in differences("c", stored(), new)]


def test_the_cases_are_those_of_the_contract_suite() -> None:
    assert list(CONTRACT) == list(CASES)
    assert {method_of(case) for case in CASES} == set(ALGORITHMS)
    assert {method_of(case) for case in SPECIAL} <= set(ALGORITHMS), "a case has no method"


def test_what_an_earlier_commit_lacks_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    fewer = {name: factory for name, factory in ALGORITHMS.items() if name != "fedgsp"}
    monkeypatch.setattr(cases, "ALGORITHMS", fewer)
    assert {method_of(case) for case in contract_cases()} == set(fewer)


def test_population_and_network_are_those_of_the_suite() -> None:
    ours = planted_population()
    suite = blobs()
    assert torch.equal(ours.x, suite.x)
    assert torch.equal(ours.y, suite.y)
    for split in ("train", "test"):
        parts = zip(getattr(ours, split), getattr(suite, split), strict=True)
        assert all(np.array_equal(a, b) for a, b in parts)
    parameters = zip(small_network().parameters(), small_net().parameters(), strict=True)
    assert all(torch.equal(a, b) for a, b in parameters)


def test_a_selection_names_its_cases() -> None:
    swapping = [f"{name}@swap_all" for name in CONTRACT]
    assert case_names(quick=True, only=[]) == [*CONTRACT, *swapping]
    assert case_names(quick=False, only=["mnist-*"]) == list(MNIST)
    assert case_names(quick=False, only=["ifca"]) == ["ifca"]
    with pytest.raises(SystemExit, match="no such case, got ifka"):
        case_names(quick=False, only=["ifca", "ifka"])


def test_equal_results_and_other_times_are_no_difference() -> None:
    slower = ROW | {"seconds": 9.0, "notes": {"seconds": {"grouping": 2.0}, "plan": "cold"}}
    assert found(stored()) == []
    assert found(stored(rows=[slower, slower | {"round": 1}])) == []


@pytest.mark.parametrize("value", [np.nextafter(np.float32(3), np.float32(4)), np.float32("nan")])
def test_the_last_bit_of_a_model_is_found(value: np.float32) -> None:
    models = stored().models.copy()
    models[1, 1] = value
    ((number, field, base, new),) = found(stored(models=models))
    assert (number, field) == (None, "models")
    assert base == "np.float32(3.0) at [1, 1]"
    assert new == f"{value!r} at [1, 1] (1 of 4 values differ)"


def test_the_sign_of_a_zero_is_found_and_nan_equals_itself() -> None:
    negative = stored().models.copy()
    negative[0, 0] = -0.0
    assert [field for _, field, _, _ in found(stored(models=negative))] == ["models"]
    broken = stored(models=np.full((2, 2), np.nan, np.float32), rows=[{"loss": float("nan")}])
    assert list(differences("c", broken, broken)) == []


def test_a_member_is_found() -> None:
    other = np.array([0, 1, 1])
    expected = ("np.int64(0) at [2]", "np.int64(1) at [2] (1 of 3 values differ)")
    assert found(stored(members=other)) == [(None, "members", *expected)]


@pytest.mark.parametrize(
    ("change", "field", "base", "new"),
    [
        ({"loss": 0.1 + 2**-56}, "loss", "0.1", "0.10000000000000002"),
        ({"round": 1.0}, "round", "1", "1.0"),
        ({"sizes": [2, 2]}, "sizes.1", "1", "2"),
        ({"sizes": [2, 1, 0]}, "sizes.2", "(absent)", "0"),
        ({"extra": None}, "extra", "(absent)", "null"),
        ({"transfers": {"up": {"models": 4}}}, "transfers.up.models", "3", "4"),
        ({"notes": {}}, "notes.plan", '"cold"', "(absent)"),
    ],
)
def test_a_field_of_a_row_is_found(change: Any, field: str, base: str, new: str) -> None:
    changed = [ROW, ROW | {"round": 1} | change]
    assert found(stored(rows=changed))[0] == (1, field, base, new)


def test_missing_rounds_other_shapes_and_failures_are_found() -> None:
    assert found(stored(rows=[ROW])) == [(None, "rounds", "2", "1")]
    wide = stored().models.astype(np.float64)
    assert found(stored(models=wide)) == [(None, "models", "float32 (2, 2)", "float64 (2, 2)")]
    assert found(stored(failure="KeyError: x")) == [(None, "failure", "none", "KeyError: x")]
    failed = stored(failure="KeyError: x")
    assert len(list(differences("c", failed, failed))) == 1, "what runs in no tree is not compared"


def test_an_allowed_difference_is_printed_with_its_reason(
    capsys: pytest.CaptureFixture[str],
) -> None:
    changed = ROW | {"transfers": {"up": {"models": 4}}, "loss": 0.2}
    every = list(differences("ifca-mig", stored(), stored(rows=[changed, ROW | {"round": 1}])))
    allowed = Allowed.parse("ifca*:transfers=a client tells its choice")
    (refused,) = report(every, [allowed])
    assert refused.field == "loss"
    printed = capsys.readouterr().out
    assert "ALLOWED ifca*:transfers, 1 differences: a client tells its choice" in printed
    assert "DIFFERENT ifca-mig, round 0, loss: base 0.1, new 0.2" in printed
    assert report(every, [Allowed.parse("loss=rounding"), allowed]) == []
    assert len(report(every, [Allowed.parse("fedavg:loss=rounding")])) == 2
    assert len(report(every, [Allowed.parse("transfer=no such field")])) == 2


@pytest.mark.parametrize("text", ["loss", "loss=", "loss= "])
def test_a_difference_is_not_allowed_without_a_reason(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="FIELD=REASON"):
        Allowed.parse(text)


@pytest.mark.parametrize("case", ["fedavg", "ifca-yogi-prox", "flexcfl@swap_all"])
def test_a_case_is_stored_and_read_again(case: str, tmp_path: Path) -> None:
    result = run_case(case)
    store(tmp_path / f"{case}.npz", result)
    read = read_case(tmp_path, case)
    assert np.array_equal(read.models, result.state.models.numpy())
    assert np.array_equal(read.members, result.groups)
    assert [row["round"] for row in read.rows] == list(range(len(result.rows)))
    assert "loss" in flat(read.rows[0])
    assert not any("seconds" in field for field in flat(read.rows[0]))


def test_a_case_that_fails_leaves_its_error(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(CONTRACT, "fedavg", lambda: 1 // 0)
    run_and_store("fedavg", tmp_path)
    assert read_case(tmp_path, "fedavg").failure.startswith("ZeroDivisionError")


def test_it_starts_as_a_module() -> None:
    """As a script it would find the folder tests/math in the place of Python's math."""
    command = [sys.executable, "-m", "tests.same_results", "--help"]
    root = Path(__file__).parents[1]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "--keep" in done.stdout


def test_changed_sources_have_another_name(tmp_path: Path) -> None:
    (tmp_path / "src").mkdir()
    file = tmp_path / "src" / "rule.py"
    file.write_text("rate = 1\n")
    before = content(tmp_path)
    file.write_text("rate = 2\n")
    assert content(tmp_path) != before
