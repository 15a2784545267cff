"""Text as sequences of frozen word vectors, or of tokens: Sentiment140 by user."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field
from torch import Tensor

from coterie.core.arrays import IntArray
from coterie.data.rows.errors import column_error
from coterie.data.rows.reading import read_rows
from coterie.data.rows.table import Rows
from coterie.data.rows.texts import is_text
from coterie.data.samples import Samples
from coterie.data.sources.folders import dataset_folder, find_file
from coterie.data.sources.word_vectors import Vectors, learn, read_glove
from coterie.data.tabular.arrow import column_of, whole_column
from coterie.errors import DataError

Count = Annotated[int, Field(ge=1)]
Pad = Literal["front", "end"]

# Dimensions of learned word vectors where none are set.
DIMENSIONS = 100

# Stems of the dataset's files: tweets by user, and others to learn word vectors from.
SENT140_FILES = ("users", "others")

_TOKEN_SCALING = "not at all, they are the numbers of words."

# LEAF's `split_line`.
WORDS = re.compile(r"[\w']+|[.,!?;]")


def tokenise(text: str) -> list[str]:
    """Lower-case words and punctuation marks, as LEAF splits a line."""
    return WORDS.findall(text.lower())


def sent140(
    root: Path | None,
    *,
    embeddings: str | None = None,
    dim: Count | None = None,
    tokens: Count = 25,
    pad: Pad = "front",
    min_count: Count = 3,
) -> Samples:
    """Sentiment140: tweets as 25 frozen word vectors, negative or positive, by user.

    The column ``user`` names the user.

    Args:
        root: folder that holds ``sent140/{users,others}.parquet`` with columns ``text``, ``label``
            and ``user``.
        embeddings: a GloVe file (text: a word and its numbers on each line); ``None``: learned from
            the texts of ``others.parquet``, whose labels are not read.
        dim: dimensions of a word vector; ``None``: those of the file, or 100 if they are learned.
        tokens: number of words and punctuation marks that are kept from the start of a tweet.
        pad: where short tweets are padded with zero vectors: ``front`` (FlexCFL) or ``end``
            (FedProx).
        min_count: rarer words are not learned; a word without a vector is the zero vector.
    """
    texts, y, names = _tweets_by_user(root)
    if embeddings is None:
        words, vectors = learn(_other_texts(root), dim or DIMENSIONS, min_count)
    else:
        path = find_file(embeddings, root)
        if path is None:
            expected = "a GloVe file, such as glove.6B.300d.txt"
            raise DataError("not-found", "data.embeddings", found=embeddings, allowed=expected)
        # GloVe's files have 400,000 words and more; those of the tweets are a few thousand.
        wanted = {word for text in texts for word in text[:tokens]}
        words, vectors = read_glove(path, wanted, dim)
    x = embed(texts, words, vectors, tokens, pad)
    return _sentiments(torch.from_numpy(x), y, names, "not at all, they are word vectors.")


def sent140_tokens(
    root: Path | None,
    *,
    vocabulary: Annotated[int, Field(ge=3)] = 2000,
    tokens: Count = 25,
    pad: Pad = "front",
    predict: Literal["sentiment", "next_word"] = "sentiment",
) -> Samples:
    """Sentiment140: tweets as 25 tokens for a network that embeds them, by user.

    Token 0 is padding, and token 1 any word without its own number; the most frequent words of
    ``others.parquet`` follow. The column ``user`` names the user.

    Args:
        vocabulary: number of tokens ``v``; the network needs as many.
        tokens: number of words and punctuation marks that are kept from the start of a tweet.
        pad: where short tweets are padded with padding.
        predict: ``sentiment``: classes, negative or positive; ``next_word``: the token one place
            later, for the task ``next_token``.
    """
    texts, y, names = _tweets_by_user(root)
    # Equally frequent ones are in alphabetical order.
    counts = Counter(word for text in _other_texts(root) for word in text)
    words = sorted(counts, key=lambda word: (-counts[word], word))[: vocabulary - 2]
    # 0 is padding, 1 unknown.
    ids = torch.from_numpy(_numbers(texts, words, tokens, pad, first=2, unknown=1))
    if predict == "next_word":
        targets = next_tokens(ids)
        return Samples(ids, targets, 0, len(ids), {"user": names}, scaling=_TOKEN_SCALING)
    return _sentiments(ids, y, names, _TOKEN_SCALING)


def _tweets_by_user(root: Path | None) -> tuple[list[list[str]], IntArray, NDArray[Any]]:
    """The words, the label and the user of each tweet of ``users.parquet``."""
    users = _tweets_file(root, "users")
    rows = read_rows(users, columns=("text", "label", "user"))
    # 0 and 1; the original file writes 4 for positive.
    values = column_of(rows, "label")
    if values.dtype.kind in "iu":
        unknown = np.setdiff1d(values, [0, 1, 4])
    else:
        unknown = np.unique(values)
    if len(unknown):
        expected = "0 (negative) and 1 or 4 (positive)"
        raise column_error("unknown-choice", str(users), "label", repr(unknown[0]), expected)
    y = (values > 0).astype(np.int64)
    return _texts(rows), y, column_of(rows, "user")


def _sentiments(x: Tensor, y: IntArray, names: NDArray[Any], scaling: str) -> Samples:
    labels = ("negative", "positive")
    targets = torch.from_numpy(y)
    return Samples(x, targets, 2, len(x), {"user": names}, labels, scaling=scaling)


def _other_texts(root: Path | None) -> list[list[str]]:
    """The words of ``others.parquet``: of no client, since a federation could not pool theirs."""
    return _texts(read_rows(_tweets_file(root, "others"), columns=["text"]))


def next_tokens(ids: Tensor) -> Tensor:
    """The target of each place: the token one place later, -100 where that is padding or beyond."""
    later = torch.cat([ids[:, 1:], torch.zeros_like(ids[:, :1])], dim=1)
    return later.masked_fill(later == 0, -100)


def embed(
    texts: Sequence[Sequence[str]], words: Sequence[str], vectors: Vectors, tokens: int, pad: Pad
) -> Vectors:
    """Texts as the vectors of their first words; unknown words and padding are zero."""
    # Row 0 is the zero vector, for padding and for words without one.
    table = np.concatenate([np.zeros((1, vectors.shape[1]), np.float32), vectors])
    return table[_numbers(texts, words, tokens, pad, first=1, unknown=0)]


def _numbers(
    texts: Sequence[Sequence[str]],
    words: Sequence[str],
    tokens: int,
    pad: Pad,
    *,
    first: int,
    unknown: int,
) -> IntArray:
    """The numbers of the first words of each text, int64 ``[S, tokens]``; 0 is padding."""
    index = {word: at for at, word in enumerate(words, first)}
    ids = np.zeros((len(texts), tokens), np.int64)
    for row, text in zip(ids, texts, strict=True):
        found = [index.get(word, unknown) for word in text[:tokens]]
        if not found:
            continue
        if pad == "front":
            row[-len(found) :] = found
        else:
            row[: len(found)] = found
    return ids


def _texts(rows: Rows) -> list[list[str]]:
    # Not as an array of NumPy, in which each text takes as much memory as the longest.
    column = whole_column(rows, "text")
    if not is_text(column):
        raise rows.refused("wrong-type", "text", rows.type_of("text"), "text")
    return [tokenise(text) for text in column.tolist()]


def _tweets_file(root: Path | None, stem: str) -> Path:
    files = f"sent140/{{{','.join(SENT140_FILES)}}}.parquet"
    advice = f"set --data-root (or COTERIE_DATA) to a folder with {files}"
    path = dataset_folder(root, "sent140", advice) / f"{stem}.parquet"
    if not path.is_file():
        raise DataError("not-found", path, do=advice)
    return path
