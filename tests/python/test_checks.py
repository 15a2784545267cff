"""Arguments of `coterie.run` that are of another type."""

from __future__ import annotations

from typing import Any

import pytest

import coterie as ct
from coterie.experiment.tables import CHOICES, record_types
from tests.conftest import blobs, small_net
from tests.refusals import refuses

PLACES = {
    "data": "data",
    "model": "model",
    "algorithm": "method",
    "shift": "shift",
}


def run(method: Any = None, **options: Any) -> ct.Result:
    given = {"data": blobs(), "model": small_net(), "rounds": 1, "engine": "serial", **options}
    return ct.run(ct.fedavg() if method is None else method, **given)


@pytest.mark.parametrize("name", sorted({*CHOICES, *record_types()}))
@pytest.mark.parametrize("value", [1, 0.5, object()], ids=["integer", "number", "object"])
def test_a_value_of_another_type_is_refused_in_one_line(name: str, value: Any) -> None:
    options = {PLACES.get(name, name): value}
    with pytest.raises(ct.ConfigError, match=f"^{name}: wrong type, got .*; expected .*$"):
        run(**options)


def test_a_mapping_is_the_table_of_a_record() -> None:
    assert run(local={"epochs": 1}, evaluate={"adapt": {"epochs": 2}}).rows
    with refuses(ct.ConfigError, "unknown-key", "local.epoch"):
        run(local={"epoch": 1})


def test_a_factory_is_no_method_before_it_is_called() -> None:
    with refuses(ct.ConfigError, "wrong-type", "algorithm"):
        run(ct.fedavg)


def test_all_wrong_arguments_are_said_at_once() -> None:
    with pytest.raises(ct.ConfigError) as refused:
        run(local=3, privacy=8.0)
    assert {line.split(":")[0] for line in str(refused.value).splitlines()} == {"local", "privacy"}


def test_an_argument_in_the_wrong_place_says_where_it_belongs() -> None:
    with refuses(ct.ConfigError, "unknown-key", "over_selection"):
        run(over_selection=2.0)
