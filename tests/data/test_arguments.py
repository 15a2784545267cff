"""Populations from what users hand over: brought to one kind by rule, or refused in one line."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

import coterie as ct
from coterie.core.keys import Key
from coterie.data import Partition, Samples, make_partition, populate
from coterie.data.lazy import Ranges, lazy_columns, ranges
from coterie.errors import Code, DataError
from tests.refusals import refuses

S = 6
X = torch.arange(12.0).reshape(S, 2)
Y = torch.tensor([0, 1, 0, 1, 1, 0])
TRAIN = ([0, 1], [3, 4])
TEST = ([2], [5])


def population(**changes: Any) -> ct.Population:
    given = {"x": X, "y": Y, "train": TRAIN, "test": TEST, "classes": 2, **changes}
    return ct.Population(**given)


def mask(*rows: int) -> list[bool]:
    return [row in rows for row in range(S)]


# --- what is taken ------------------------------------------------------------------------------------

TAKEN: dict[str, dict[str, Any]] = {
    "NumPy": {"x": X.numpy(), "y": Y.numpy()},
    "lists": {"x": X.tolist(), "y": Y.tolist()},
    "frames": {"x": pd.DataFrame(X.numpy()), "y": pd.Series(Y.numpy())},
    "float64": {"x": X.double()},
    "float64 of NumPy": {"x": X.numpy().astype(np.float64)},
    "float16": {"x": X.half()},
    "bfloat16": {"x": X.bfloat16()},
    "another order of bytes": {"x": X.numpy().astype(">f8"), "y": Y.numpy().astype(">i4")},
    "read only": {"x": np.broadcast_to(X.numpy(), X.shape)},
    "backwards": {"x": X.numpy()[::-1][::-1]},
    "with a gradient": {"x": X.clone().requires_grad_()},
    "int32": {"y": Y.int()},
    "uint8 labels": {"y": Y.to(torch.uint8)},
    "booleans": {"y": Y.bool()},
    "tensors of rows": {"train": [torch.tensor(rows) for rows in TRAIN]},
    "rows of int32": {"train": [np.array(rows, np.int32) for rows in TRAIN]},
    "a matrix of rows": {"train": np.array(TRAIN)},
    "masks": {"train": [mask(0, 1), mask(3, 4)], "test": [mask(2), mask(5)]},
    "masks of NumPy": {"train": np.array([mask(0, 1), mask(3, 4)])},
    "masks of torch": {"train": torch.tensor([mask(0, 1), mask(3, 4)])},
    "ranges": {"train": ranges(np.array([0, 3]), np.array([2, 2]))},
    "classes of NumPy": {"classes": np.int64(2)},
    "names of NumPy": {"names": np.array(["0", "1"])},
}


@pytest.mark.parametrize("case", TAKEN)
def test_other_kinds_of_arrays_are_the_same_population(case: str) -> None:
    made = population(**TAKEN[case])
    expected = population()
    assert (made.x.dtype, made.y.dtype, made.x.requires_grad) == (torch.float32, torch.int64, False)
    assert torch.equal(made.x, expected.x)
    assert torch.equal(made.y, expected.y)
    assert made.names == expected.names
    assert type(made.classes) is int
    for split in ("train", "test"):
        assert [rows.tolist() for rows in made.parts(split)] == [
            rows.tolist() for rows in expected.parts(split)
        ]
        assert all(rows.dtype == np.int64 for rows in made.parts(split))


def test_what_is_of_the_right_kind_is_not_copied() -> None:
    rows = (np.array([0, 1]), np.array([3, 4]))
    made = population(train=rows)
    assert made.x is X
    assert made.y is Y
    assert all(one is other for one, other in zip(made.train, rows, strict=True))
    array = X.numpy()
    assert population(x=array).x.data_ptr() == array.ctypes.data


def test_whole_numbers_are_tokens_and_booleans_numbers() -> None:
    assert population(x=X.int()).x.dtype == torch.int64
    assert population(x=X > 3).x.dtype == torch.float32
    assert population(x=X[:, 0]).shape == (1,)
    numbers = population(y=Y.double() / 3, classes=0)
    assert numbers.y.dtype == torch.float32


def test_masks_train_and_test_on_their_samples() -> None:
    """As rows 0 and 1 they gave an accuracy of samples that were trained on."""
    settings = {"model": "mclr", "rounds": 2, "clients_per_round": 2, "engine": "serial"}
    by_rows = ct.run(ct.fedavg(), data=population(), **settings)
    masks = population(train=[mask(0, 1), mask(3, 4)], test=[mask(2), mask(5)])
    by_masks = ct.run(ct.fedavg(), data=masks, **settings)
    assert torch.equal(by_rows.state.models, by_masks.state.models)


# --- what is refused ----------------------------------------------------------------------------------

NAN = torch.tensor([[0.0, 1.0]] * 5 + [[float("nan"), 1.0]])
REFUSED: dict[str, tuple[dict[str, Any], Code, str]] = {
    # Inputs.
    "no x": ({"x": None}, "wrong-type", "x"),
    "text in x": ({"x": [["a", "b"]] * S}, "wrong-type", "x"),
    "objects in x": ({"x": np.array([[{}]] * S)}, "wrong-type", "x"),
    "lists of x": ({"x": [[1.0]] * 5 + [[1.0, 2.0]]}, "wrong-shape", "x"),
    "bytes": ({"x": X.to(torch.uint8)}, "wrong-type", "x"),
    "bytes of NumPy": ({"x": X.numpy().astype(np.uint8)}, "wrong-type", "x"),
    "complex": ({"x": X.numpy() * 1j}, "wrong-type", "x"),
    "one x": ({"x": 1.5}, "wrong-shape", "x"),
    "sparse": ({"x": X.to_sparse()}, "wrong-type", "x"),
    "on no machine": ({"x": X.to("meta")}, "wrong-type", "x"),
    "NaN": ({"x": NAN}, "not-finite", "x"),
    "NaN of NumPy": ({"x": NAN.double().numpy()}, "not-finite", "x"),
    "infinity": ({"x": X / 0}, "not-finite", "x"),
    "beyond float32": (
        {"x": X.double() * 1e300},
        "out-of-range",
        "x",
    ),
    "squares beyond float32": ({"x": X + 2e19}, "out-of-range", "x"),
    "infinity in half precision": ({"x": X.half() / 0}, "not-finite", "x"),
    "fewer x": ({"x": X[:4]}, "wrong-shape", "y"),
    # Labels.
    "no y": ({"y": None}, "wrong-type", "y"),
    "text in y": ({"y": ["cat", "dog"] * 3}, "wrong-type", "y"),
    "one y": ({"y": 1}, "wrong-shape", "y"),
    "large labels": ({"y": Y + 1}, "out-of-range", "y"),
    "negative labels": ({"y": Y - 1}, "out-of-range", "y"),
    "float labels": ({"y": Y.float()}, "does-not-fit", "y"),
    "NaN in y": ({"y": NAN[:, 0], "classes": 0}, "not-finite", "y"),
    "y beyond float32": (
        {"y": Y.double() * 1e39, "classes": 0},
        "out-of-range",
        "y",
    ),
    "squares of y beyond float32": ({"y": Y + 2e19, "classes": 0}, "out-of-range", "y"),
    "no classes": ({"classes": 0}, "missing", "y"),
    "half a class": ({"classes": 2.5}, "wrong-type", "classes"),
    "true classes": ({"classes": True}, "wrong-type", "classes"),
    "negative classes": ({"classes": -1}, "out-of-range", "classes"),
    # Who holds what.
    "no train": ({"train": None}, "wrong-type", "train"),
    "train by name": ({"train": {"a": [0]}}, "wrong-type", "train"),
    "text for train": ({"train": "01"}, "wrong-type", "train"),
    "not per client": ({"train": [0, 1]}, "wrong-shape", "train"),
    "fractions": ({"train": ([0.5, 1.9], [3])}, "wrong-type", "train"),
    "fractional tensors": ({"test": (torch.tensor([2.7]), [5])}, "wrong-type", "test"),
    "text for rows": ({"train": (["0"], [3])}, "wrong-type", "train"),
    "rows of rows": ({"train": ([[0, 1]], [3])}, "wrong-shape", "train"),
    "uneven rows": ({"train": ([[0], [1, 2]], [3])}, "wrong-shape", "train"),
    "a short mask": (
        {"train": ([True, False], [3])},
        "wrong-shape",
        "train",
    ),
    "a mask of bytes": (
        {"train": [np.array(mask(0, 1)).astype(np.uint8), mask(3, 4)]},
        "wrong-type",
        "train",
    ),
    "a mask of numbers": (
        {"train": [[1, 1, 0, 0, 0, 0], [0, 0, 0, 1, 1, 0]]},
        "wrong-type",
        "train",
    ),
    "a large row": ({"train": ([0, 6], [3])}, "out-of-range", "train"),
    "a negative row": ({"test": ([2], [-1])}, "out-of-range", "test"),
    "ranges beyond": (
        {"train": ranges(np.array([0, 5]), np.array([2, 2]))},
        "out-of-range",
        "train",
    ),
    "nobody trains": ({"train": ([], [])}, "missing", "train"),
    "fewer tests": ({"test": ([2],)}, "wrong-shape", "test"),
    # Names and groups.
    "one name": ({"names": ("a",)}, "wrong-shape", "names"),
    "names twice": ({"names": ("a", "a")}, "in-conflict", "names"),
    "numbers as names": ({"names": (3, 5)}, "wrong-type", "names"),
    "missing names": ({"names": ("a", float("nan"))}, "wrong-type", "names"),
    "a text of names": ({"names": "ab"}, "wrong-type", "names"),
    "fractional groups": ({"planted": [0.5, 1.0]}, "wrong-type", "planted"),
    "negative groups": ({"planted": [0, -1]}, "out-of-range", "planted"),
    "fewer groups": ({"planted": [0]}, "wrong-shape", "planted"),
    "fewer concepts": ({"concept": [0, 1]}, "wrong-shape", "concept"),
    "no copies": ({"copies": 0}, "out-of-range", "copies"),
    "no mapping": ({"naive": [1.0]}, "wrong-type", "naive"),
    "short naive": ({"naive": {"last": [1.0]}}, "wrong-shape", "naive"),
    "no table": ({"table": {}}, "wrong-type", "table"),
}


def changed(**changes: Any) -> ct.Population:
    return replace(population(), **changes)


def populated(**changes: Any) -> ct.Population:
    """By way of a source and a partition of the user's own."""
    of_samples = {"x": X, "y": Y, "classes": 2, "train_rows": S}
    of_parts = {"train": TRAIN, "test": TEST}
    for name, value in changes.items():
        (of_parts if name in ("train", "test", "names", "planted") else of_samples)[name] = value
    return populate(Samples(**of_samples), Partition(**of_parts))


