"""Sentiment140: tokens, padding, learned and given word vectors, and files that cannot be used."""

from __future__ import annotations

import os
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from coterie.core.keys import Key
from coterie.data import load_population, load_samples
from coterie.data.sources.text import embed, sent140, sent140_tokens, tokenise
from coterie.data.sources.word_vectors import learn, read_glove
from coterie.errors import Code, DataError
from coterie.experiment import check
from coterie.report.load import views_of
from coterie.report.titles import intro_of
from coterie.runs.run import run_config
from tests.refusals import refuses

TWEETS = ["Good day!", "so sad, so SAD", "@@@", "good good good good good good"]
OTHERS = ["good day today!", "so sad, a bad day", "a good day!", "bad bad day, so sad"]


def write(folder: Path, **columns: Any) -> Path:
    (folder / "sent140").mkdir(exist_ok=True)
    users: dict[str, Any] = {
        "text": TWEETS,
        "label": [4, 0, 1, 1],
        "user": ["ann", "bob", "ann", "bob"],
    }
    pq.write_table(pa.table(users | columns), folder / "sent140" / "users.parquet")
    others = {"text": OTHERS, "label": [1, 0, 1, 0], "user": list("cdef")}
    pq.write_table(pa.table(others), folder / "sent140" / "others.parquet")
    return folder


def glove(folder: Path, text: str = "good 1 0 0.5\nsad -1 0 1e-1\nmoon 3 3 3\n! 0 1 0\n") -> str:
    (folder / "glove.txt").write_text(text, encoding="utf-8")
    return "glove.txt"


def test_words_and_punctuation_in_lower_case() -> None:
    assert tokenise("Don't you @Me: http://x.y?? :-)") == [
        *["don't", "you", "me", "http", "x", ".", "y", "?", "?"]
    ]
    assert tokenise("") == []


def test_tweets_become_frozen_vectors(tmp_path: Path) -> None:
    s = load_samples(
        {"source": "sent140", "embeddings": glove(tmp_path), "tokens": 4}, root=write(tmp_path)
    )
    assert (s.x.shape, s.x.dtype, s.y.tolist()) == ((4, 4, 3), torch.float32, [1, 0, 1, 1])
    assert s.x[0].tolist() == [
        [0, 0, 0],
        [1, 0, 0.5],
        [0, 0, 0],
        [0, 1, 0],
    ]  # pad, good, unknown day, !
    assert not s.x[2].any()
    assert s.columns["user"].tolist() == ["ann", "bob", "ann", "bob"]
    end = sent140(tmp_path, embeddings="glove.txt", tokens=4, pad="end")
    assert end.x[0].tolist() == [[1, 0, 0.5], [0, 0, 0], [0, 1, 0], [0, 0, 0]]
    assert torch.equal(end.x[3], s.x[3])  # as long as the sequence: no padding, the first words


def test_learned_vectors_do_not_see_the_users_texts_or_any_label(tmp_path: Path) -> None:
    one = sent140(write(tmp_path), dim=3, min_count=1)
    write(tmp_path, text=["Good day!", "zebra", "good", "sad"], label=[0, 0, 0, 0])
    two = sent140(tmp_path, dim=3, min_count=1)
    assert torch.equal(one.x[0], two.x[0])
    assert not two.x[1].any()


def test_learned_vectors_of_words_alike_lie_close() -> None:
    rng = np.random.default_rng(0)
    first = [f"a{i}" for i in range(8)]
    second = [f"b{i}" for i in range(8)]
    texts = [list(rng.choice(first if i % 2 else second, 6)) for i in range(300)]
    words, vectors = learn(texts, 4)
    again = learn(texts, 4)
    assert again[0] == words
    assert np.array_equal(again[1], vectors)
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    alike = np.array([[v[0] == w[0] for v in words] for w in words])
    assert (unit @ unit.T)[alike].mean() > (unit @ unit.T)[~alike].mean() + 0.5
    np.testing.assert_allclose(np.sqrt((vectors**2).mean(1)), 0.4, rtol=1e-5)


def test_more_dimensions_than_words_are_zero() -> None:
    _, vectors = learn([["a", "b", "c"], ["a", "b"]], 10, 1)
    assert vectors.shape == (3, 10)
    assert not vectors[:, 2:].any()


def test_empty_texts_and_long_ones() -> None:
    x = embed([[], ["a"] * 9], ["a"], np.ones((1, 2), np.float32), 3, "front")
    assert x.tolist() == [[[0, 0]] * 3, [[1, 1]] * 3]


def test_glove_reads_only_what_is_wanted(tmp_path: Path) -> None:
    glove(tmp_path, "3 2\nthe 1 2\nmoon 3 4\nthe 9 9\nx\u00a0y 5 6\n")
    words, vectors = read_glove(tmp_path / "glove.txt", {"the", "x\u00a0y", "sun"})
    assert (words, vectors.tolist()) == (["the", "x\u00a0y"], [[1, 2], [5, 6]])


def test_words_with_spaces_are_words(tmp_path: Path) -> None:
    """GloVe's largest file has some."""
    glove(tmp_path, "the 1 2\n. . . 3 4\nat me@here 5 6\nsun 7 8\n")
    words, vectors = read_glove(tmp_path / "glove.txt", {". . .", "at me@here", "sun"})
    assert (words, vectors.tolist()) == ([". . .", "at me@here", "sun"], [[3, 4], [5, 6], [7, 8]])


