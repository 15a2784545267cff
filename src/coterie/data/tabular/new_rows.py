"""New rows of a table as inputs of a network, by the record of a run.

Written by `coterie export` next to the folder `rows`; needs NumPy and pandas, and no Coterie. `coterie
predict` reads new rows with the same functions.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from coterie.data.rows.arrays import LARGEST_INPUT, float32_inputs, plain_inputs
from coterie.data.rows.errors import DataError, column_error
from coterie.data.rows.kinds import ARRAY, AS_TEXT, NUMBER, TIME
from coterie.data.rows.reading import read_rows
from coterie.data.rows.table import FILE_NAME, FRAME, SECONDS_A_DAY, Rows, missing_values
from coterie.data.rows.texts import SHOWN, known_spelling, near_equal, words_are_missing

NO_VALUE = "(missing)"  # the category of a missing value
NEW_CLIENT = "new"  # the client of rows that name none, unless a client has this name
_IMAGE_FILES = "(large_)?(binary|struct)|bytes|dict"  # types of columns of these
# Two steps of a series differ by less than this share, where clocks are exact.
STEP_TOLERANCE = 0.01
Record = Mapping[str, Any]


@dataclass(frozen=True, eq=False)
class NewRows:
    """Inputs, and what the file says of them.

    Args:
        x: float32 ``[n, ...]``, the inputs.
        row: int64 ``[n]``, the row of each in the file, from 0; of a series the last one.
        client: ``[n]``, the name of the client of each.
        label: ``[n]``, the labels as text, ``""`` where there is none.
        target: what the task learns, ``[n]`` or ``[n, t]``; has no meaning without a label.
        lines: what a user should know, a line each.
        unnamed: the name of the client of rows that name none; no client has it.
        times: of a series what each prediction is for, as text or numbers.
    """

    x: Any
    row: Any
    client: Any
    label: Any
    target: Any
    lines: Sequence[str]
    unnamed: str = NEW_CLIENT
    times: Sequence[Any] = ()

    @property
    def labelled(self) -> Any:
        """Which have a label, bool ``[n]``."""
        return self.label != ""


def read_new_rows(
    data: Any,
    record: Record,
    images: Callable[[Rows, str], Any] | None = None,
    known: Collection[str] = (),
) -> NewRows:
    """The rows of a file, a frame, or of dictionaries, which may lack labels, clients and columns.

    Args:
        record: the run's record: `kinds` of columns, `rules` of the encoder or the `features`, the
            `client`, the `labels`, the `classes`, the `window`, the `shape` of an input, and the words
            for `missing` values.
        images: reads a column of images, where that can be done.
        known: the clients of the run.
    """
    kinds = record["kinds"]
    texts = [name for name, kind in kinds.items() if kind in AS_TEXT]
    missing = record.get("missing", ())
    # The names of categories, classes and clients that training rows had.
    rules = record["rules"] or ()
    found = {one["name"]: [*one["common"], *one["rare"]] for one in rules if "common" in one}
    found |= dict.fromkeys(record["labels"], record["classes"] or ())
    rows = read_rows(data, texts, known=found | {record["client"]: known}, missing=missing)
    if not len(rows):
        raise DataError("missing", rows.where, "no rows")
    clients, unnamed = _clients(rows, record["client"], known)
    lines = [*rows.lines, *_not_used(rows, record)]
    lines += near_equal(set(clients), record["client"], known)
    if record["rules"] is None:
        x = _plain_inputs(rows, record, images)
    else:
        lines += _absence(rows, record)
        x = encoded(record["rules"], _columns(rows, record, lines), len(rows))
    lines += rows.lines_on_commas([name for name, kind in kinds.items() if kind == NUMBER])
    if record["window"] is not None:
        return replace(_newest_windows(rows, x, clients, record, lines), unnamed=unnamed)
    label, target = _labels(rows, record)
    return NewRows(x, np.arange(len(rows)), clients, label, target, lines, unnamed)


def _clients(rows: Rows, name: str, known: Collection[str]) -> tuple[Any, str]:
    """The client of each row, with one new client for all rows that name none, and its name."""
    taken = {*known, *(rows.factor(name)[1] if name in rows.names else ())}
    unnamed = NEW_CLIENT
    while unnamed in taken:
        unnamed = f"({unnamed})"
    if name in rows.names:
        return rows.texts(name, unnamed), unnamed
    client = unnamed
    if name == FILE_NAME and rows.where != FRAME:
        client = _client_of_file(Path(rows.where), known)
    return np.full(len(rows), client, dtype=object), unnamed


def names_of_file(file: Path) -> list[str]:
    """The names that a file may have as a client, the shortest first: ``data``, ``data.csv``,
    ``site/data``, ``site/data.csv``, and so on."""
    *folders, name = file.absolute().parts
    stem = file.stem
    tails = ["/".join(folders[at:]) for at in range(len(folders) - 1, 0, -1)]
    longer = [f"{tail}/{end}" for tail in tails for end in (stem, name)]
    return [stem, name, *longer]


def _client_of_file(file: Path, known: Collection[str]) -> str:
    """The client of the run whose file it is, or a new one that has the name of the file."""
    names = names_of_file(file)
    found = [name for name in names if name in known]
    if found:
        return found[-1]
    # Where folders tell the run's files of this name apart, they do so for a new one.
    depths = [one.count("/") for one in known if file.stem in (Path(one).name, Path(one).stem)]
    return names[min(2 * max(depths, default=0), len(names) - 2)]


def _plain_inputs(rows: Rows, record: Record, images: Callable[[Rows, str], Any] | None) -> Any:
    """Inputs of numbers, lists or images, as they are."""
    features = record["features"]
    names = [features] if isinstance(features, str) else features
    for name in names:
        rows.column(name, "features")
    x = None
    if images and isinstance(features, str) and rows.kind(features) == ARRAY:
        x = images(rows, features)
    elif isinstance(features, str) and re.match(_IMAGE_FILES, rows.type_of(features)):
        expected = "`coterie predict`, or load.py with pixels"
        raise column_error("cannot-be-read", rows.where, features, "image files", expected)
    if x is None:
        x = plain_inputs(rows, features, record["kinds"])
    elif x.shape[1] == 1 and len(record["shape"]) == len(x.shape) - 1:
        # A grey image among coloured ones is grey in each colour.
        x = np.broadcast_to(x, (len(x), record["shape"][0], *x.shape[2:]))
    return float32_inputs(_in_shape(x, rows, record), rows.where, features)


def _in_shape(x: Any, rows: Rows, record: Record) -> Any:
    """Inputs in the shape of the run's; others are refused, also where they have as many values."""
    shape = tuple(record["shape"])
    given = x.shape[1:]
    # Flat ones say their order: it is that of data.shape.
    as_said = len(given) == 1 or (record.get("reshaped") and len(shape) == 1)
    alike = [size for size in given if size > 1] == [size for size in shape if size > 1]
    if math.prod(given) == math.prod(shape) and (as_said or alike):
        return x.reshape(len(x), *shape)
    names = record["features"]
    name = names if isinstance(names, str) else ", ".join(names)
    got = f"inputs of shape {list(given)}"
    raise column_error("wrong-shape", rows.where, name, got, f"{list(shape)}, as in training")