def moved(**changes: Any) -> ct.Population:
    made = population()
    given = {"train": made.train, "test": made.test, **changes}
    return made.with_parts(**given)


IN_BOTH = {"x", "y", "train", "test", "classes", "names", "planted"}
ALL = IN_BOTH | {"concept", "copies", "naive", "table"}
CONSTRUCTORS: dict[Callable[..., ct.Population], set[str]] = {
    population: ALL,
    changed: ALL,
    populated: IN_BOTH,
    moved: {"train", "test", "planted"},
}
PAIRS = [
    (case, constructor)
    for case, (changes, _, _) in REFUSED.items()
    for constructor, known in CONSTRUCTORS.items()
    if set(changes) <= known
]


@pytest.mark.parametrize(("case", "constructor"), PAIRS)
def test_bad_arguments_are_one_line_that_names_them(
    case: str, constructor: Callable[..., ct.Population]
) -> None:
    changes, code, argument = REFUSED[case]
    if constructor is populated:
        # A source and a partition are named otherwise, and are asked in another order.
        with pytest.raises(DataError) as caught:
            constructor(**changes)
        assert re.match(r"(population\.|partition\.|data\.source)", caught.value.problems[0].path)
    else:
        with refuses(DataError, code, f"population.{argument}") as caught:
            constructor(**changes)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("arguments", "refusal"),
    [
        ({"make": 5}, ("wrong-type", "make")),
        ({"offsets": [1, 3]}, ("wrong-type", "offsets")),
        ({"offsets": [0, 3, 2]}, ("wrong-type", "offsets")),
        ({"offsets": [0.0, 1.5]}, ("wrong-type", "offsets")),
        ({"offsets": 3}, ("wrong-type", "offsets")),
    ],
)
def test_bad_arguments_of_lazy_columns_are_one_line(
    arguments: dict[str, Any], refusal: tuple[Code, str]
) -> None:
    def make(client: int) -> Any:
        return np.zeros((2, 3)), np.zeros(2, np.int64)

    with refuses(DataError, *refusal):
        lazy_columns(**{"make": make, "offsets": np.array([0, 2]), "shape": (3,), **arguments})


