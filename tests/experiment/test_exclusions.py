"""Every declaration of features that do not work together, refused alike by all interfaces."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import coterie as ct
from coterie.algorithms import ALGORITHMS
from coterie.core.traits import Excluded, Feature, conflicts
from coterie.data.sources.files import DataForm
from coterie.errors import ConfigError
from coterie.experiment import check
from coterie.experiment.exclusions import FEATURES
from coterie.experiment.traits import traits_of_run
from coterie.flower.federation_spec import DEPLOYMENT, PRIVATE_DEPLOYMENT, FederationSpec
from coterie.runs.compose import compose
from coterie.runs.fitting import make_method
from tests.refusals import refuses

BASE: dict[str, Any] = {
    "data": {"source": "digits", "partition": {"kind": "iid", "clients": 30}},
    "model": {"name": "mclr"},
    "train": {"rounds": 1},
    "algorithm": {"name": "fedavg"},
    "engine": {"name": "serial"},
}
FILE = {
    "source": "file",
    "path": "rows.csv",
    "features": "*",
    "label": "y",
    "partition": {"kind": "natural"},
}
# A value of each key with which it is set, and does not work where it is excluded.
SET: dict[str, Any] = {
    "asynchronous": {"buffer": 1},
    "attack": {"kind": "sign_flip"},
    "availability": {"kind": "random"},
    "bounds.enabled": True,
    "data.encode.noise": FILE | {"encode": {"noise": 2.0}},
    "data.window": FILE | {"window": {"time": "t", "past": 2}},
    "evaluate.adapt": {},
    "evaluate.local": True,
    "evaluate.training": True,
    "evaluate.unseen": 0.2,
    "evaluate.unseen_labels": False,
    "evaluate.validation": 0.2,
    "local.keep_state": True,
    "local.label_smoothing": 0.1,
    "migration.detector": "per_label",
    "privacy": {"noise": 1.0, "accountant": "rdp"},
    "privacy.accountant": "pld",
    "privacy.least_group": 2.0,
    "quorum.min_replies": 2,
    "reply_times": {"median": 2.0},
    "reply_times.deadline": 2.0,
    "secure": {},
    "shift": {"kind": "swap_all"},
    "train.hold_out": 0.2,
    "train.measures": ["cpd"],
    "train.over_selection": 1.5,
    "train.sampler": "cover_then_uniform",
    "weigh.name": "krum",
}
DEPLOYED = (DEPLOYMENT, PRIVATE_DEPLOYMENT)
KEYS = [
    (feature, one)
    for feature in (*FEATURES, *DEPLOYED)
    for one in feature.excludes
    if one.allowed is not None and not feature.traits
]
TRAITS = [
    (feature, one)
    for feature in (*FEATURES, *DEPLOYED)
    for one in feature.excludes
    if one.trait is not None
]


def name_of(value: Any) -> str | None:
    if isinstance(value, Feature):
        return value.where
    if isinstance(value, Excluded):
        return value.trait or value.path
    return None


def put(tables: dict[str, Any], path: str, value: Any) -> None:
    table, _, key = path.partition(".")
    if table == "data":
        tables["data"] = value
    elif key:
        tables[table] = {**tables.get(table, {}), key: value}
    else:
        tables[table] = {**value, **tables.get(table, {})}


def tables_of(feature: Feature) -> dict[str, Any]:
    """The tables of a run that has a feature of the tables."""
    tables = dict(BASE)
    for path, values in feature.keys.items():
        put(tables, path, values[0] if values else SET[path])
    if "train.measures" in feature.keys:
        put(tables, "train.measures", list(feature.keys["train.measures"]))
    if "local.keep_state" in feature.keys:
        put(tables, "local.momentum", 0.5)
    return tables


def by_configuration(tables: dict[str, Any]) -> None:
    compose(check(tables))


def by_python(tables: dict[str, Any]) -> None:
    ct.run(tables["algorithm"], **{key: tables[key] for key in tables if key != "algorithm"})


def by_deployment(tables: dict[str, Any]) -> None:
    FederationSpec.of(check(tables), DataForm((1, 8, 8), tuple("0123456789")), 30)


def interfaces(feature: Feature) -> list[Callable[[dict[str, Any]], None]]:
    if feature in DEPLOYED:
        return [by_deployment]
    return [by_configuration, by_python, by_deployment]


def places(refused_by: Callable[[dict[str, Any]], None], tables: dict[str, Any]) -> set[Any]:
    """The codes and paths of what an interface refuses."""
    with pytest.raises(ConfigError) as caught:
        refused_by(tables)
    return {(problem.code, problem.path) for problem in caught.value.problems}


@pytest.mark.parametrize(("feature", "one"), KEYS, ids=name_of)
def test_a_key_that_does_not_work_is_refused_everywhere(feature: Feature, one: Excluded) -> None:
    tables = tables_of(feature)
    put(tables, one.path, SET[one.path])
    for refused_by in interfaces(feature):
        with refuses(ConfigError, "in-conflict", one.path):
            refused_by(tables)


@pytest.mark.sampled(12)
@pytest.mark.parametrize(("feature", "one"), TRAITS, ids=name_of)
def test_a_method_that_does_not_work_is_refused_everywhere(feature: Feature, one: Excluded) -> None:
    assert one.trait is not None
    (problem,) = feature.conflicts({}, {one.trait: "it"})
    assert (problem.code, problem.path, problem.got) == ("does-not-fit", one.path, "'it'")
    first = [other.trait for other in feature.excludes]
    for name in ALGORITHMS:
        tables = {**tables_of(feature), "algorithm": {"name": name}}
        experiment = check(tables)
        traits = traits_of_run(experiment, make_method(experiment))
        if not feature.is_on(tables, traits) or one.trait not in traits:
            continue
        # Of several reasons the first is said, so another method has to show this one.
        if any(trait in traits for trait in first[: first.index(one.trait)]):
            continue
        found = [places(refused_by, tables) for refused_by in interfaces(feature)]
        assert one.path in {path for _, path in found[0]}
        # A deployment may refuse more.
        assert all(found[0] <= more for more in found)
        return


@pytest.mark.parametrize("feature", [one for one in FEATURES if one.needs], ids=name_of)
def test_what_a_feature_needs_is_asked_for_everywhere(feature: Feature) -> None:
    path = next(iter(feature.keys))
    for refused_by in interfaces(feature):
        with refuses(ConfigError, "in-conflict", path):
            refused_by(tables_of(feature))


def test_no_pair_is_declared_twice() -> None:
    pairs = [
        frozenset({*feature.keys, *feature.traits, one.path, one.trait} - {None})
        for feature in FEATURES
        for one in feature.excludes
    ]
    twice = {pair for pair in pairs if pairs.count(pair) > 1}
    assert twice == set()


def test_a_run_without_them_is_not_refused() -> None:
    assert conflicts(FEATURES, check(BASE).resolved(), {}) == []
