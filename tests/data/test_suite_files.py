"""Federations of several files, each in a form of its own: other separators, decimal signs, line ends,
encodings, orders and types of columns. Together they are one table.

What is right is computed here, without any reader.
"""

from __future__ import annotations

import csv
import datetime as dt
import io
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from coterie.data.sources.files import DataForm
from tests.data.all_readers import (
    ALL_CASES,
    Case,
    Read,
    differing,
    differing_new_rows,
    load,
    node,
    node_of_table,
    record_of,
    refuse_any,
    training,
)
from tests.data.test_suite_frames import FEATURES, ROWS, TABLE, TYPES, right_values

FEDERATIONS = {False: 9, True: 60}  # by whether all cases are asked for
OPTIONS: dict[str, Any] = {"features": FEATURES, "encode": {"rare": 1}}
WORDS = ("", "NA", "null", "NaN")  # missing in every column
WORDS_OF_NUMBERS = ("-", "n/a", "None", ".", "<NA>", "NaT")
SEPARATORS = (",", ";", "\t", "|")


def field(value: Any, missing: str, comma: bool, rng: np.random.Generator) -> str:
    """A value as the field of a CSV file, in one of the ways in which programs write it."""
    if value is None:
        return missing
    if isinstance(value, bool):
        return str(rng.choice([str(value), str(value).lower(), str(value).upper()]))
    if isinstance(value, int | float):
        ways = [repr(value), f"{value:+}"] + [f"{value:.9f}"] * isinstance(value, float)
        text = str(rng.choice(ways))
        return text.replace(".", ",") if comma else text
    if isinstance(value, dt.datetime):
        ends = ["", "Z", "+00:00"]
        return value.isoformat(str(rng.choice(["T", " "]))) + str(rng.choice(ends))
    return str(value)


def csv_file(rows: pd.DataFrame, path: Path, rng: np.random.Generator) -> None:
    separator = str(rng.choice(SEPARATORS))
    comma = separator != "," and bool(rng.random() < 0.5)
    text = io.StringIO(newline="")
    quoting = csv.QUOTE_ALL if rng.random() < 0.3 else csv.QUOTE_MINIMAL
    end = str(rng.choice(["\n", "\r\n", "\r"]))
    writer = csv.writer(text, delimiter=separator, quoting=quoting, lineterminator=end)
    writer.writerow(rows.columns)
    columns = []
    for name in rows.columns:
        words = WORDS if name in ("town", "site", "y") else WORDS + WORDS_OF_NUMBERS
        word = str(rng.choice(words))
        columns.append([field(value, word, comma, rng) for value in rows[name]])
    writer.writerows(zip(*columns, strict=True))
    path.write_bytes(text.getvalue().encode(str(rng.choice(["utf-8", "utf-8-sig", "utf-16"]))))


def parquet_file(rows: pd.DataFrame, path: Path, rng: np.random.Generator) -> None:
    made = {}
    for name in rows.columns:
        kinds = list(TYPES[name])
        # pandas writes no parquet of views.
        kind = str(rng.choice([one for one in kinds if one != "views"]))
        made[name] = TYPES[name][kind](list(rows[name]))
    frame = pd.DataFrame(made)
    if rng.random() < 0.3:
        frame.index = frame.index + 3
    frame.to_parquet(path)


def federation(folder: Path, rng: np.random.Generator) -> tuple[list[Path], list[slice]]:
    """The table in two to four files, and the rows of each."""
    folder.mkdir()
    count = int(rng.integers(2, 5))
    cuts = np.sort(rng.choice(np.arange(5, ROWS - 4), count - 1, replace=False)).tolist()
    parts = [slice(*pair) for pair in zip([0, *cuts], [*cuts, ROWS], strict=True)]
    table = pd.DataFrame({name: pd.Series(values, dtype=object) for name, values in TABLE.items()})
    table = table.astype(object).where(table.notna(), None)
    paths = []
    for at, part in enumerate(parts):
        rows = table.iloc[part]
        rows = rows[[str(name) for name in rng.permutation(list(rows.columns))]]
        write = [csv_file, parquet_file][int(rng.integers(2))]
        suffix = "parquet" if write is parquet_file else str(rng.choice(["csv", "CSV"]))
        paths.append(folder / f"part {at}.{suffix}")
        write(rows, paths[-1], rng)
    return paths, parts


