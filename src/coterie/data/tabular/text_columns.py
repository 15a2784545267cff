"""Which columns of a table are read as text, and why: what a run, ``coterie data inspect`` and the
report say of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from coterie.data.tabular.encoder import CategoryRule, Encoder
from coterie.terminal import counted, first_few


@dataclass(frozen=True, slots=True)
class TextColumn:
    """A column that is read as text.

    Args:
        inputs: how many inputs are made of it, 0 if it is left out.
    """

    name: str
    inputs: int
    why: str


def text_columns(encoder: Encoder, why: Mapping[str, str]) -> list[TextColumn]:
    """The columns that are read as text: first those of which somebody may have meant numbers.

    Args:
        why: column -> why it is text although it may have been meant otherwise, or is left out.
    """
    rules = {rule.name: rule for rule in encoder.rules}
    found = []
    for name, reason in why.items():
        inputs = len(rules[name].features) if name in rules else 0
        found.append(TextColumn(name, inputs, reason))
    for rule in rules.values():
        if isinstance(rule, CategoryRule) and rule.name not in why:
            different = counted(len(rule.common) + len(rule.rare), "different value")
            found.append(TextColumn(rule.name, len(rule.features), different))
    return found


def text_line(encoder: Encoder, why: Mapping[str, str]) -> str:
    """The same in a line, empty where there is no text."""
    found = text_columns(encoder, why)
    used = [one for one in found if one.inputs]
    left_out = [one for one in found if not one.inputs]
    parts = []
    if used:
        inputs = sum(one.inputs for one in used)
        columns = counted(len(encoder.rules), "column")
        every = counted(len(encoder.features), "input")
        share = f"which make up {inputs} of {every}, are"
        if len(used) == 1:
            share = f"which makes up {inputs} of {every}, is"
        parts.append(f"{len(used)} of {columns}, {share} read as text: {_with_reasons(used)}")
    if left_out:
        parts.append(f"left out: {_with_reasons(left_out)}")
    return "; ".join(parts)


def _with_reasons(columns: list[TextColumn]) -> str:
    return first_few([f"{one.name} ({one.why})" for one in columns])
