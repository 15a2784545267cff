"""Thousands of damaged configurations are accepted, or refused by lines that name a key."""

from __future__ import annotations

import itertools
import random
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from coterie.config import registry
from coterie.config.identity import config_hash
from coterie.errors import ConfigError
from coterie.experiment import Experiment, check, load_config
from tests.config.complete import COMPLETE

VALUES = [
    *(
        True,
        False,
        0,
        1,
        -1,
        2,
        3,
        20,
        10**6,
        2**31,
        2**63,
        2**64,
        10**400,
        16**6000,
        0.0,
        -0.0,
        0.5,
        1.0,
        1e308,
        5e-324,
    ),
    *(
        float("nan"),
        float("inf"),
        "",
        "edc",
        "fedgroup",
        "pool",
        "a\nb",
        "\x1b[2J",
        "ü" * 300,
        "x:y",
        ":",
        "..:a",
        "a.b:c",
    ),
    *(
        [],
        [1],
        [[1]],
        ["a", 1],
        {},
        {"a": 1},
        {"kind": "iid"},
        {"name": "mlp", "hidden": 0},
        {"": {"": 1}},
    ),
]
KEYS = [
    "clients",
    "groups",
    "group",
    "alpha",
    "name",
    "kind",
    "source",
    "seed",
    "lr",
    "",
    "a b",
    "a\nb",
    "ß",
    "__class__",
]


def _paths(tables: Mapping[str, Any], at: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    found = []
    for key, value in tables.items():
        found.append((*at, key))
        if isinstance(value, Mapping):
            found += _paths(value, (*at, key))
    return found


def _mutated(rng: random.Random) -> dict[str, Any]:
    """A valid configuration of random choices, damaged in some places."""
    tables = tomllib.loads(COMPLETE)
    for kind, table, key in (
        ("source", tables["data"], "source"),
        ("partition", tables["data"]["partition"], "kind"),
        ("model", tables["model"], "name"),
        ("algorithm", tables["algorithm"], "name"),
    ):
        if rng.random() < 0.3:
            table[key] = rng.choice(sorted(registry.names(kind)))
    for _ in range(rng.choice([0, 1, 1, 2, 3, 6])):
        *parents, last = rng.choice(_paths(tables) or [("seed",)])
        at: Any = tables
        for part in parents:
            at = at[part]
        action = rng.randrange(4)
        if action == 0:
            del at[last]
        elif action == 1:
            at[last] = rng.choice(VALUES)
        elif action == 2:
            at[rng.choice(KEYS)] = rng.choice(VALUES)
        else:
            at[last[:-1] + rng.choice("xs_")] = at.pop(last)
    return tables


@pytest.mark.parametrize("seed", [2, pytest.param(3, marks=pytest.mark.slow)])
def test_1000_fuzzed_configurations_are_accepted_or_refused_by_lines_with_a_key(seed: int) -> None:
    rng = random.Random(seed)
    accepted = 0
    refusals = 0
    for _ in range(1000):
        tables = _mutated(rng)
        try:
            config = check(tables, "c.toml")
        except ConfigError as error:
            refusals += 1
            _assert_lines(str(error), tables)
        else:
            accepted += 1
            assert isinstance(config, Experiment)
            assert len(config_hash(tomllib.loads(config.toml()))) == 64
    assert min(accepted, refusals) > 100


def _assert_lines(message: str, tables: Mapping[str, Any]) -> None:
    keys = {part for path in _paths(tables) for part in path}
    known = {
        "seed",
        "data",
        "model",
        "local",
        "train",
        "algorithm",
        "engine",
        "quorum",
        "checkpoint",
        "configuration",
    }
    for line in message.splitlines():
        assert line.startswith("c.toml: ")
        assert line.isprintable()
        # What is missing has no value.
        found = ", got " in line or re.search(r" \([^()]+\)(;|:|$)", line)
        assert found or ": missing: specify " in line
        assert "; expected " in line or ": missing: specify " in line
        head = line.removeprefix("c.toml: ").split(": ")[0].split(".")[0]
        assert head in known or head.strip("'") in keys or head.startswith(("'", '"'))


def test_a_thousand_damaged_files_are_accepted_or_refused(tmp_path: Path) -> None:
    rng = random.Random(3)
    file = tmp_path / "c.toml"
    for _ in itertools.repeat(None, 1000):
        data = bytearray(COMPLETE.encode())
        for _ in range(rng.choice([1, 2, 8])):
            data[rng.randrange(len(data))] = rng.randrange(256)
        file.write_bytes(data)
        found = ""
        try:
            load_config(file)
        except ConfigError as error:
            found = str(error)
        assert all(line.startswith(str(file)) for line in found.splitlines())
