"""A column in every form, as labels, as clients and as categories: the same to every reader, whichever
form it was learned from.

What is right is computed here, without any reader.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from coterie.data.samples import Targets
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
    prediction,
    record_of,
    refuse_any,
    training,
)
from tests.data.column_forms import (
    CASES,
    MISSING_WORDS,
    ROWS,
    SITES,
    VALUES,
    Labels,
    Values,
    sources,
)

INPUTS = np.array(VALUES, np.float32)[:, None]
# Values with gaps pass through more types than complete ones.
WITH_GAPS = pytest.mark.parametrize(
    "some_missing",
    [True, pytest.param(False, marks=pytest.mark.slow)],
    ids=["missing", "complete"],
)
SOME_MISSING = pytest.mark.parametrize("some_missing", [False, True], ids=["complete", "missing"])


def values_of(labels: Labels, some_missing: bool) -> Values:
    values = [labels.values[at % len(labels.values)] for at in range(ROWS)]
    return [None if some_missing and at % 9 == 4 else one for at, one in enumerate(values)]


@pytest.mark.sampled(8)
@ALL_CASES
@SOME_MISSING
@pytest.mark.parametrize("name", CASES)
def test_labels(name: str, some_missing: bool, all_cases: bool, tmp_path: Path) -> None:
    labels = CASES[name]
    values = values_of(labels, some_missing)
    numbers = labels.right is float
    classes = () if numbers else tuple(map(labels.right, sorted({*labels.values})))
    kept = [at for at, one in enumerate(values) if one is not None]
    of_kept = [labels.right(values[at]) for at in kept]
    to_train = Read(INPUTS[kept], [SITES[at] for at in kept], of_kept)
    no_label = np.nan if numbers else ""
    new = Read(INPUTS, SITES, [no_label if one is None else labels.right(one) for one in values])
    found = list(sources(labels, values, tmp_path))
    differences = []
    for targets in labels.targets:

        def train(case: Case, targets: Targets = targets) -> Read:
            made = load(case.source, features=["v"], targets=targets)
            assert made.origin is not None
            assert made.origin.label_names == classes
            return training(made)

        cases = [Case(*one, to_train, {}) for one in found]
        differences += differing(cases, train, targets, all_cases)
    record = record_of(load(found[0][1], features=["v"], targets=labels.targets[-1]), ["v"])
    cases = [Case(*one, new, record) for one in found]
    files = [Case(*one, to_train, {}) for one in found if isinstance(one[1], Path)]
    refuse_any(
        [
            *differences,
            *differing_new_rows(cases, all_cases, tmp_path),
            *differing(files, lambda one: node(one.source, classes, ["v"]), "node", all_cases),
        ]
    )


# Of text, spaces and the words for missing numbers are a part, and a message says so.
OF_NUMBERS = ("spaces", *MISSING_WORDS[1:])
NAMES = [name for name, labels in CASES.items() if labels.right is not float]


@pytest.mark.sampled(4)
@ALL_CASES
@WITH_GAPS
@pytest.mark.parametrize("name", NAMES)
def test_clients(name: str, some_missing: bool, all_cases: bool, tmp_path: Path) -> None:
    labels = CASES[name]
    values = values_of(labels, some_missing)
    kept = [at for at, one in enumerate(values) if one is not None]
    clients = ["new" if one is None else labels.right(one) for one in values]
    to_train = Read(INPUTS[kept], [clients[at] for at in kept], [SITES[at] for at in kept])
    found = list(sources(labels, values, tmp_path, OF_NUMBERS))
    options: dict[str, Any] = {"features": ["v"], "label": "site", "client": "y"}
    differences = differing(
        [Case(*one, to_train, {}) for one in found],
        lambda one: training(load(one.source, **options)),
        "train",
        all_cases,
    )
    record = record_of(load(found[0][1], **options), ["v"])
    cases = [Case(*one, Read(INPUTS, clients, SITES), record) for one in found]
    refuse_any(differences + differing_new_rows(cases, all_cases, tmp_path))


@pytest.mark.sampled(4)
@ALL_CASES
@WITH_GAPS
@pytest.mark.parametrize("name", NAMES)
def test_categories(name: str, some_missing: bool, all_cases: bool, tmp_path: Path) -> None:
    labels = CASES[name]
    values = values_of(labels, some_missing)
    texts = [None if one is None else labels.right(one) for one in values]
    names = sorted({text for text in texts if text is not None})
    places = [np.nan if text is None else names.index(text) for text in texts]
    to_train = Read(np.array(places)[:, None], None, SITES)
    found = list(sources(labels, values, tmp_path, OF_NUMBERS))
    options: dict[str, Any] = {
        "features": ["y"],
        "label": "site",
        "columns": {"y": "category"},
        "encode": {"rare": 1},
        "client": "client",
        "partition": {"kind": "iid", "clients": 2, "test_fraction": 0.1},
    }
    differences = differing(
        [Case(*one, to_train, {}) for one in found],
        lambda one: replace(training(load(one.source, **options)), clients=None),
        "train",
        all_cases,
    )
    record = record_of(load(found[0][1], **options), ["y"])
    shown = sorted({text or "(missing)" for text in texts})
    inputs = np.array([[(text or "(missing)") == one for one in shown] for text in texts])
    right = Read(inputs.astype(np.float32), ["new"] * ROWS, SITES)
    cases = [Case(*one, right, record) for one in found]
    refuse_any(differences + differing_new_rows(cases, all_cases, tmp_path))


def test_words_for_missing_values_that_are_names_stay_names(tmp_path: Path) -> None:
    """Namibia is NA in a parquet file; where a run learned this, it is so in a CSV file as well."""
    towns = ["NA", "null", "Bern", "?"] * (ROWS // 4)
    clients = ["nan", "N/A"] * (ROWS // 2)
    labels = [["NA", "yes"][at // 2 % 2] for at in range(ROWS)]
    frame = pd.DataFrame({"site": clients, "town": towns, "y": labels, "v": VALUES})
    made = load(frame, features=["town", "v"], encode={"rare": 1})
    assert made.table is not None
    names = sorted({*towns})
    right = Read(np.array([[names.index(one) for one in towns], VALUES]).T, clients, labels)
    refuse_any(list(training(made).differences(right)))
    record = record_of(made, ["town", "v"])
    path = tmp_path / "rows.csv"
    frame.assign(v=[None, *VALUES[1:]]).to_csv(path, index=False, na_rep="NA")
    values = right.values.copy()
    values[0, 1] = np.nan
    form = DataForm((), ("NA", "yes"), columns={"town": names, "v": "number"})
    refuse_any(list(node_of_table(path, form).differences(replace(right, values=values))))
    inputs = made.x.numpy().copy()
    number = made.table.encoder.features.index("v")
    inputs[0, number] = 0  # a missing value is the mean
    right = replace(right, values=inputs)
    refuse_any(list(prediction(path, record, made.names).differences(right)))