@pytest.mark.sampled(1)
@ALL_CASES
@pytest.mark.parametrize("client", ["site", "(file)"])
def test_files_that_differ_in_everything_are_one_table(
    client: str, all_cases: bool, tmp_path: Path
) -> None:
    rng = np.random.default_rng(len(client))
    whole = Read(right_values(), TABLE["site"], TABLE["y"])
    cases = []
    parts = []
    for at in range(FEDERATIONS[all_cases]):
        paths, rows = federation(tmp_path / str(at), rng)
        right = whole
        if client == "(file)":
            owners = [
                path.stem for path, part in zip(paths, rows, strict=True) for _ in range(ROWS)[part]
            ]
            right = replace(whole, clients=owners)
        source = paths if at % 2 else [tmp_path / str(at)]
        cases.append(Case(f"federation {at}: {[one.name for one in paths]}", source, right, {}))
        parts += list(zip(paths, rows, strict=True))
    made = load(cases[0].source, client=client, **OPTIONS)
    record = record_of(made, FEATURES)
    inputs = made.x.numpy()

    def train(case: Case) -> Read:
        found = load(case.source, client=client, **OPTIONS)
        return training(found)

    new = []
    for path, part in parts:
        clients = TABLE["site"][part] if client == "site" else [path.stem] * len(TABLE["y"][part])
        right = Read(inputs[part], clients, TABLE["y"][part])
        new.append(Case(f"{path.parent.name}/{path.name}", path, right, record))
    refuse_any(
        [
            *differing(cases, train, "train"),
            *differing_new_rows(new, True, tmp_path),
        ]
    )


@pytest.mark.parametrize("role", ["label", "client", "category"])
def test_yes_and_no_of_several_programs_are_one(role: str, tmp_path: Path) -> None:
    """Parquet has no spelling of its own, Python writes True, R writes TRUE and JSON true."""
    signs = [at // 2 % 2 == 0 for at in range(ROWS)]
    other = ["a", "b"] * (ROWS // 2)
    frame = pd.DataFrame({"sign": signs, "other": other, "v": range(ROWS)})
    paths = [tmp_path / "0.parquet"]
    frame.to_parquet(paths[0])
    for at, change in enumerate([str, str.upper, str.lower], 1):
        paths.append(tmp_path / f"{at}.csv")
        frame.assign(sign=[change(str(one)) for one in signs]).to_csv(paths[-1], index=False)
    texts = [str(one) for one in signs]
    options: dict[str, Any] = {"features": ["v"], "label": "other", "client": "other"}
    options |= {role: "sign"} if role != "category" else {"features": ["sign", "v"]}
    if role == "category":
        made = load(paths, columns={"sign": "category"}, encode={"rare": 1}, **options)
        assert made.table is not None
        assert made.table.raw.columns[0].categories == ("False", "True")
        return
    for order in (paths, paths[::-1]):
        found = training(load(order, **options))
        assert list(found.labels if role == "label" else found.clients or ()) == texts * 4


@pytest.mark.parametrize("change", [str, str.upper, str.lower])
def test_yes_and_no_of_several_programs_are_one_class_at_a_node(
    change: Any, tmp_path: Path
) -> None:
    texts = [str(at // 2 % 2 == 0) for at in range(ROWS)]
    path = tmp_path / "rows.csv"
    pd.DataFrame({"v": range(ROWS), "y": [change(one) for one in texts]}).to_csv(path, index=False)
    form = DataForm((), ("False", "True"), columns={"v": "number"})
    assert list(node(path, form.classes, ["v"]).labels) == texts
    assert list(node_of_table(path, form).labels) == texts
