"""Federations with known groups, or known mixtures of them, to see whether a method finds them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import Field

from coterie.core.keys import Key
from coterie.data.images.pixels import STYLES, is_style
from coterie.data.partition import Partition, Transform
from coterie.data.partitions.helpers import (
    Count,
    Fraction,
    shuffle_and_split,
    split_train_test,
    too_large,
    too_many_clients,
)
from coterie.data.partitions.planted_samples import (
    LEAST,
    ClientSizes,
    Pair,
    copied_rows,
    labels_of_columns,
    permutations,
    rows_of_own_classes,
    swapped,
    wrong_labels,
)
from coterie.data.samples import Samples
from coterie.errors import DataError

How = Literal["labels", "swap", "rotate", "images", "columns"]

# The list that says how groups differ, for each ``how`` that has one.
LISTS = {"rotate": "angles", "images": "styles", "swap": "swaps", "columns": "columns"}
# What is done to the samples of a group when the population is made.
TRANSFORMS: Mapping[How, Transform] = {
    "labels": "",
    "swap": "relabel",
    "rotate": "rotate",
    "images": "restyle",
    "columns": "",
}


def planted(
    samples: Samples,
    key: Key,
    /,
    *,
    clients: Count = 60,
    groups: Count = 3,
    how: How = "labels",
    test_fraction: Fraction = 0.2,
    size: Annotated[int, Field(ge=2)] | None = None,
    angles: tuple[Annotated[float, Field(ge=-360, le=360)], ...] = (),
    styles: tuple[str, ...] = (),
    swaps: tuple[tuple[Pair, ...], ...] = (),
    columns: tuple[str, ...] = (),
    copies: bool = False,
    skew: Annotated[float, Field(gt=0)] | None = None,
    noise: Annotated[float, Field(ge=0, lt=1)] = 0.0,
) -> Partition:
    """A federation with known groups: client ``i`` belongs to group ``i mod groups``.

    The true groups are kept as ``planted``; no method sees them.

    Args:
        how: ``labels``: each group has its own classes. ``swap``: each group has its own
            permutation of the labels, and no two groups agree on any. ``rotate``: the images of
            group ``g`` are turned by ``90 g`` degrees. ``images``: by ``styles``. ``columns``: each
            group has the labels of another column of the source.
        test_fraction: share of each client's samples to test on.
        size: largest number of samples of a client, train and test together; ``None``: all samples
            are used.
        angles: with ``rotate``, by how many degrees the images of each group are turned instead.
        styles: with ``images``, how those of each group are changed: ``plain``, ``rotate A``,
            ``invert``, ``erode`` or ``dilate``, see `images.pixels.restyle`.
        swaps: with ``swap``, pairs of labels that are exchanged in each group, in place of
            permutations without an agreement. With ``()`` labels are unchanged.
        columns: with ``columns``, the column with the labels of each group, as numbers of classes.
        copies: whether every group has all samples, each of which goes to one client of every
            group. Otherwise a sample goes to one client. A sample is tested on in every group, or
            in none: those of the source's test split, or without one a random share.
        skew: concentration of the Dirichlet distribution of the sizes of a group's clients; ``None``:
            equal sizes.
        noise: share of each client's training labels that are wrong: any other class, with equal
            probability.
    """
    lists = {"angles": angles, "styles": styles, "swaps": swaps, "columns": columns}
    _check_lists(how, groups, clients, lists)
    if copies and how == "labels":
        raise _conflict("copies", "all groups would have the same samples", "labels")
    if not any(lists.values()):
        check_groups(groups, clients, how, samples.classes)
    if not copies and clients * LEAST > len(samples):
        raise too_many_clients(clients, len(samples) // LEAST)
    # In turn, so that the sizes of the groups differ by one at most.
    group = np.arange(clients) % groups
    sizes = ClientSizes(test_fraction, size, skew)
    if copies:
        parts = copied_rows(samples, key, group, sizes)
        parts = replace(parts, copies=groups)
    elif how == "labels":
        parts = sizes.split(rows_of_own_classes(samples, key, group, sizes), key)
    else:
        rows = sizes.cut(np.arange(len(samples)), key.of("order"), clients)
        parts = sizes.split(rows, key)
    # Labels and images are changed when the population is made; here they are only described.
    parts = replace(parts, planted=group)
    turns = np.zeros(parts.copies * len(samples), np.int64)
    if columns:
        turns += labels_of_columns(samples, parts, columns)
    if noise:
        turns += wrong_labels(parts.train, key.of("noise"), noise, len(turns), samples.classes)
    transform = TRANSFORMS[how]
    if angles:
        # A rotation by any angle is a style; the transform "rotate" knows quarter turns alone.
        transform = "restyle"
        styles = tuple(f"rotate {angle:g}" for angle in angles)
    relabel = None
    if swaps:
        relabel = swapped(swaps, samples.classes)
    elif how == "swap":
        relabel = permutations(key, samples.classes, groups)
    if turns.any():
        parts = replace(parts, turns=turns)
    return replace(parts, transform=transform, relabel=relabel, styles=styles)


def check_groups(groups: int, clients: int, how: How, classes: int) -> None:
    """Refuse more groups than there are clients, or ways to tell groups apart."""
    # A square image has four orientations; permutations without an agreement need a class each.
    distinct = classes
    if how == "rotate":
        distinct = 4
    _check_count(groups, min(clients, distinct), clients, how)


def _check_count(groups: int, limit: int, clients: int, how: How) -> None:
    if groups > limit:
        what = f"too many for {clients} clients and how = {how!r}"
        raise too_large("groups", what, groups, limit)


def _conflict(option: str, what: str, how: How) -> DataError:
    path = f"data.partition.{option}"
    expected = f"another how, or no {option}"
    return DataError("in-conflict", path, what, got=how, allowed=expected)


def _check_lists(how: How, groups: int, clients: int, lists: Mapping[str, Sequence[Any]]) -> None:
    """Refuse lists that do not go with ``how``, or do not have an entry for each group."""
    for name, values in lists.items():
        if values and LISTS.get(how) != name:
            other = next(h for h, option in LISTS.items() if option == name)
            raise _conflict(name, f"only works with how = {other!r}", how)
        if values and len(values) != groups:
            path = f"data.partition.{name}"
            expected = f"one for each of {groups} groups"
            raise DataError("wrong-shape", path, found=len(values), allowed=expected)
    if how in ("images", "columns") and not lists[LISTS[how]]:
        path = f"data.partition.{LISTS[how]}"
        raise DataError("missing", path, allowed=f"one for each group, with how = {how!r}")
    for style in lists["styles"]:
        if not is_style(style):
            expected = f"{', '.join(STYLES)} or 'rotate DEGREES'"
            raise DataError("unknown-choice", "data.partition.styles", got=style, allowed=expected)
    _check_count(groups, clients, clients, how)


def planted_mixture(
    samples: Samples,
    key: Key,
    /,
    *,
    clients: Count = 60,
    groups: Annotated[int, Field(ge=2)] = 2,
    how: Literal["swap", "rotate"] = "swap",
    share: Annotated[float, Field(ge=0.5, lt=1)] = 0.7,
    test_fraction: Fraction = 0.2,
    size: Annotated[int, Field(ge=2)] | None = None,
) -> Partition:
    """Each client holds samples of two concepts, a share ``share`` of them of the first.

    The first concept of client ``i`` is ``i mod groups``, the second one of the others in turn. The
    first one is kept as ``planted``, and that of each sample as ``concept``; no method sees them.

    Args:
        how: ``swap``: each concept has its own permutation of the labels, and no two concepts agree
            on any, so that every sample reveals its concept. ``rotate``: the images of concept
            ``g`` are turned by ``90 g`` degrees.
        share: share of each client's samples that belong to its first concept, in training and in
            test samples, rounded to whole samples.
        test_fraction: share of each client's samples to test on.
        size: largest number of samples of a client, train and test together; ``None``: all samples
            are used.
    """
    check_groups(groups, clients, how, samples.classes)
    if clients * 2 > len(samples):
        raise too_many_clients(clients, len(samples) // 2)
    rows = shuffle_and_split(np.arange(len(samples)), key.of("order"), clients)
    parts = split_train_test([held[:size] for held in rows], key, test_fraction)
    first = np.arange(clients) % groups
    # The pairs of concepts in turn, so that each two concepts meet in some client.
    apart = 1 + np.arange(clients) // groups % (groups - 1)
    second = (first + apart) % groups
    concept = np.zeros(len(samples), np.int64)
    for split in (parts.train, parts.test):
        for client, held in enumerate(split):
            count = round(share * len(held))
            shuffled = key.of("concept").client(client).generator().permutation(held)
            concept[shuffled[:count]] = first[client]
            concept[shuffled[count:]] = second[client]
    relabel = None
    if how == "swap":
        relabel = permutations(key, samples.classes, groups)
    return Partition(parts.train, parts.test, (), first, TRANSFORMS[how], relabel, concept)