@pytest.mark.parametrize(
    ("x", "y", "refusal"),
    [
        (np.nan, 0, ("not-finite", "data.source: client 0")),
        (
            1e300,
            0,
            ("out-of-range", "data.source: client 0"),
        ),
        (0.0, 7, ("out-of-range", "data.source: labels of a client")),
    ],
)
def test_a_client_that_is_made_wrong_is_one_line(
    x: float, y: int, refusal: tuple[Code, str]
) -> None:
    columns = lazy_columns(lambda i: (np.full((2, 3), x), np.full(2, y)), np.array([0, 2]), (3,))
    rows = ranges(np.array([0]), np.array([1]))
    made = ct.Population(*columns, rows, ranges(np.array([1]), np.array([1])), 2)

    def use() -> None:
        made.histograms()
        made.x[torch.tensor([0])]

    with refuses(DataError, *refusal):
        use()


def test_a_value_of_numpy_is_shown_as_a_number() -> None:
    with refuses(DataError, "wrong-type", "population.train") as caught:
        population(train=([0.5, 1.9], [3]))
    assert "0.5 of float64" in str(caught.value)


def test_inputs_are_checked_once_however_often_data_move(monkeypatch: pytest.MonkeyPatch) -> None:
    from coterie.data import arguments

    checked = []
    whole = arguments.finite_float32
    monkeypatch.setattr(
        arguments, "finite_float32", lambda *given: (checked.append(1), whole(*given))[1]
    )
    made = population(x=X.clone())
    for _ in range(3):
        made = made.with_parts(made.train[::-1], made.test[::-1])
    assert len(checked) == 1