def _absence(rows: Rows, record: Record) -> list[str]:
    """A line about columns that the file does not have; they are missing in each row."""
    names = [rule["name"] for rule in record["rules"]]
    absent = [name for name in names if name not in rows.names]
    if len(absent) == len(names):
        what = "the file has none of the run's input columns"
        got = f"only {', '.join(rows.names)}"
        raise DataError("not-found", rows.where, what, found=got, allowed=", ".join(names))
    if not absent:
        return []
    words = f"no column {absent[0]}, so it is missing in every row"
    if len(absent) > 1:
        words = f"no columns {', '.join(absent)}, so they are missing in every row"
    return [f"{rows.name}: {words}"]


def _not_used(rows: Rows, record: Record) -> list[str]:
    """A line about columns that the run does not use: one of them may be misspelt."""
    features = record["features"] or ()
    used = {features} if isinstance(features, str) else set(features)
    names = [name for name in rows.names if name not in used and name not in record["kinds"]]
    if not names:
        return []
    shown = ", ".join(names[:SHOWN])
    if len(names) > SHOWN:
        shown += f" and {len(names) - SHOWN} more"
    return [f"{rows.name}: columns that the run does not use: {shown}"]


def _columns(rows: Rows, record: Record, lines: list[str]) -> dict[str, Any]:
    """The columns of the rules, as `encoded` takes them."""
    found: dict[str, Any] = {}
    for rule in record["rules"]:
        name = rule["name"]
        category = "common" in rule
        if name not in rows.names:
            nothing = np.full(len(rows), np.nan)
            found[name] = (np.full(len(rows), -1), ()) if category else nothing
        elif category:
            found[name] = rows.factor(name)
            lines += _new_categories(rows, rule, *found[name])
        else:
            found[name] = rows.values(name, rule["kind"])
    return found


