"""Text as sequences of frozen word vectors: Sentiment140 by user.

Word vectors come from a GloVe file, or are learned from the unlabelled rest of the tweets: counts
of words near each other, as positive pointwise mutual information, and its leading singular vectors
(Levy & Goldberg, 2014; with the smoothed contexts of Levy, Goldberg & Dagan, 2015). On some 27,000
tweets that is a second's work, needs nothing but scikit-learn, and gives the same vectors every
time.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field

from coterie.core.arrays import IntArray
from coterie.core.threads import one_library_thread
from coterie.data.files import column_of, open_parquet
from coterie.data.samples import Samples
from coterie.errors import DataError

Count = Annotated[int, Field(ge=1)]
Pad = Literal["front", "end"]
Vectors = NDArray[np.float32]
WORDS = re.compile(r"[\w']+|[.,!?;]")  # LEAF's split_line
SMOOTH = 0.75  # exponent of the context counts
SPREAD = 0.4  # root mean square entry of a word vector, that of GloVe's


def tokenise(text: str) -> list[str]:
    """Lower-case words and punctuation marks, as LEAF splits a line.

    Example:
        >>> tokenise("I'm @home, YES!!")
        ["i'm", 'home', ',', 'yes', '!', '!']
    """
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
    """Sentiment140: tweets as 25 frozen word vectors, negative or positive, by user (column
    `user`).

    Args:
        root: folder that holds ``sent140/{users,others}.parquet`` with columns ``text``, ``label``
            and ``user``.
        embeddings: a GloVe file (text: a word and its numbers on each line); ``None``: learned from
            the texts of ``others.parquet``, whose labels are not read.
        dim: dimensions of a word vector; ``None``: the file's own, or 100 where they are learned.
        tokens: words and punctuation marks kept of a tweet, the first ones.
        pad: where short tweets are filled up with zero vectors: ``front`` (FlexCFL) or ``end``
            (FedProx).
        min_count: rarer words are not learned; a word without a vector is the zero vector.

    Raises:
        DataError: if the files are missing or damaged.
    """
    users = _file(root, "users")
    table = open_parquet(users, wanted=lambda name: name in ("text", "label", "user"))
    texts = _texts(table, users)
    labels = column_of(table, "label", users)
    names = column_of(table, "user", users)
    wanted = {word for text in texts for word in text[:tokens]}
    if embeddings is None:
        words, vectors = learn(_others(root), dim or 100, min_count)
    else:
        words, vectors = read_glove(_located(embeddings, root), wanted, dim)
    x = embed(texts, words, vectors, tokens, pad)
    return Samples(
        torch.from_numpy(x),
        torch.from_numpy(_labels(labels, users)),
        2,
        len(x),
        {"user": names},
        ("negative", "positive"),
    )


def embed(
    texts: Sequence[Sequence[str]], words: Sequence[str], vectors: Vectors, tokens: int, pad: Pad
) -> Vectors:
    """Texts as float32 ``[S, tokens, dim]``: the vectors of their first words, zero for unknown
    words and padding.

    Example:
        >>> embed([["a", "b", "?"]], ["a", "b"], np.array([[1], [2]], np.float32), 4, "front").ravel().tolist()
        [0.0, 1.0, 2.0, 0.0]
    """
    number = {word: at for at, word in enumerate(words, 1)}
    ids = np.zeros((len(texts), tokens), np.int64)
    for row, text in zip(ids, texts, strict=True):
        found = [number.get(word, 0) for word in text[:tokens]]
        if found:
            row[slice(-len(found), None) if pad == "front" else slice(len(found))] = found
    return np.concatenate([np.zeros((1, vectors.shape[1]), np.float32), vectors])[ids]


# --- learned vectors ------------------------------------------------------------------------------


def learn(
    texts: Sequence[Sequence[str]], dim: int, min_count: int = 3, window: int = 5
) -> tuple[list[str], Vectors]:
    """Word vectors from texts alone: ``U sqrt(s)`` of the positive pointwise mutual information of
    words nearby.

    ``M[w, c] = max(0, log(P(w, c) / (P(w) P'(c))))`` with ``P'(c)`` in proportion to
    ``count(c)^0.75``, over pairs at most ``window`` words apart; vectors are scaled to one length,
    of the size of GloVe's.

    Args:
        texts: tokens of each text.
        dim: dimensions; fewer words than that leave the rest zero.
        min_count: rarer words are left out.
        window: how far apart words are neighbours.

    Raises:
        DataError: if fewer than two words are frequent enough.

    Example:
        >>> words, vectors = learn([["good", "day"], ["bad", "night"], ["good", "sun"], ["fine", "day"]], 2, 1)
        >>> words[:2], vectors.shape, vectors.dtype
        (['day', 'good'], (6, 2), dtype('float32'))
    """
    from sklearn.decomposition import TruncatedSVD

    counts = Counter(word for text in texts for word in text)
    words = sorted((w for w, n in counts.items() if n >= min_count), key=lambda w: (-counts[w], w))
    rank = min(dim, len(words) - 1)
    if rank < 1:
        raise DataError(
            f"data.min_count: {len(words)} words occur so often, got {min_count}; expected a smaller count"
        )
    information = _information(_neighbours(texts, words, window))
    with one_library_thread():  # sums in one order, so that the vectors are the same again
        model = TruncatedSVD(rank, n_iter=4, random_state=0)
        projected = model.fit_transform(information) / np.sqrt(
            np.maximum(model.singular_values_, 1e-9)
        )
    vectors = np.zeros((len(words), dim), np.float32)
    vectors[:, :rank] = projected
    length = np.linalg.norm(vectors, axis=1, keepdims=True)
    return words, vectors * (SPREAD * np.sqrt(dim) / np.maximum(length, 1e-9)).astype(np.float32)


def _neighbours(texts: Sequence[Sequence[str]], words: Sequence[str], window: int) -> Any:
    """How often two words stand at most ``window`` apart, sparse ``[w, w]``; rare words leave no
    gap."""
    from scipy import sparse

    number = {word: at for at, word in enumerate(words)}
    kept = [[number[word] for word in text if word in number] for text in texts]
    flat = np.array([word for text in kept for word in text], np.int64)
    owner = np.repeat(np.arange(len(kept)), [len(text) for text in kept])
    pairs = sparse.csr_array((len(words), len(words)), dtype=np.float64)
    for apart in range(1, window + 1):
        same = owner[apart:] == owner[: len(owner) - apart]
        one = flat[: len(flat) - apart][same]
        other = flat[apart:][same]
        pairs = (
            pairs + sparse.coo_array((np.ones(len(one)), (one, other)), shape=pairs.shape).tocsr()
        )
    return (pairs + pairs.T).tocoo()


def _information(pairs: Any) -> Any:
    """Positive pointwise mutual information of a sparse matrix of counts."""
    from scipy import sparse

    total = np.asarray(pairs.sum(1)).ravel()
    context = total**SMOOTH
    row, column = pairs.coords
    expected = total[row] * context[column] / context.sum()
    values = np.maximum(np.log(pairs.data / expected), 0)
    return sparse.coo_array((values, (row, column)), shape=pairs.shape).tocsr()


# --- GloVe ----------------------------------------------------------------------------------------


def read_glove(
    path: Path, wanted: Iterable[str], dim: int | None = None
) -> tuple[list[str], Vectors]:
    """The vectors of some words from a text file with a word and its numbers on each line, read
    line by line.

    Args:
        path: the file; a first line with the two sizes, as word2vec writes it, is passed over.
        wanted: the words to keep.
        dim: the dimensions it should have, ``None``: any.

    Raises:
        DataError: if it cannot be read, is no such file, has other dimensions, or none of the
            words.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = Path(folder) / "glove.txt"
        ...     _ = path.write_text("the 0.5 1\\nrare 2 2\\nday -1 0\\n")
        ...     read_glove(path, {"day", "the", "moon"})
        (['the', 'day'], array([[ 0.5,  1. ],
               [-1. ,  0. ]], dtype=float32))
    """
    left = set(wanted)
    words = []
    vectors = []
    try:
        with path.open(encoding="utf-8", errors="replace", newline="\n") as lines:
            for at, line in enumerate(lines, 1):
                word, *numbers = line.rstrip().split(" ")
                if at == 1 and len(numbers) == 1:
                    continue
                dim = dim or len(numbers)
                while len(numbers) > dim and not _number(
                    numbers[0]
                ):  # some files have words with spaces
                    word = f"{word} {numbers.pop(0)}"
                if len(numbers) != dim:
                    raise DataError(
                        f"{path}: line {at}, got {len(numbers)} numbers; expected {dim}"
                    )
                if word in left:
                    vectors.append(_vector(numbers, path, at))
                    words.append(word)
                    left.discard(word)
    except (OSError, ValueError) as error:
        line = (str(error).splitlines() or [type(error).__name__])[0]
        raise DataError(f"{path}: cannot be read as word vectors ({line})") from None
    if not words:
        raise DataError(
            f"{path}: none of the words of the tweets has a vector; expected a GloVe file"
        )
    return words, np.stack(vectors)


def _number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _vector(numbers: Sequence[str], path: Path, line: int) -> Vectors:
    try:
        vector = np.array(numbers, np.float32)
    except ValueError:
        raise DataError(
            f"{path}: line {line}, got something that is no number; expected a word vector"
        ) from None
    if not np.isfinite(vector).all():
        raise DataError(f"{path}: line {line}, got NaN or infinity; expected finite numbers")
    return vector


# --- files ----------------------------------------------------------------------------------------


def _others(root: Path | None) -> list[list[str]]:
    path = _file(root, "others")
    return _texts(open_parquet(path, wanted=lambda name: name == "text"), path)


def _texts(table: Any, path: Path) -> list[list[str]]:
    texts = column_of(table, "text", path)
    if texts.dtype.kind != "U":
        raise DataError(f"{path}: column text, got {texts.dtype}; expected text")
    return [tokenise(text) for text in texts.tolist()]


def _file(root: Path | None, stem: str) -> Path:
    base = root if root is not None else os.environ.get("COTERIE_DATA")
    advice = "expected --data-root (or COTERIE_DATA) to name a folder with sent140/{users,others}.parquet"
    if not base:
        raise DataError(f"data.source: no data folder for 'sent140'; {advice}")
    path = Path(base).expanduser() / "sent140" / f"{stem}.parquet"
    if not path.is_file():
        raise DataError(f"{path}: no such file; {advice}")
    return path


def _located(embeddings: str, root: Path | None) -> Path:
    place = Path(embeddings).expanduser()
    if not place.is_file() and root is not None and (Path(root) / place).is_file():
        place = Path(root) / place
    if not place.is_file():
        raise DataError(
            f"data.embeddings: no such file, got {embeddings}; expected a GloVe file, as glove.6B.300d.txt"
        )
    return place


def _labels(values: NDArray[Any], path: Path) -> IntArray:
    """Labels as 0 and 1; the original file writes 4 for positive."""
    odd = np.setdiff1d(values, [0, 1, 4]) if values.dtype.kind in "iu" else np.unique(values)
    if len(odd):
        raise DataError(
            f"{path}: column label, got {odd[0]!r}; expected 0 (negative) and 1 or 4 (positive)"
        )
    return (values > 0).astype(np.int64)
