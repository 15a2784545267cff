"""Populations of torch datasets: pairs, dictionaries, texts and images."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.utils.data import Dataset, IterableDataset, Subset, TensorDataset

import coterie as ct
from coterie.errors import DataError
from tests.refusals import refuses


def pairs(count: int, start: int = 0) -> TensorDataset:
    numbers = torch.arange(start, start + count)
    return TensorDataset(numbers[:, None].float(), numbers % 3)


class Images(Dataset[Any]):
    """Dictionaries with an image of bytes and a label, as many libraries have them."""

    def __len__(self) -> int:
        return 7

    def __getitem__(self, place: int) -> dict[str, Any]:
        if place >= 7:
            raise IndexError
        return {"image": np.full((3, 4, 4), place, np.uint8), "label": place % 2}


def unit_images(batch: list[Any]) -> tuple[Tensor, Tensor]:
    images = np.stack([sample["image"] for sample in batch])
    return torch.from_numpy(images) / 255, torch.tensor([sample["label"] for sample in batch])


def words(batch: list[str]) -> tuple[Tensor, Tensor]:
    """The letters of texts, and the next letter at each place."""
    letters = torch.tensor([[ord(letter) for letter in text.ljust(6)] for text in batch])
    return letters[:, :-1], letters[:, 1:]


def test_samples_are_those_of_the_datasets_in_order() -> None:
    # More than one batch in the second.
    data = ct.Population.from_datasets(
        {"b": pairs(5), "a": pairs(600, 100)}, {"a": pairs(2, 900), "b": pairs(3, 800)}
    )
    assert data.names == ("b", "a")
    assert data.classes == 3
    assert data.x[data.train[0], 0].tolist() == list(range(5))
    assert data.x[data.train[1], 0].tolist() == list(range(100, 700))
    assert data.x[data.test[0], 0].tolist() == [800, 801, 802]
    assert data.x[data.test[1], 0].tolist() == [900, 901]
    assert torch.equal(data.y, data.x[:, 0].long() % 3)


def test_without_test_sets_each_client_tests_on_a_share_of_its_own() -> None:
    whole = pairs(40)
    sites = [Subset(whole, range(0, 10)), Subset(whole, range(10, 40))]
    data = ct.Population.from_datasets(sites, test_fraction=0.2)
    assert data.sizes("train").tolist() == [8, 24]
    held = [sorted([*train, *test]) for train, test in zip(data.train, data.test, strict=True)]
    assert held == [list(range(10)), list(range(10, 40))]
    again = ct.Population.from_datasets(sites, test_fraction=0.2)
    assert np.array_equal(again.test[1], data.test[1])


def test_dictionaries_and_texts_take_a_collate_function() -> None:
    images = ct.Population.from_datasets([Images(), Images()], collate=unit_images)
    assert images.shape == (3, 4, 4)
    assert images.x[3].unique().tolist() == pytest.approx([3 / 255])
    assert images.y.tolist() == [0, 1, 0, 1, 0, 1, 0] * 2
    texts = ct.Population.from_datasets([["abc", "abd"], ["xyz"]], collate=words)
    assert texts.x.dtype == torch.int64
    assert (texts.shape, texts.classes) == ((5,), 0)
    assert texts.y.shape == (3, 5)


def test_numbers_to_predict_have_no_classes() -> None:
    sites = [[(np.float32([1, 2]), 0.5), (np.float32([3, 4]), 1.5)]] * 2
    data = ct.Population.from_datasets(sites)
    assert data.classes == 0
    assert data.y.tolist() == [0.5, 1.5, 0.5, 1.5]
    assert ct.Population.from_datasets([pairs(4)], classes=9).classes == 9


def test_a_run_on_datasets_equals_one_on_tensors() -> None:
    data = ct.Population.from_datasets([pairs(30), pairs(30, 7)])
    other = ct.Population(data.x, data.y, data.train, data.test, 3)
    call: dict[str, Any] = {"model": "mclr", "rounds": 2, "engine": "serial"}
    models = [ct.run("fedavg", data=one, **call).state.models for one in (data, other)]
    assert torch.equal(*models)


class Stream(IterableDataset[Any]):
    def __iter__(self) -> Any:
        return iter([(1.0, 0)])


def unequal(batch: list[Any]) -> tuple[Tensor, Tensor]:
    longest = max(len(text) for text in batch)
    tokens = torch.tensor([[ord(letter) for letter in text.ljust(longest)] for text in batch])
    return tokens, tokens


@pytest.mark.parametrize(
    ("train", "more", "refusal"),
    [
        (3, {}, ("wrong-type", "train")),
        ([Stream()], {}, ("wrong-type", "train['0']")),
        ([Images()], {}, ("wrong-type", "train['0']")),
        ([[("text", 1)]], {}, ("wrong-type", "train['0']")),
        ([["ab"], ["abc"]], {"collate": unequal}, ("wrong-shape", "train['1']")),
        ([["ab"]], {"collate": len}, ("wrong-type", "train['0']")),
        ([[object()]], {}, ("failed", "train['0']")),
        ([[]], {}, ("missing", "train")),
        ([pairs(3)], {"test": [pairs(1), pairs(1)]}, ("differs", "test")),
        ([pairs(3)], {"test_fraction": 1.0}, ("out-of-range", "test_fraction")),
    ],
    ids=[
        "a number",
        "a stream",
        "dictionaries",
        "text in a pair",
        "texts of several lengths",
        "collate makes a number",
        "objects",
        "no samples",
        "other clients",
        "all for testing",
    ],
)
def test_what_is_no_dataset_is_one_line(
    train: Any, more: dict[str, Any], refusal: tuple[Any, str]
) -> None:
    with refuses(DataError, *refusal):
        ct.Population.from_datasets(train, **more)