def test_a_source_of_a_user_may_have_numpy_arrays() -> None:
    samples = Samples(X.double().numpy(), Y.int().numpy(), classes=2, train_rows=S)  # type: ignore[arg-type]
    assert (samples.x.dtype, samples.y.dtype) == (torch.float32, torch.int64)
    parts = make_partition(samples, {"kind": "iid", "clients": 2}, Key(0))
    assert populate(samples, parts).x is samples.x


def test_ranges_are_kept_as_they_are() -> None:
    assert isinstance(population(train=ranges(np.array([0, 3]), np.array([2, 2]))).train, Ranges)


def masked(values: Any) -> Any:
    return np.ma.array(values, mask=[True] + [False] * (len(values) - 1))


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"x": masked(X[:, 0].numpy())}, "missing"),
        ({"y": masked(Y.numpy())}, "missing"),
        ({"train": [masked([0, 1]), [3, 4]]}, "missing"),
        ({"train": [masked(mask(0, 1)), [3, 4]]}, "missing"),
        ({"planted": masked([0, 1])}, "missing"),
        ({"x": np.full((S, 2), 2**64 - 1, np.uint64)}, "out-of-range"),
        ({"y": np.full(S, 2**64 - 1, np.uint64)}, "out-of-range"),
        ({"y": torch.full((S,), 2**63, dtype=torch.uint64)}, "out-of-range"),
        ({"train": [np.array([2**64 - 1], np.uint64), [3, 4]]}, "out-of-range"),
    ],
)
def test_what_would_become_another_number_is_refused(changes: dict[str, Any], code: Code) -> None:
    with refuses(DataError, code, f"population.{next(iter(changes))}") as caught:
        population(**changes)
    assert "\n" not in str(caught.value)


# Torch says that quantized tensors will go.
@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::DeprecationWarning")
def test_a_quantized_tensor_is_refused() -> None:
    quantized = torch.quantize_per_tensor(X, 0.1, 0, torch.qint8)
    with refuses(DataError, "wrong-type", "population.x"):
        population(x=quantized)


def test_arrays_without_a_masked_value_and_small_whole_numbers_are_taken() -> None:
    made = population(x=np.ma.array(X.numpy()), y=Y.numpy().astype(np.uint64))
    assert made.x.equal(X)
    assert made.y.equal(Y)
