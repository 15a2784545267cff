"""Word vectors: learned from texts, or read from a GloVe file.

They are learned from counts of words near each other, as positive pointwise mutual information and
its leading singular vectors (Levy and Goldberg, 2014; with the smoothed contexts of Levy, Goldberg
and Dagan, 2015). On some 27,000 tweets that is a second's work, needs nothing but scikit-learn, and
gives the same vectors every time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from coterie.core.process import one_library_thread
from coterie.data.rows.texts import is_number
from coterie.errors import Code, DataError, first_line

Vectors = NDArray[np.float32]

# Exponent of the context counts: rare contexts would otherwise weigh too much (Levy et al., 2015).
SMOOTH = 0.75
WINDOW = 5  # how far apart words are neighbours

# Root mean square of the entries of a word vector. It is that of GloVe's, so that learning rates
# found with GloVe fit.
SPREAD = 0.4


# --- learned vectors ------------------------------------------------------------------------------


def learn(
    texts: Sequence[Sequence[str]], dim: int, min_count: int = 3
) -> tuple[list[str], Vectors]:
    """Word vectors from texts alone: ``U sqrt(s)`` of words' mutual information.

    ``M[w, c] = max(0, log(P(w, c) / (P(w) P'(c))))`` with ``P'(c)`` in proportion to
    ``count(c)^0.75``, over pairs at most 5 words apart. Vectors are scaled to one length, of the
    size of GloVe's.

    Args:
        dim: dimensions; fewer words than that leave the rest zero.

    Returns:
        The words, the most frequent first, and their vectors float32 ``[words, dim]``.
    """
    from sklearn.decomposition import TruncatedSVD

    counts = Counter(word for text in texts for word in text)
    frequent = (word for word, n in counts.items() if n >= min_count)
    # Words of equal count are in alphabetical order, so that the vectors do not depend on the order
    # of the texts.
    words = sorted(frequent, key=lambda word: (-counts[word], word))
    rank = min(dim, len(words) - 1)
    if rank < 1:
        expected = f"a smaller number, because only {len(words)} words occur often enough"
        raise DataError("out-of-range", "data.min_count", found=min_count, allowed=expected)
    information = _mutual_information(_neighbour_counts(texts, words))
    # One thread: sums in one order, so that the vectors are the same again.
    with one_library_thread():
        model = TruncatedSVD(rank, n_iter=4, random_state=0)
        scaled = model.fit_transform(information)
    # That is U s. The square root weighs words and contexts alike (Levy et al., 2015).
    projected = scaled / np.sqrt(np.maximum(model.singular_values_, 1e-9))
    vectors = np.zeros((len(words), dim), np.float32)
    vectors[:, :rank] = projected
    length = np.linalg.norm(vectors, axis=1, keepdims=True)
    return words, vectors * (SPREAD * np.sqrt(dim) / np.maximum(length, 1e-9)).astype(np.float32)


def _neighbour_counts(texts: Sequence[Sequence[str]], words: Sequence[str]) -> Any:
    """How often two words stand at most `WINDOW` apart, sparse ``[w, w]``.

    Rare words are left out first and leave no gap.
    """
    from scipy import sparse

    index = {word: at for at, word in enumerate(words)}
    kept = [[index[word] for word in text if word in index] for text in texts]
    flat = np.array([word for text in kept for word in text], np.int64)
    owner = np.repeat(np.arange(len(kept)), [len(text) for text in kept])
    # One sum of sparse matrices per distance, in place of a loop over pairs in Python.
    pairs = sparse.csr_array((len(words), len(words)), dtype=np.float64)
    for distance in range(1, WINDOW + 1):
        # All texts lie end to end; words of two texts are no neighbours.
        same_text = owner[distance:] == owner[: len(owner) - distance]
        one = flat[: len(flat) - distance][same_text]
        other = flat[distance:][same_text]
        found = sparse.coo_array((np.ones(len(one)), (one, other)), shape=pairs.shape)
        pairs = pairs + found.tocsr()
    return (pairs + pairs.T).tocoo()


def _mutual_information(pairs: Any) -> Any:
    """Positive pointwise mutual information of a sparse matrix of counts."""
    from scipy import sparse

    # Only pairs that occur have an entry; the logarithm of all others would be cut to zero anyway.
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
    """The vectors of some words from a text file with a word and its numbers on each line.

    The file is read line by line, for GloVe's largest has gigabytes.

    Args:
        path: the file; a first line with the two sizes, as word2vec writes it, is passed over.
        dim: the dimensions it should have, ``None``: any.

    Returns:
        The words found, in the order of the file, and their vectors float32 ``[words, dim]``.
    """
    left = set(wanted)
    words = []
    vectors = []
    try:
        with path.open(encoding="utf-8-sig", errors="replace", newline="\n") as lines:
            for at, line in enumerate(lines, 1):
                fields = line.rstrip().split(" ")
                if at == 1 and len(fields) == 2:
                    continue
                dim = dim or len(fields) - 1
                word, numbers = _word_and_numbers(fields, dim, path, at)
                if word in left:
                    vectors.append(_vector(numbers, path, at))
                    words.append(word)
                    left.discard(word)
    except (OSError, ValueError) as error:
        line = first_line(error)
        what = f"cannot be read as word vectors ({line})"
        raise DataError("cannot-be-read", path, what) from None
    if not words:
        what = "no word in the tweets has a vector"
        raise DataError("does-not-fit", path, what, allowed="a GloVe file")
    return words, np.stack(vectors)


def _word_and_numbers(fields: list[str], dim: int, path: Path, line: int) -> tuple[str, list[str]]:
    """A line's word and its ``dim`` numbers."""
    word, *numbers = fields
    # Some files have words with spaces: what is no number belongs to the word.
    while len(numbers) > dim and not is_number(numbers[0]):
        word = f"{word} {numbers.pop(0)}"
    if len(numbers) != dim:
        raise _line_error("wrong-shape", path, line, f"{len(numbers)} numbers", dim)
    return word, numbers


def _vector(numbers: Sequence[str], path: Path, line: int) -> Vectors:
    try:
        vector = np.array(numbers, np.float32)
    except ValueError:
        got = "text that is not a number"
        raise _line_error("wrong-type", path, line, got, "a word vector") from None
    if not np.isfinite(vector).all():
        raise _line_error("not-finite", path, line, "NaN or infinity", "finite numbers")
    return vector


def _line_error(code: Code, path: Path, line: int, got: str, expected: object) -> DataError:
    what = f"line {line}: {code.replace('-', ' ')}"
    return DataError(code, path, what, found=got, allowed=expected)
