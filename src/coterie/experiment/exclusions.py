"""Tables and keys of an experiment that do not work with each other: each pair is declared once, for
TOML and Python alike.

What features do not work with of a method is declared by their traits, see `coterie.methods.traits`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from coterie.errors import Problem, shown
from coterie.privacy.private import NOT_PRIVATE
from coterie.privacy.secure_sums import NOT_SECURE


class Excluded(NamedTuple):
    """What a feature of a run does not work with.

    Args:
        path: of a table or a key.
        why: it does not.
        instead: what may stand there, in words.
        allowed: values of the key that work; without any the key may not be set.
    """

    path: str
    why: str
    instead: str = "none"
    allowed: tuple[Any, ...] = ()


_OVER_SELECTION = "train.over_selection"
_UNSEEN = "clients that never train, in a federation whose data move"
_KEPT = "samples that are kept from training, in a federation whose data move"
# Feature -> what it does not work with. A feature is a table, or a key with a value.
EXCLUDED: Mapping[str, tuple[Excluded, ...]] = {
    # One client must not change what another one counts, or how many are counted: so nothing may
    # compare clients.
    "privacy": (
        Excluded("attack", "attackers send what they know of others' updates"),
        Excluded("shift", "moves data between clients"),
        Excluded("asynchronous", NOT_PRIVATE),
        Excluded(
            "bounds.enabled",
            "compares clients with each other",
            "false, or no [bounds],",
            (False,),
        ),
        # Also `by_size`, though it is the default without privacy: all clients would count the same.
        Excluded(
            "weigh.name",
            "no sum in which all clients count the same",
            "'evenly', or no [weigh],",
            ("evenly",),
        ),
        Excluded(
            "migration.detector",
            "what drift reveals of a client is not counted",
            "'none'",
            ("none",),
        ),
        # A temperature of the exported models comes from these sums.
        Excluded(
            "train.hold_out", "calibration sums up what clients count, without noise", "no value"
        ),
        Excluded(
            "quorum.min_replies",
            "a round that does not count tells how many clients replied",
            "1",
            (1,),
        ),
        Excluded(
            _OVER_SELECTION,
            "who is fast decides who is counted, and the budget is of who is drawn",
            "1",
            (1,),
        ),
    ),
    "secure": (
        Excluded("bounds.enabled", "compares single updates", "false, or no [bounds],", (False,)),
        Excluded("asynchronous", NOT_SECURE),
        Excluded("privacy", "adds noise to sums of updates that are not rounded"),
    ),
    "asynchronous": (
        Excluded(_OVER_SELECTION, "asynchronous rounds need none", "1", (1,)),
        Excluded("reply_times.deadline", "asynchronous rounds have none"),
    ),
    # A shift exchanges samples between clients, and says itself who comes and goes.
    "shift": (Excluded("evaluate.unseen", _UNSEEN), Excluded("evaluate.validation", _KEPT)),
    "train.sampler 'poisson'": (
        Excluded(_OVER_SELECTION, "the size of a cohort varies by itself", "1", (1,)),
    ),
}


def exclusions(tables: Mapping[str, Any]) -> list[Problem]:
    """What of the tables of an experiment, validated or not, does not work together."""
    found: list[Problem] = []
    for feature, excluded in EXCLUDED.items():
        path, _, wanted = feature.partition(" ")
        value = _at(tables, path)
        if value is None or (wanted and repr(value) != wanted):
            continue
        named = f"[{feature}]"
        if wanted:
            named = feature
        found += excluded_from(tables, excluded, f"with {named}")
    return found


def excluded_from(
    tables: Mapping[str, Any], excluded: Iterable[Excluded], where: str
) -> list[Problem]:
    """What is set and does not work ``where``, such as "with [privacy]"."""
    found = []
    for one in excluded:
        got = _at(tables, one.path)
        if got is not None and got not in one.allowed:
            instead = f"{one.instead} {where}"
            found.append(Problem("in-conflict", one.path, one.why, shown(got), instead))
    return found


def _at(tables: Mapping[str, Any], path: str) -> Any:
    """The value at a dotted path; ``None`` where nothing is set."""
    value: Any = tables
    for part in path.split("."):
        if not isinstance(value, Mapping):
            return None
        value = value.get(part)
    return value
