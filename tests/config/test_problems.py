"""What is wrong with a configuration is said in one line each, all of it at once."""

from __future__ import annotations

from typing import Any

import pytest

from coterie.experiment import check
from tests.conftest import config_errors


@pytest.mark.parametrize(
    ("path", "value", "parts"),
    [
        (
            "algorithm.group",
            3,
            ["unknown key, got 3", "one of name, groups", "did you mean 'groups'?"],
        ),
        ("algorithm.lr", 3, ["unknown key", "did you mean 'local.lr'?"]),
        (
            "algorithm.name",
            "fedgruop",
            ["unknown choice, got 'fedgruop'", "'fedavg'", "did you mean 'fedgroup'?"],
        ),
        (
            "algorithm.measure",
            "EDC",
            ["unknown choice", "one of 'edc', 'madc'", "did you mean 'edc'?"],
        ),
        ("algorithm.groups", 0, ["out of range, got 0; expected an integer >= 1"]),
        ("algorithm.groups", 1001, ["more groups than clients, got 1001; expected at most 1000"]),
        (
            "algorithm.alpha",
            500,
            ["alpha * groups = 1500 clients, got 500; expected at most 333: 1000"],
        ),
        (
            "train.clients_per_round",
            1001,
            ["more than the number of clients, got 1001; expected at most 1000"],
        ),
        ("train.rounds", True, ["wrong type, got true; expected an integer >= 1"]),
        ("train.rounds", 3.0, ["wrong type, got 3.0; expected an integer >= 1"]),
        ("train.rounds", 10**30, ["out of range", "<= 2147483647"]),
        ("train.rounds", None, ["wrong type, got nothing"]),
        ("local.lr", float("nan"), ["not finite, got nan; expected a number > 0"]),
        ("local.lr", float("inf"), ["not finite, got inf"]),
        ("local.lr", 0, ["out of range, got 0; expected a number > 0"]),
        ("local.momentum", 1, ["expected a number >= 0 and < 1"]),
        ("local.steps", 4, ["unknown key"]),
        ("engine.workers", 0, ["expected an integer >= 1 and <= 1024"]),
        ("engine.round_timeout", 0, ["expected a number > 0"]),
        (
            "quorum",
            {"min_replies": 21},
            ["more replies than clients in a round, got 21; expected at most 20"],
        ),
        ("seed", -1, ["expected an integer >= 0"]),
        ("data.partition.kind", "powerlaw", ["did you mean 'power_law'?"]),
        ("data.partition", 3, ["wrong type, got 3; expected a table"]),
        ("data.source", ["mnist"], ["unknown choice, got ['mnist']"]),
        ("model", "mclr", ["wrong type, got 'mclr'; expected a table"]),
        ("model.name", "no_such_module:net", ["cannot be used (ModuleNotFoundError"]),
        ("my key\n", 1, ["'my key\\n': unknown key"]),
    ],
)
def test_one_line_says_what_is_wrong(
    tables: dict[str, Any], path: str, value: Any, parts: list[str]
) -> None:
    *parents, last = path.split(".")
    at = tables
    for part in parents:
        at = at[part]
    at[last] = value
    (line,) = config_errors(lambda: check(tables, "c.toml"))
    assert line.startswith("c.toml: " + (path if path.isprintable() else "'my key"))
    for part in parts:
        assert part in line


def test_all_errors_at_once(tables: dict[str, Any]) -> None:
    tables["algorithm"] |= {"groups": 2000, "measure": "x"}
    tables["data"]["partition"]["kinds"] = 1
    tables["local"]["epochs"] = "ten"
    del tables["train"]["rounds"]
    found = config_errors(lambda: check(tables, "c.toml"))
    paths = {line.split(": ")[1] for line in found}
    assert paths == {
        "algorithm.groups",
        "algorithm.measure",
        "data.partition.kinds",
        "local.epochs",
        "train.rounds",
    }


def test_what_is_missing_is_named() -> None:
    paths = {line.split(": ")[1] for line in config_errors(lambda: check({}, "c.toml"))}
    assert paths == {"data", "model", "train", "algorithm"}


def test_a_quorum_is_compared_with_the_cohort_that_few_clients_allow(
    tables: dict[str, Any],
) -> None:
    del tables["train"]["clients_per_round"], tables["algorithm"]["alpha"]
    tables["data"]["partition"]["clients"] = 12
    tables["quorum"] = {"min_replies": 13}
    (line,) = config_errors(lambda: check(tables))
    assert "quorum.min_replies: more replies than clients in a round, got 13" in line
