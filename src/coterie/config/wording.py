"""What a value is and what it may be, in the words of an error line."""

from __future__ import annotations

import difflib
import re
import types
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from coterie.errors import shown

BARE_KEY = re.compile(r"[A-Za-z0-9_-]+\Z")
NAMES: Mapping[Any, str] = {
    int: "an integer",
    float: "a number",
    bool: "true or false",
    str: "text",
    Path: "a path",
    list: "a list",
}
# The constraints of annotated-types, by the name of their class: sign, and attribute of the bound.
BOUNDS = {
    "Ge": (">=", "ge"),
    "Gt": (">", "gt"),
    "Le": ("<=", "le"),
    "Lt": ("<", "lt"),
    "MultipleOf": ("a multiple of", "multiple_of"),
}


FACTORY = ":"  # what a text holds that names code of the user's own


def describe_type(kind: Any, metadata: Sequence[Any] = ()) -> str:
    """What a value of this type may be, in words.

    Example:
        >>> from pydantic import Field
        >>> describe_type(Annotated[float, Field(ge=0, lt=1)]), describe_type(int | None)
        ('a number >= 0 and < 1', 'an integer')
        >>> describe_type(Annotated[int, Field(ge=2, multiple_of=2)])
        'an integer >= 2 and a multiple of 2'
        >>> describe_type(Literal["edc", "madc"])
        "one of 'edc', 'madc'"
    """
    origin = get_origin(kind)
    args = get_args(kind)
    if origin is Annotated:
        return describe_type(args[0], [*_flat(args[1:]), *metadata])
    if origin is Literal:
        return _one_of(args)
    if origin in (typing.Union, types.UnionType):
        return " or ".join(dict.fromkeys(describe_type(a) for a in args if a is not type(None)))
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        return "a table"
    if origin in (list, tuple):
        return _a_list([describe_type(a) for a in args if a is not Ellipsis])
    if origin is Callable:
        return "a function"
    if origin is dict and args[1] is not Any:
        return f"a table with values {describe_type(args[1])}"
    if dict in (kind, origin):
        return "a table"
    if any(getattr(constraint, "pattern", None) == FACTORY for constraint in metadata):
        return "'module:factory'"
    bounds = [_bound(constraint) for constraint in metadata]
    limits = " and ".join(bound for bound in bounds if bound)
    return f"{NAMES.get(kind, 'a value')} {limits}".rstrip()


def _one_of(choices: Sequence[Any]) -> str:
    names = ", ".join(f"'{c}'" if isinstance(c, str) else str(c) for c in choices)
    if len(choices) > 1:
        return f"one of {names}"
    return names


def _a_list(items: Sequence[str]) -> str:
    if not items:
        return "a list"
    if len(set(items)) == 1:
        return f"a list of {items[0]}"
    return f"a list of {len(items)} values"


def _flat(metadata: Iterable[Any]) -> list[Any]:
    """The constraints themselves; pydantic's ``Field`` holds several."""
    found: list[Any] = []
    for item in metadata:
        if isinstance(item, FieldInfo):
            found += item.metadata
        else:
            found.append(item)
    return found


def _bound(constraint: Any) -> str:
    sign, attribute = BOUNDS.get(type(constraint).__name__, ("", ""))
    if not sign:
        return ""
    return f"{sign} {getattr(constraint, attribute)}"


def spelled(parts: Iterable[Any]) -> str:
    """A key path as TOML writes it.

    Example:
        >>> spelled(["data", "partition", "my key"])
        "data.partition.'my key'"
    """
    keys = [str(part) for part in parts]
    return ".".join(key if BARE_KEY.match(key) else shown(key) for key in keys)


def nearest(got: Any, known: Sequence[str]) -> str | None:
    """The known name that a misspelt one may have meant.

    Example:
        >>> nearest("fedavgg", ["fedavg", "fedprox"]), nearest(3, ["fedavg"])
        ('fedavg', None)
    """
    if not isinstance(got, str):
        return None
    # Registered names are in lower case; `FedAvg` and `MADC` are how papers write them.
    near = difflib.get_close_matches(got.lower(), known, n=1, cutoff=0.6)
    if near:
        return near[0]
    return None
