"""In what groups of clients differ, on federations whose groups are known."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from coterie.core.keys import Key
from coterie.data import Population
from coterie.data.from_python import load
from coterie.studies.advise.answer import kinds_of
from coterie.studies.advise.differences import (
    GroupDifferences,
    describe_differences,
    differences,
)


def planted(clients: int = 40, groups: int = 3, **options: Any) -> Population:
    partition = {"kind": "planted", "clients": clients, "groups": groups, **options}
    return load("digits", partition=partition)


def found(population: Population) -> GroupDifferences:
    assert population.planted is not None
    return differences(population, population.planted, Key(0))


def drawn(clients: int, groups: int, size: int, **data: Any) -> Population:
    """Clients that hold rows of some arrays in turn, in groups that take turns."""
    rows = np.arange(clients * size).reshape(clients, size)
    member = np.arange(clients) % groups
    empty = tuple(rows[:, :0])
    return Population(train=tuple(rows), test=empty, planted=member, **data)


@pytest.mark.parametrize(
    ("how", "kind", "words"),
    [
        ("labels", "classes", "different classes"),
        ("rotate", "inputs", "different inputs"),
        ("swap", "labels", "different labels"),
    ],
)
def test_it_says_in_what_groups_differ(how: str, kind: str, words: str) -> None:
    differing = found(planted(how=how))
    assert kinds_of(3, differing) == (kind,)
    assert words in describe_differences(differing)


def test_permuted_labels_of_unequal_classes_are_no_other_label_mixes() -> None:
    # All clients see the same inputs. One group calls the frequent class 3, which the others do not.
    clients, size = 200, 30
    rng = np.random.default_rng(0)
    y = rng.choice(4, clients * size, p=[0.4, 0.3, 0.2, 0.1])
    x = rng.normal(size=(len(y), 8)) + 1.5 * np.eye(4, 8)[y]
    member = np.repeat(np.arange(clients) % 2, size)
    y = np.where(member == 1, 3 - y, y)
    one = drawn(clients, 2, size, x=torch.from_numpy(x), y=torch.from_numpy(y), classes=4)
    differing = found(one)
    assert differing.labels is not None
    assert differing.labels.found
    assert kinds_of(2, differing) == ("labels",)


def test_a_certain_difference_that_is_tiny_is_none() -> None:
    clients, size = 500, 200
    rng = np.random.default_rng(0)
    member = np.repeat(np.arange(clients) % 2, size)
    # The shares of the two classes differ by a point, and nothing else.
    y = rng.random(len(member)) < 0.5 + 0.01 * member
    one = drawn(
        clients,
        2,
        size,
        x=torch.from_numpy(rng.normal(size=(len(y), 4))),
        y=torch.from_numpy(y.astype(np.int64)),
        classes=2,
    )
    differing = found(one)
    assert differing.labels is not None
    assert differing.labels.p <= 0.01
    assert differing.labels.found is False
    assert kinds_of(2, differing) == ()
    assert "No difference" in describe_differences(differing)


def test_groups_of_a_regression_with_other_slopes_label_inputs_differently() -> None:
    clients, size = 60, 50
    rng = np.random.default_rng(0)
    x = rng.normal(size=(clients * size, 10))
    member = np.repeat(np.arange(clients) % 2, size)
    y = (x * rng.normal(size=(2, 10))[member]).sum(axis=1)
    one = drawn(clients, 2, size, x=torch.from_numpy(x), y=torch.from_numpy(y))
    assert kinds_of(2, found(one)) == ("labels",)


@pytest.mark.parametrize("clients", [4, 8])
def test_few_clients_leave_the_kind_of_differences_open(clients: int) -> None:
    differing = found(planted(clients, 2, how="rotate"))
    kinds = kinds_of(2, differing)
    assert len(kinds) != 1
    assert not kinds or "inputs" in kinds
    text = describe_differences(differing)
    assert "too few" in text or "not clear" in text


def test_two_differences_at_once_leave_the_kind_open() -> None:
    # Turned images, and in addition more small digits in one of the groups.
    one = planted(60, 2, how="rotate")
    assert one.planted is not None
    y = one.y.numpy()
    train = tuple(
        rows[(y[rows] < 5) | (group == 0)]
        for rows, group in zip(one.train, one.planted, strict=True)
    )
    kinds = kinds_of(2, found(replace(one, train=train)))
    assert set(kinds) == {"inputs", "labels"}


def test_one_group_has_no_differences() -> None:
    one = planted(12, 1)
    assert found(one) == GroupDifferences()
    assert describe_differences(found(one)) == ""