def _new_categories(
    rows: Rows, rule: Mapping[str, Any], codes: Any, names: Sequence[str]
) -> list[str]:
    """A line where a column has categories that the record does not name: another spelling of the
    same would be taken for something unknown, without a word."""
    known = {*rule["common"], *rule["rare"]} - {NO_VALUE}
    new = [at for at, name in enumerate(names) if name not in known]
    if not new:
        return []
    shown = ", ".join(names[at] for at in new[:SHOWN])
    return [
        f"{rows.name}: column {rule['name']}: {int(np.isin(codes, new).sum())} of {len(codes)} "
        f"values are not known, got {shown}; known: "
        f"{', '.join(sorted(known)[:SHOWN])}"
    ]


def inputs(data: Any) -> Any:
    """The inputs of the rows of a file, a frame, or of dictionaries, a float32 tensor ``[n, ...]``;
    by the file ``columns.json`` next to this one."""
    import torch

    record = json.loads(Path(__file__).with_name("columns.json").read_text(encoding="utf-8"))
    return torch.from_numpy(read_new_rows(data, {**record, "window": None}).x)


# --- features of a table ---------------------------------------------------------------------------


def encoded(
    rules: Sequence[Mapping[str, Any]], columns: Mapping[str, Any], rows: int
) -> np.ndarray[Any, np.dtype[np.float32]]:
    """The features of each row, float32 ``[R, q]``, by the rules of an encoder's record.

    Args:
        columns: name -> float64 values, NaN where one is missing; of a column of categories the
            places of their names, -1 where one is missing, and the names.
    """
    made = []
    for rule in rules:
        if "common" in rule:
            made += _one_hot(rule, *columns[rule["name"]])
            continue
        values = columns[rule["name"]]
        missing = np.isnan(values)
        filled = np.where(missing, rule["fill"], values)
        scaled = (filled - rule["center"]) / rule["scale"]
        far = np.abs(scaled) > LARGEST_INPUT
        if far.any():
            row = int(far.argmax())
            got = f"{filled[row]:g} in row {row}"
            expected = f"numbers closer to {rule['center']:g}, as in the training rows"
            raise column_error("out-of-range", "data", rule["name"], got, expected)
        made.append(scaled)
        if rule["flag"]:
            made.append(missing)
    x = np.empty((rows, len(made)), np.float32)
    for place, feature in enumerate(made):
        x[:, place] = feature
    return x


def _one_hot(rule: Mapping[str, Any], codes: Any, names: Sequence[str]) -> list[Any]:
    """1 for the category of a value, or for all that are rare or unknown; 0 for the others."""
    known = [*names, NO_VALUE]
    place = {name: at for at, name in enumerate(known)}
    codes = np.where(codes < 0, len(names), codes)
    found = [codes == place.get(name, -1) for name in rule["common"]]
    if rule["rare"]:
        common = [place[name] for name in rule["common"] if name in place]
        found.append(~np.isin(codes, common))
    return found


# --- labels ---------------------------------------------------------------------------------------


