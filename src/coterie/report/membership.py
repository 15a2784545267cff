"""Who was in which group, and when."""

from __future__ import annotations

from dataclasses import dataclass

from coterie.report.view import RunView


@dataclass(frozen=True, slots=True)
class Stay:
    """A time that a client spent in a group: the rounds ``[start, stop)``, counted from 0."""

    client: int
    group: int
    start: int
    stop: int


def stays_of(run: RunView) -> list[Stay] | None:
    """Each time that a client spent in a group; ``None`` for a run that did not keep the moves."""
    if any("moves" not in row for row in run.rounds):
        return None
    # Rows hold only the moves, so that those of a thousand clients stay small.
    current: dict[int, tuple[int, int]] = {}  # of each client: its group, and since when
    found = []
    for row in run.rounds:
        number = int(row["round"])
        for client, group in row["moves"]:
            if client in current:
                found.append(Stay(client, *current[client], number))
            current[int(client)] = (int(group), number)
    end = 0
    if run.rounds:
        end = int(run.rounds[-1]["round"]) + 1
    # Clients that are in a group at the end leave it after the last round.
    found += [Stay(client, *stay, end) for client, stay in current.items()]
    return [stay for stay in found if stay.group >= 0]
