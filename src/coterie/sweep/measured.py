"""The figures of one run of a sweep: its headline, rounds and bytes to a target, seconds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from coterie.data import load_partition
from coterie.files import MALFORMED, damaged
from coterie.headline import Headline
from coterie.measures.client_table import ScoredClients
from coterie.measures.costs import rounds_to_target
from coterie.measures.seeds import Split, split_of
from coterie.runs.folder.store import RunFolder, check_folder
from coterie.runs.published import is_private, read_published
from coterie.runs.scores import ClientScores, last_scores
from coterie.runs.summary import covered, without_model

Figure = Literal["final", "max", "last10_mean"]


@dataclass(frozen=True, slots=True)
class Measured:
    """The figures of one run.

    Args:
        value: the headline compared, as an accuracy; ``None`` if nothing was evaluated.
        rounds: rounds to the target; ``None`` without a target, or if it was not reached.
        bytes: bytes down and up to the target, or of the whole run without a target.
        seconds: of all rounds, without ``start_up``.
        steps: batches that clients trained on, in all rounds.
        scored: clients that the headline counts, those with a group at the end.
        clients: the figures of single clients; ``None`` for a private run, and where only a sample
            of the clients was scored.
        split: the samples that it trains on and tests on; ``None`` where they are not known.
        diverged: whether the last round was skipped because replies were refused.
    """

    value: float | None
    rounds: int | None
    bytes: int | None
    seconds: float
    scored: int | None = None
    without_model: Mapping[str, float] = field(default_factory=dict)
    scores: Sequence[ClientScores] = ()
    start_up: float = 0.0
    steps: int = 0
    clients: ScoredClients | None = None
    split: Split | None = None
    diverged: bool = False


def key_of(figure: Figure, headline: Headline) -> str:
    """The key of a figure in the summary of a run: the best may be the least."""
    if figure == "max":
        return headline.best_key
    return figure


def measure(path: Path, target: float | None, figure: Figure) -> Measured:
    """The figures of a run that is done; ``max`` is the best, also where lower is better.

    The target counts as reached in a round in which all clients that are ever assigned have a
    group, as for ``accuracy.max``: earlier rounds score only some of the clients.
    """
    folder = RunFolder.open(path)
    check_folder(folder)
    state = read_published(folder)
    rows = state.rows
    try:
        summary = state.summary or {}
        headline = state.headline
        value = summary[headline.name][key_of(figure, headline)]
        if value is not None:
            value = float(value)
        seconds = float(summary["seconds"]["total"])
        start_up = float(summary["seconds"].get("start_up", 0.0))
        naive = without_model(summary)
        # Of real clients the batches are not known.
        steps = sum(int(row.get("local_steps") or 0) for row in rows)
        scores = last_scores(rows, state.config, headline)
        rounds, moved_bytes = _to_target(rows, target, headline)
    except MALFORMED as error:
        # The file was written by another version, or by hand.
        raise damaged(path / "summary.json or rounds.jsonl", error) from None
    last = rows[-1] if rows else {}
    split = _split(folder, state.config)
    clients = None
    if not is_private(state.config):
        clients = folder.results.clients(split)
    return Measured(
        value=value,
        rounds=rounds,
        bytes=moved_bytes,
        seconds=seconds,
        # A client counts in the headline once it has a group.
        scored=last.get("clients_assigned"),
        without_model=naive,
        scores=scores,
        start_up=start_up,
        steps=steps,
        clients=clients,
        split=split,
        diverged=bool(last.get("skipped") and last.get("refused")),
    )


def _split(folder: RunFolder, tables: Mapping[str, Any]) -> Split | None:
    if not folder.partition.exists():
        return None
    return split_of(load_partition(folder.partition), tables)


def _to_target(
    rows: Sequence[Mapping[str, Any]], target: float | None, headline: Headline
) -> tuple[int | None, int | None]:
    """Rounds and bytes to the target; without one, no rounds and the bytes of the whole run."""
    if target is None:
        return None, _bytes_of(rows)
    # `covered` leaves out rounds in which some clients have no group yet.
    rounds = rounds_to_target(covered(rows, headline), target, headline)
    if rounds is None:
        return None, None
    return rounds, _bytes_of(rows[:rounds])


def _bytes_of(rows: Sequence[Mapping[str, Any]]) -> int:
    return sum(
        int(row["transfers"]["down_bytes"]) + int(row["transfers"]["up_bytes"]) for row in rows
    )