def _labels(rows: Rows, record: Record) -> tuple[Any, Any]:
    """The label of each row as text, and what the task learns."""
    labels = record["labels"]
    if any(name not in rows.names for name in labels):
        return np.full(len(rows), "", dtype=object), np.zeros(len(rows))
    if record["classes"] is None:
        numbers = np.stack([rows.numbers(name, LARGEST_INPUT) for name in labels], axis=1)
        lacking = np.isnan(numbers).any(axis=1)
        texts = [" ".join(f"{one:g}" for one in row) for row in numbers]
        return np.where(lacking, "", np.array(texts, dtype=object)), numbers
    return _classes(rows, labels[0], record["classes"])


def _classes(rows: Rows, label: str, classes: Sequence[str]) -> tuple[Any, Any]:
    if words_are_missing(classes):
        rows = rows.with_number_texts(label)
    codes, found = rows.factor(label)
    names = [known_spelling(name, classes) for name in found]
    unknown = [name for name in names if name not in classes]
    if unknown:
        expected = f"one of {', '.join(classes)}, or none"
        raise rows.refused("unknown-choice", label, f"the label {unknown[0]!r}", expected)
    places = np.array([*(classes.index(name) for name in names), 0])
    return np.array([*names, ""], dtype=object)[codes], places[codes]


# --- series ---------------------------------------------------------------------------------------


def _newest_windows(rows: Rows, x: Any, clients: Any, record: Record, lines: list[str]) -> NewRows:
    """The inputs of each series that end in its newest row, and every stride before it."""
    window = record["window"]
    rows.column(window["time"], "window.time")
    moments = rows.values(window["time"], record["kinds"][window["time"]])
    if np.isnan(moments).any():
        raise missing_values(rows, window["time"], np.isnan(moments).sum())
    _, owner = np.unique(clients, return_inverse=True)
    order = np.lexsort((moments, owner))
    counts = np.bincount(owner)
    past = window["past"]
    # Backwards from the newest row, which is the one that a forecast is wanted for.
    found = []
    begin = 0
    for count in counts.tolist():
        newest = np.arange(begin + count - past, begin - 1, -window["stride"])
        found.append(newest[::-1])
        begin += count
    starts = np.concatenate(found).astype(np.int64)
    if not len(starts):
        what = f"no series is long enough (at most {counts.max()} rows)"
        expected = f"at least {past} (data.window.past)"
        raise DataError("out-of-range", rows.where, what, allowed=expected)
    places = starts[:, None] + np.arange(past)
    lines += _gaps(rows, moments[order][places], clients[order][starts], record)
    row = order[starts + past - 1]
    # What is forecast lies after the last row of each input, so no label is known.
    nothing = np.full(len(row), "", dtype=object)
    target = np.zeros(len(row))
    times = _times(rows, row, record)
    return NewRows(x[order][places], row, clients[row], nothing, target, lines, times=times)


def _times(rows: Rows, last: Any, record: Record) -> list[Any]:
    """The time that is forecast from each of some last rows, in a column of dates as text."""
    window = record["window"]
    ahead = window["horizon"] * record["step"]
    if record["kinds"][window["time"]] != TIME:
        found = rows.numbers(window["time"])[last] + ahead
        return [int(one) if one.is_integer() else one for one in found.tolist()]
    moments = rows.moments(window["time"])[last].astype("datetime64[ms]")
    # A step in days is not exact: of an hour it is 0.041666...
    moments += np.timedelta64(round(ahead * 1000 * SECONDS_A_DAY), "ms")
    texts = [one.replace("T", " ").removesuffix(".000") for one in moments.astype(str).tolist()]
    days = [one.removesuffix(" 00:00:00") for one in texts]
    return texts if any(" " in one for one in days) else days


def _gaps(rows: Rows, moments: Any, clients: Any, record: Record) -> list[str]:
    """A line where rows of an input do not follow each other as those of training did."""
    step = record["step"]
    if not step or moments.shape[1] < 2:
        return []
    broken = (np.abs(np.diff(moments, axis=1) - step) > STEP_TOLERANCE * step).any(axis=1)
    if not broken.any():
        return []
    names = ", ".join(dict.fromkeys(clients[broken].tolist()))
    return [
        f"{rows.name}: {int(broken.sum())} of {len(broken)} inputs of client {names} have a gap "
        "in time, or a different time step from that in training: their predictions may be "
        "meaningless"
    ]
