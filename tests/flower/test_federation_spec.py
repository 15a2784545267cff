"""What every machine of a federation makes of a configuration, and what it refuses."""

from __future__ import annotations

import tomllib
from typing import Any

import pytest

from coterie.algorithms.fedgroup import ByDirection
from coterie.core.keep import Keep
from coterie.core.work import Train
from coterie.data.sources.files import DataForm
from coterie.errors import Code, ConfigError
from coterie.experiment import check
from coterie.flower.federation_spec import FederationSpec
from tests.flower.conftest import CONFIG
from tests.refusals import refuses

LABELS = tuple("0123456789")


class OwnStep:
    def init(self, initial_models: Any, clients: int) -> Any:
        raise NotImplementedError

    def step(self, state: Any, round: Any) -> Any:
        raise NotImplementedError


@pytest.mark.parametrize(
    ("factory", "refusal"),
    [
        ("OwnStep", ("does-not-fit", "algorithm.name")),
    ],
)
def test_what_nodes_cannot_do_is_refused_before_any_is_asked(
    factory: str, refusal: tuple[Code, str]
) -> None:
    tables = tomllib.loads(CONFIG)
    tables["algorithm"]["name"] = f"{__name__}:{factory}"
    with refuses(ConfigError, *refusal) as caught:
        FederationSpec.of(check(tables), DataForm((1, 8, 8), LABELS), 3)
    assert len(str(caught.value).splitlines()) == 1


def test_pooled_training_is_no_federation() -> None:
    tables = tomllib.loads(CONFIG)
    tables["algorithm"] = {"name": "pooled"}
    with refuses(ConfigError, "does-not-fit", "algorithm.name"):
        FederationSpec.of(check(tables), DataForm((1, 8, 8), LABELS), 3)


@pytest.mark.parametrize(
    ("changed", "kept"),
    [
        ({}, None),
        ({"personal": {"layers": ["1.bias"]}}, Keep(((640, 650),))),
        ({"algorithm": {"name": "local"}}, Keep(((0, 650),))),
        ({"own_model": {"name": "ditto"}}, Keep(((0, 650),))),
        ({"own_model": {"name": "apfl"}}, Keep(((0, 651),))),
        ({"own_model": {"name": "perfedavg"}}, None),
    ],
)
def test_what_a_client_keeps_follows_from_the_configuration(
    changed: dict[str, Any], kept: Keep | None
) -> None:
    tables = tomllib.loads(CONFIG) | changed
    assert FederationSpec.of(check(tables), DataForm((1, 8, 8), LABELS), 3).kept == kept


def test_networks_of_nodes_are_not_remembered() -> None:
    tables = tomllib.loads(CONFIG)
    tables["evaluate"] = {"local": True}
    with pytest.raises(ConfigError) as caught:
        FederationSpec.of(check(tables), DataForm((1, 8, 8), LABELS), 3)
    (problem,) = caught.value.problems
    assert (problem.path, problem.got) == ("evaluate.local", "true")


def test_a_federation_is_made_of_its_configuration() -> None:
    spec = FederationSpec.of(check(tomllib.loads(CONFIG)), DataForm((1, 8, 8), LABELS), 3)
    assert (spec.classes, spec.migration, spec.local) == (10, None, Train())


@pytest.mark.parametrize(("clients", "asked"), [(10, 3), (90, 20)])
def test_the_cold_start_is_that_of_a_simulation_of_as_many_clients(
    clients: int, asked: int
) -> None:
    tables = tomllib.loads(CONFIG) | {"algorithm": {"name": "fedgroup", "groups": 3}}
    del tables["data"]["partition"]["clients"]
    spec = FederationSpec.of(check(tables), DataForm((1, 8, 8), LABELS), clients)
    assert isinstance(spec.method.assign, ByDirection)
    assert spec.method.assign.cold_start.alpha == asked
