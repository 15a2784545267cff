"""TOML with limits: the size of a text, and how deep its keys and brackets go.

Python's parser keeps every beginning of a dotted key, so a key of 20,000 parts in a file of 40 kB
took 1.5 GB and 23 seconds. The limits are checked on the text, before anything is parsed.
"""

from __future__ import annotations

import re
import tomllib
from typing import Any

MOST_CHARACTERS = 1_000_000  # a configuration with all defaults has about 2,000
MOST_DEPTH = 32  # parts of a key, and brackets around them
# Texts and comments are skipped: what is in them is no key and no bracket. A text of several lines may
# have up to two quotes of its own before the three that close it. A pattern that stops at the first
# three takes what follows for a text, and does not see a deep key in it.
TOKENS = re.compile(
    r'"""(?:\\.|[^\\])*?""""{0,2}'
    r"|'''.*?''''{0,2}"
    r'|"(?:\\.|[^"\\\n])*"'
    r"|'[^'\n]*'"
    r"|\#[^\n]*"
    r"|(?P<open>[\[{])|(?P<close>[\]}])|(?P<end>[,=\n])|(?P<dot>\.)",
    re.DOTALL,
)


def parse_toml(text: str) -> dict[str, Any]:
    """The tables of a TOML text.

    Raises:
        ValueError: if it is no TOML, too long, or nested too deeply.

    Example:
        >>> parse_toml("a.b = [1, 2.5]")
        {'a': {'b': [1, 2.5]}}
        >>> parse_toml("a" + ".a" * 40 + " = 1")
        Traceback (most recent call last):
        ValueError: keys or brackets nested more than 32 deep
    """
    if len(text) > MOST_CHARACTERS:
        raise ValueError(f"longer than {MOST_CHARACTERS:,} characters")
    _check_depth(text)
    return tomllib.loads(text)


def _check_depth(text: str) -> None:
    brackets = 0
    dots = 0
    for token in TOKENS.finditer(text):
        kind = token.lastgroup
        if kind == "dot":
            dots += 1
        elif kind is not None:
            # A key ends there, and the next one begins.
            dots = 0
        if kind == "open":
            brackets += 1
        elif kind == "close":
            brackets -= 1
        if brackets + dots > MOST_DEPTH:
            raise ValueError(f"keys or brackets nested more than {MOST_DEPTH} deep")
