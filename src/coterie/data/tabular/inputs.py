"""Inputs of a network from a table, by what its clients report."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from coterie.core.arrays import FloatArray, IntArray
from coterie.core.keys import Key, system_secret
from coterie.data.tabular.encoder import Encoder, private_encoder
from coterie.data.tabular.raw import RawTable
from coterie.data.tabular.reports import (
    add_reports,
    bounded_reports,
    check_domains,
    column_report,
    report_bytes,
    report_width,
)
from coterie.errors import DataError

# Inputs that take more memory than this are refused, and not begun.
LARGEST = 8 * 2**30
_FLOAT = 4  # bytes of a value of an input
_DOUBLE = 8  # bytes of a number of a report


@dataclass(frozen=True, eq=False)
class TableInputs:
    """How inputs were made from the columns of a table.

    Args:
        first: int64 ``[S]``, the first row of each input.
        reported: int64 ``[N]``, bytes of what each client reported of its columns; 0 for one
            without training rows.
        noise: the key of the noise on what they reported; ``None`` without any.
    """

    encoder: Encoder
    raw: RawTable
    first: IntArray
    reported: IntArray
    noise: Key | None = None

    @property
    def answered(self) -> int:
        """Bytes of what each client is sent: means, deviations, and names of categories."""
        return len(json.dumps(self.encoder.record()).encode())

    def reports(self, held: Sequence[IntArray]) -> FloatArray:
        """What clients report of their columns, float64 ``[n, report_width]``; within the ranges
        of `bounded_reports` where their sum gets noise."""
        first = [self.first[samples] for samples in held]
        if self.raw.encode.noise is not None:
            return bounded_reports(self.raw, first)
        return describe_clients(self.raw, first)


def describe_clients(table: RawTable, held: Sequence[IntArray]) -> FloatArray:
    """What clients report of their columns, float64 ``[n, report_width]``."""
    if not held:
        return np.zeros((0, report_width(table.columns)))
    return np.stack([column_report(table, first) for first in held])


def encode_inputs(
    table: RawTable, first: IntArray, held: Sequence[IntArray], key: Key | None = None
) -> tuple[Tensor, TableInputs]:
    """The inputs of all samples, by what the clients report of their training rows.

    Args:
        first: int64 ``[S]``, the first row of each input.
        held: the training samples of each client, as numbers below ``S``.
        key: the key of the noise on what they report; by default a secret of the system.

    Returns:
        float32 ``[S, q]``, of a series ``[S, past, q]``; and how they were made.
    """
    check_domains(table.columns, table.encode)
    held_first = [first[samples] for samples in held]
    if table.encode.noise is None:
        key = None
        reports = describe_clients(table, held_first)
        # As on real clients: nothing below reads a row but the encoding itself.
        totals = add_reports(table.columns, reports)
        rows = sum(len(table.rows(one)) for one in held_first)
        encoder = Encoder.of(totals, table.encode, rows)
        sizes = report_bytes(table.columns, reports)
    else:
        key = key or system_secret()
        reports = bounded_reports(table, held_first)
        encoder = private_encoder(table, reports, key.of("data"))
        sizes = np.full(len(held), _DOUBLE * reports.shape[1])
    # A client without training rows has nothing to report.
    sizes[[not len(samples) for samples in held]] = 0
    return inputs_of(table, first, encoder), TableInputs(encoder, table, first, sizes, key)


def inputs_of(table: RawTable, first: IntArray, encoder: Encoder) -> Tensor:
    """The inputs that begin in some rows, float32 ``[S, q]``, of a series ``[S, past, q]``."""
    past = table.past
    needed = _FLOAT * len(first) * (past or 1) * len(encoder.features)
    if needed > LARGEST:
        widest = max(encoder.rules, key=lambda rule: len(rule.features))
        what = (
            f"{len(first):,} inputs with {past or 1} x {len(encoder.features):,} values take "
            f"{needed / 2**30:.0f} GiB; {len(widest.features):,} values are of column {widest.name}"
        )
        expected = (
            f"at most {LARGEST / 2**30:.0f} GiB: a larger stride, a shorter past, or fewer "
            "categories"
        )
        raise DataError("out-of-range", "data.window.stride", what, allowed=expected)
    features = encoder.encode(table)
    if past is None:
        return torch.from_numpy(features[first])
    return torch.from_numpy(features[first[:, None] + np.arange(past)])