@pytest.mark.parametrize(
    ("text", "dim", "code", "place"),
    [
        ("good 1 2\nsad 1\n", None, "wrong-shape", "line 2"),
        ("good 1 2\n", 300, "wrong-shape", "line 1"),
        ("good 1 2\nsad 1 2 3\n", None, "wrong-shape", "line 2"),
        ("good 1 x\n", None, "wrong-type", "line 1"),
        ("good 1 nan\n", None, "not-finite", "line 1"),
        ("moon 1 2\n", None, "does-not-fit", ""),
        ("", None, "does-not-fit", ""),
        ("\n\n", None, "does-not-fit", ""),
    ],
)
def test_word_vectors_that_cannot_be_used(
    tmp_path: Path, text: str, dim: int | None, code: Code, place: str
) -> None:
    glove(tmp_path, text)
    with refuses(DataError, code, "glove.txt") as caught:
        sent140(write(tmp_path), embeddings="glove.txt", dim=dim)
    assert place in caught.value.problems[0].what
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("columns", "refusal"),
    [
        ({"label": [0, 1, 2, 1]}, ("unknown-choice", "users.parquet")),
        ({"label": ["a", "b", "a", "b"]}, ("unknown-choice", "users.parquet")),
        ({"text": [1, 2, 3, 4]}, ("wrong-type", "users.parquet")),
        ({"text": ["a", None, "b", "c"]}, ("missing", "users.parquet")),
    ],
)
def test_tweets_that_cannot_be_used(
    tmp_path: Path, columns: dict[str, Any], refusal: tuple[Code, str]
) -> None:
    with refuses(DataError, *refusal):
        sent140(write(tmp_path, **columns), min_count=1)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"dim": 3}, "word vectors learned from other users"),
        ({"embeddings": "glove.txt"}, "word vectors from glove.txt"),
    ],
)
def test_the_report_says_where_word_vectors_come_from(
    tmp_path: Path, options: dict[str, Any], words: str
) -> None:
    glove(tmp_path)
    users = {
        "text": TWEETS * 5,
        "label": [4, 0, 1, 1] * 5,
        "user": ["ann", "bob", "ann", "bob"] * 5,
    }
    data = {"source": "sent140", "root": str(write(tmp_path, **users)), "min_count": 1, **options}
    run_config(
        check(
            {
                "data": data | {"partition": {"kind": "natural", "column": "user"}},
                "model": {"name": "mclr"},
                "train": {"rounds": 1, "clients_per_round": 2},
                "algorithm": {"name": "fedavg"},
                "engine": {"name": "serial"},
            }
        ),
        tmp_path / "run",
    )
    assert words in intro_of(views_of([tmp_path / "run"]))


def test_missing_files_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COTERIE_DATA", raising=False)
    (tmp_path / "full").mkdir()
    cases: list[tuple[Path | None, str | None, Code, str]] = [
        (None, None, "missing", "data.source"),
        (tmp_path, None, "not-found", "users.parquet"),
        (write(tmp_path / "full"), "none.txt", "not-found", "data.embeddings"),
    ]
    for root, embeddings, code, path in cases:
        with refuses(DataError, code, path):
            sent140(root, embeddings=embeddings)
    (tmp_path / "full" / "sent140" / "others.parquet").unlink()
    with refuses(DataError, "not-found", "others.parquet"):
        sent140(tmp_path / "full")


@pytest.mark.skipif("COTERIE_DATA" not in os.environ, reason="needs the shared data")
def test_real_tweets_by_user() -> None:
    partition = {"kind": "natural", "column": "user", "min_size": 10}
    p = load_population({"source": "sent140", "dim": 8}, partition, key=Key(0))
    assert (p.clients, p.shape, p.classes) == (314, (25, 8), 2)
    assert int(p.sizes("train").sum() + p.sizes("test").sum()) >= 3140
    assert bool((p.sizes("test") > 0).all())
    assert bool(torch.isfinite(p.x).all())


def test_a_long_tweet_takes_no_more_memory_than_it_has(tmp_path: Path) -> None:
    texts = [f"good day {at}" for at in range(2000)]
    texts[17] = "x" * 100_000
    rows = len(texts)
    folder = write(
        tmp_path, text=texts, label=[0, 1] * (rows // 2), user=["ann", "bob"] * (rows // 2)
    )
    tracemalloc.start()
    samples = sent140_tokens(folder, tokens=4, vocabulary=6)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(samples) == rows
    assert peak < 50e6


def test_tweets_become_tokens_and_next_tokens(tmp_path: Path) -> None:
    folder = write(tmp_path)
    words = sent140_tokens(folder, tokens=4, vocabulary=6)
    # The others have day four times, bad three times, and six words twice: '!' and ',' come first.
    assert words.x.tolist() == [[0, 1, 2, 4], [1, 1, 5, 1], [0, 0, 0, 0], [1, 1, 1, 1]]
    assert (words.x.dtype, words.classes, words.y.tolist()) == (torch.int64, 2, [1, 0, 1, 1])
    following = sent140_tokens(folder, tokens=4, vocabulary=6, predict="next_word", pad="end")
    assert following.x[0].tolist() == [1, 2, 4, 0]
    assert following.y[0].tolist() == [2, 4, -100, -100]
    assert following.classes == 0
