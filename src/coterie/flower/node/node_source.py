"""Where the ``data`` of a node are: parquet or CSV files, the answer to a SQL query, or a folder of
images. They are read again for every request, so data that change are seen."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from coterie.data.images.decoding import decode, images_in
from coterie.data.images.pixels import unit
from coterie.data.rows.reading import read_rows
from coterie.data.rows.table import Rows
from coterie.data.rows.texts import known_spelling, text_of
from coterie.errors import ConfigError, DataError, first_line, install_command
from coterie.flower.node.data_sources import (
    Pair,
    divide,
    is_unlabelled,
    not_a_class,
    pair_of_rows,
    read_files,
)

# Of the environment: on a command line every user of the machine could read it.
PASSWORD = "COTERIE_DATABASE_PASSWORD"
# Also without the `@` behind it, where what should be a port is none.
_WITH_PASSWORD = re.compile(
    r"://[^@]*:[^@]*@|://[\w.-]*:(?!\d*(?:[/?]|$))|(password|passwd|pwd)\s*=", re.IGNORECASE
)
# What of a URL may be shown: its kind, its host and the database, but no user, no options, and no
# port, which is a password where the `@` behind it was forgotten.
_SHOWN = re.compile(
    r"([\w+]+://)(?:[^?]*@)?([\w.-]*|\[[\w.:]*\])(?::\d*)?((?:/[\w.:/-]*)?)(?:\?[^@]*)?"
)
_ORDERED = re.compile(r"\border\s+by\b", re.IGNORECASE)
# Of SQL: comments, texts and quoted names, in which words mean nothing.
_UNREAD = re.compile(r"--[^\n]*|/\*.*?\*/|'[^']*'|\"[^\"]*\"|`[^`]*`", re.DOTALL)
# An inner query, whose order is not that of the rows, or the arguments of a function.
_INNER = re.compile(r"\([^()]*\)")
# How the transaction of a query is made one that only reads, by the kind of the database. Not the
# whole connection where that is possible: a proxy may hand it to others.
_READ_ONLY = {
    "sqlite": "PRAGMA query_only = ON",
    "postgresql": "SET TRANSACTION READ ONLY",
    "mysql": "SET SESSION TRANSACTION READ ONLY",
    "mariadb": "SET SESSION TRANSACTION READ ONLY",
    "oracle": "SET TRANSACTION READ ONLY",
}


def is_database(source: str) -> bool:
    """Whether the ``data`` of a node are the URL of a database."""
    return "://" in source


def read_node_data(
    options: Mapping[str, Any], classes: Sequence[str] | None, features: Sequence[str] | None = None
) -> tuple[Pair, Pair | None]:
    """Training and test samples of a node, for runs whose inputs are numbers; of one without labels
    ``None`` for the labels and for the test samples.

    Args:
        classes: names of the classes, for labels that are text, and for the folders of images;
            ``None`` where they are not known: labels stay as they are.
        features: the columns of inputs, in the order that all nodes have; ``None`` where the server was
            not asked.
    """
    source = str(options["data"])
    if is_database(source):
        return divide(*pair_of_rows(read_query(options), options, classes, features))
    path = Path(source).expanduser()
    if is_unlabelled(options) and images_in(path, "*"):
        return (unit(decode(images_in(path, "*"))), None), None
    if _has_images(path) and not is_unlabelled(options):
        return _read_images(path, classes)
    return read_files(path, options, classes, features)


def places(labels: Sequence[Any] | NDArray[Any], classes: Sequence[str]) -> NDArray[np.int64]:
    """The places of labels among the names of the classes, int64 ``[n]``."""
    names = [known_spelling(text_of(label), classes) for label in labels]
    unknown = sorted(set(names) - set(classes))
    if unknown:
        raise not_a_class(unknown[0], classes)
    return np.array([classes.index(name) for name in names], np.int64)


# --- a database -----------------------------------------------------------------------------------


def read_query(options: Mapping[str, Any], missing: Sequence[str] = ()) -> Rows:
    """The answer of a database, in which some words are missing values.

    Nothing is written. The query has to say ``ORDER BY``: a fifth of the rows is test data, and
    which rows these are follows from their order.
    """
    query = str(options.get("query", ""))
    url = str(options["data"])
    where = _shown(url)
    _check_query(query, where)
    try:
        import pandas as pd
        from sqlalchemy import create_engine, text
        from sqlalchemy.exc import SQLAlchemyError
        from sqlalchemy.pool import NullPool
    except ImportError:
        advice = f"install it with {install_command('sql')}"
        what = "SQLAlchemy is not installed"
        raise ConfigError("not-installed", where, what, do=advice) from None
    address = _address(url, where)
    # SQLite would make an empty file.
    file = address.database or ""
    if address.get_backend_name() == "sqlite" and "?" not in url and not Path(file).exists():
        raise DataError("not-found", where, allowed="the file of a database")
    try:
        engine = create_engine(address, poolclass=NullPool)
        try:
            with engine.connect() as connection:
                if engine.dialect.name in _READ_ONLY:
                    connection.execute(text(_READ_ONLY[engine.dialect.name]))
                frame = pd.read_sql_query(text(query), connection)
        finally:
            engine.dispose()
        return replace(read_rows(frame, missing=missing), where=where)
    except ModuleNotFoundError as error:
        what = "its driver is missing"
        raise ConfigError("not-installed", where, what, do=f"install {error.name}") from None
    except (SQLAlchemyError, OSError, ValueError) as error:
        got = _without_secrets(first_line(error), address)
        raise DataError("cannot-be-read", where, "the query failed", found=got) from None


def _address(url: str, where: str) -> Any:
    """A URL as SQLAlchemy has it, with the password of the environment where it has none."""
    from sqlalchemy import make_url
    from sqlalchemy.exc import SQLAlchemyError

    address = None
    # Without what SQLAlchemy says: it may quote a part of the password.
    with suppress(SQLAlchemyError, ValueError):
        address = make_url(url)
    # So may a driver, which takes what follows the first @ of a password for the host.
    if address is None or "@" in (address.host or ""):
        what = "not the URL of a database"
        raise DataError("wrong-type", where, what, allowed="kind+driver://user@host/name")
    if address.password is None and PASSWORD in os.environ:
        return address.set(password=os.environ[PASSWORD])
    return address


def _check_query(query: str, where: str) -> None:
    expected = "SELECT ... ORDER BY a unique key, so that the test rows stay the same"
    if not query.strip():
        raise DataError("missing", "--query", allowed=expected)
    words = _UNREAD.sub(" ", query).strip().removesuffix(";")
    got = repr(query[:80])
    if ";" in words:
        # The second one would not be in the transaction that only reads.
        what = f"{where}: several statements"
        raise DataError("cannot-be-used", "--query", what, found=got, allowed="one SELECT")
    if not _ORDERED.search(_outermost(words)):
        what = f"{where}: the rows have no fixed order"
        raise DataError("missing", "--query", what, found=got, allowed=expected)


def _outermost(words: str) -> str:
    """A query without what is in parentheses."""
    while (shorter := _INNER.sub(" ", words)) != words:
        words = shorter
    return words


def has_password(source: str) -> bool:
    """Whether the ``data`` of a node are the URL of a database with a password in it."""
    return is_database(source) and _WITH_PASSWORD.search(source) is not None


def _shown(url: str) -> str:
    """A URL without user, password and options, any of which may be secret.

    Example:
        >>> _shown("postgresql://reader:secret@db/clinic?sslpassword=other")
        'postgresql://db/clinic'
        >>> _shown("postgresql:reader:secret@db")
        'the database'
    """
    found = _SHOWN.fullmatch(url)
    if found is None:
        return "the database"
    return found[1] + found[2] + found[3]


def _without_secrets(line: str, address: Any) -> str:
    """What a driver says, without the password and the options of the URL that it may repeat."""
    options = [value for values in address.normalized_query.values() for value in values]
    for secret in (address.password, *options):
        if secret:
            line = line.replace(str(secret), "***")
    return line


# --- images ---------------------------------------------------------------------------------------


def _has_images(path: Path) -> bool:
    """Whether a folder has images in folders that are named as classes."""
    if not path.is_dir() or any(path.glob("train.*")):
        return False
    return any(images_in(path, pattern) for pattern in ("train/*/*", "*/*"))


def _read_images(path: Path, classes: Sequence[str] | None) -> tuple[Pair, Pair | None]:
    """Images of ``train/CLASS`` and ``test/CLASS``, or of ``CLASS`` with a fifth for test."""
    if not (path / "train").is_dir():
        return divide(*_labelled(path, images_in(path, "*/*"), classes))
    train = images_in(path, "train/*/*")
    test = images_in(path, "test/*/*")
    # At once: the widest of all decides whether they are grey, and so for both.
    inputs, labels = _labelled(path, train + test, classes)
    count = len(train)
    return (inputs[:count], labels[:count]), (inputs[count:], labels[count:])


def _labelled(folder: Path, files: Sequence[Path], classes: Sequence[str] | None) -> Pair:
    """Images float32 ``[n, channels, height, width]`` in 0 to 1, and labels int64 ``[n]``, or names
    where the classes are not known."""
    if not files:
        raise DataError("missing", folder, "no images", allowed="folders named after classes")
    names = [file.parent.name for file in files]
    labels = np.asarray(names) if classes is None else places(names, classes)
    return unit(decode(files)), labels
