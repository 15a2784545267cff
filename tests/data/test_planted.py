"""Federations with known groups: styles of images, swapped labels, copies, wrong labels, sizes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from coterie.core.keys import Key
from coterie.data.images.pixels import restyle
from coterie.data.loading import populate
from coterie.data.partitions import PARTITIONS, Partition, load_partition
from coterie.data.population import Population
from coterie.data.samples import Samples
from coterie.errors import DataError
from coterie.sweep.data_hash import hash_partition
from tests.data.partition_files import write_partition
from tests.refusals import refuses


def pictures(count: int = 240, side: int = 6) -> Samples:
    """Images of which no two are alike, with labels in turn."""
    x = torch.rand((count, 1, side, side), generator=torch.Generator().manual_seed(0))
    return Samples(x, torch.arange(count) % 6, classes=6, train_rows=count)


def partition(**options: Any) -> Partition:
    return PARTITIONS["planted"](pictures(), Key(0), **{"clients": 8, **options})


def rows_of(parts: Partition, client: int) -> np.ndarray:
    return np.concatenate([parts.train[client], parts.test[client]])


def test_images_are_styled_by_group() -> None:
    styles = ("plain", "rotate 30", "invert", "erode", "dilate")
    parts = partition(groups=5, clients=10, how="images", styles=styles)
    data = populate(pictures(), parts)
    x = pictures().x
    low, high = float(x.min()), float(x.max())
    for client in range(10):
        rows = rows_of(parts, client)
        wanted = restyle(x[rows], styles[client % 5], low, high)
        assert torch.equal(data.x[rows], wanted)
    assert torch.equal(data.y, pictures().y)


def test_styles_by_hand() -> None:
    image = torch.tensor([[[0.0, 0, 0, 0], [0, 1, 1, 0], [0, 1, 1, 0], [0, 0, 0, 0]]])
    assert restyle(image, "dilate", 0, 1).eq(1).all()
    assert restyle(image, "erode", 0, 1).eq(0).all()
    assert torch.equal(restyle(image, "invert", 0, 1), 1 - image)
    # The block is in the middle, so quarter turns leave it where it is.
    assert torch.equal(restyle(image, "rotate -90", 0, 1), image)


@given(degrees=st.sampled_from([-270, -90, 90, 180, 270, 360]))
def test_quarter_turns_move_pixels_and_change_none(degrees: int) -> None:
    x = pictures(3).x
    turned = restyle(x, f"rotate {degrees}", 0.0, 1.0)
    assert torch.equal(turned, torch.rot90(x, degrees // 90, dims=(-2, -1)))


def test_any_angle_turns_against_the_clock_around_the_middle() -> None:
    image = torch.full((1, 1, 9, 9), 0.2)
    image[0, 0, 1, 4] = 1.0  # above the middle
    for degrees, across, down in ((30, -1.5, -2.6), (60, -2.6, -1.5), (120, -2.6, 1.5)):
        turned = restyle(image, f"rotate {degrees}", 0.2, 1.0)[0, 0]
        bright = turned - 0.2
        at = torch.arange(9.0) - 4
        centre = [float((bright.sum(d) * at).sum() / bright.sum()) for d in (0, 1)]
        np.testing.assert_allclose(centre, [across, down], atol=0.15)
        # What comes from outside is as dark as the background.
        assert turned.min() >= 0.2 - 1e-6


def test_angles_replace_quarter_turns() -> None:
    parts = partition(groups=2, how="rotate", angles=(0, 45.5))
    assert parts.styles == ("rotate 0", "rotate 45.5")
    data = populate(pictures(), parts)
    rows = rows_of(parts, 1)
    assert torch.equal(data.x[rows], restyle(pictures().x[rows], "rotate 45.5", *extremes()))


def extremes() -> tuple[float, float]:
    x = pictures().x
    return float(x.min()), float(x.max())


def test_swapped_pairs() -> None:
    parts = partition(groups=3, how="swap", swaps=((), ((1, 2),), ((0, 5), (3, 4))))
    data = populate(pictures(), parts)
    tables = [[0, 1, 2, 3, 4, 5], [0, 2, 1, 3, 4, 5], [5, 1, 2, 4, 3, 0]]
    for client in range(8):
        rows = rows_of(parts, client)
        wanted = np.array(tables[client % 3])[pictures().labels[rows]]
        assert data.labels[rows].tolist() == wanted.tolist()


@pytest.mark.parametrize("how", ["swap", "rotate"])
def test_every_group_has_each_sample_once(how: str) -> None:
    parts = partition(groups=4, how=how, copies=True)
    data = populate(pictures(), parts)
    assert len(data.x) == len(data.y) == 4 * 240
    tested = set()
    for g in range(4):
        held = np.concatenate([rows_of(parts, client) for client in range(g, 8, 4)])
        assert sorted(held % 240) == list(range(240))
        assert set(held // 240) == {g}
        rows = np.concatenate([parts.test[client] for client in range(g, 8, 4)])
        tested.add(tuple(sorted(rows % 240)))
    # What a group is tested on, no other has trained on.
    assert len(tested) == 1
    assert len(next(iter(tested))) == 48
    if how == "rotate":
        row = parts.train[3][0]
        assert torch.equal(data.x[row], torch.rot90(pictures().x[row % 240], 3, dims=(-2, -1)))
    else:
        row = parts.train[0][0]
        others = [row % 240 + 240 * g for g in range(4)]
        assert len(set(data.labels[others].tolist())) == 4


def test_copies_keep_the_split_of_the_source() -> None:
    source = replace(pictures(), train_rows=200)
    options: dict[str, Any] = {"clients": 8, "groups": 2, "how": "rotate", "copies": True}
    parts = PARTITIONS["planted"](source, Key(0), **options, skew=0.5)
    assert sorted(np.concatenate(parts.train) % 240) == sorted([*range(200)] * 2)
    assert sorted(np.concatenate(parts.test) % 240) == sorted([*range(200, 240)] * 2)
    assert all(map(len, parts.train))
    assert all(map(len, parts.test))
    parts = PARTITIONS["planted"](source, Key(0), **options, size=20)
    assert {(len(a), len(b)) for a, b in zip(parts.train, parts.test, strict=True)} == {(16, 4)}


def test_so_many_training_labels_of_each_client_are_wrong() -> None:
    parts = partition(groups=2, how="swap", noise=0.25)
    wrong = populate(pictures(), parts).labels
    right = populate(pictures(), partition(groups=2, how="swap")).labels
    for client in range(8):
        train = parts.train[client]
        assert (wrong[train] != right[train]).sum() == round(0.25 * len(train)) > 0
        test = parts.test[client]
        assert (wrong[test] == right[test]).all()


@pytest.mark.parametrize("how", ["labels", "rotate"])
def test_sizes_inside_a_group_may_be_skewed(how: str) -> None:
    def sizes(**options: Any) -> list[int]:
        parts = partition(groups=2, how=how, **options)
        return [len(rows_of(parts, client)) for client in range(8)]

    assert set(sizes()) == {30}
    skewed = sizes(skew=0.5)
    assert sum(skewed) == 240
    assert min(skewed) >= 2
    assert max(skewed) > 60


@pytest.mark.parametrize(
    ("options", "line"),
    [
        (
            {"angles": (10, 20), "how": "swap"},
            "angles: only works with how = 'rotate', got 'swap'",
        ),
        (
            {"swaps": ((), ()), "how": "labels"},
            "swaps: only works with how = 'swap', got 'labels'",
        ),
        ({"how": "images"}, "styles: missing: specify one for each group, with how = 'images'"),
        ({"how": "images", "styles": ("plain",)}, "styles: wrong shape, got 1"),
        (
            {"how": "images", "styles": ("plain", "blur")},
            "styles: unknown choice, got 'blur'; expected plain, invert, erode, dilate or 'rotate DEGREES'",
        ),
        ({"how": "swap", "swaps": ((), ((1, 1),))}, "swaps: does not fit, got [1, "),
        ({"how": "swap", "swaps": ((), ((1, 6),))}, "swaps: does not fit, got [1, "),
        ({"how": "labels", "copies": True}, "copies: all groups would have the same samples"),
        ({"how": "rotate", "copies": True, "clients": 250}, "clients: too few samples, got 250"),
    ],
)
def test_what_does_not_go_together_is_said_in_one_line(options: Any, line: str) -> None:
    with pytest.raises(DataError) as error:
        partition(groups=2, **options)
    assert str(error.value).startswith(f"data.partition.{line}")
    assert "\n" not in str(error.value)


def test_all_of_it_is_stored(tmp_path: Path) -> None:
    parts = partition(groups=2, how="rotate", angles=(0, 15), copies=True, noise=0.1)
    write_partition(tmp_path / "partition.npz", parts)
    again = load_partition(tmp_path / "partition.npz")
    assert hash_partition(again) == hash_partition(parts)
    one: Population = populate(pictures(), parts)
    other: Population = populate(pictures(), again)
    assert torch.equal(one.x, other.x)
    assert torch.equal(one.y, other.y)
    changed = (
        partition(groups=2, how="rotate", angles=(0, 16), copies=True, noise=0.1),
        partition(groups=2, how="rotate", angles=(0, 15), noise=0.1),
        partition(groups=2, how="rotate", angles=(0, 15), copies=True),
    )
    assert len({hash_partition(p) for p in (parts, *changed)}) == 4


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("styles", np.array(["blur"])),
        ("styles", np.array([1, 2])),
        ("copies", np.array(0)),
        ("turns", np.array([0.5])),
    ],
)
def test_a_damaged_file_is_refused(tmp_path: Path, name: str, value: np.ndarray) -> None:
    file = tmp_path / "partition.npz"
    write_partition(file, partition(groups=2, how="rotate", angles=(0, 15), noise=0.1))
    arrays = dict(np.load(file))
    np.savez(file, **{**arrays, name: value})
    with refuses(DataError, "cannot-be-read", "partition.npz"):
        load_partition(file)


def test_images_that_are_not_square_are_not_turned() -> None:
    wide = Samples(torch.zeros(40, 1, 4, 6), torch.arange(40) % 6, classes=6, train_rows=40)
    parts = PARTITIONS["planted"](wide, Key(0), clients=4, groups=2, how="rotate")
    with refuses(DataError, "does-not-fit", "data.partition.how"):
        populate(wide, parts)


def test_standardised_images_are_turned_by_quarters_alone() -> None:
    samples = pictures()
    scaled = Samples(samples.x - 0.5, samples.y, classes=6, train_rows=240)
    for style in ("rotate 10", "invert", "erode"):
        parts = partition(groups=2, how="images", styles=("plain", style))
        with refuses(DataError, "does-not-fit", "data.partition.styles"):
            populate(scaled, parts)
    populate(scaled, partition(groups=2, how="images", styles=("plain", "rotate 90")))
