"""The figures under the headline of a page."""

from __future__ import annotations

from collections.abc import Sequence

from coterie.report.series import best_series, series_of
from coterie.report.view import RunView, group_agreement, newcomer_placements


def facts(runs: Sequence[RunView]) -> list[tuple[str, str]]:
    """Name and value of each figure: clients and rounds, and what the best run with groups
    found."""
    if not runs:
        return []
    found = [
        ("clients", f"{runs[0].clients:,}"),
        ("rounds", str(max(len(run.rounds) for run in runs))),
    ]
    spent = [run.rounds[-1].get("privacy") for run in runs if run.rounds]
    if any(spent):
        most = max(one["epsilon"] for one in spent if one)
        found.append(("most privacy that a run spent (epsilon)", f"{most:.3g}"))
    # The same series that the headline names.
    best = best_series(one for one in series_of(runs) if one.grouped)
    if best is None:
        return found
    run = best.first
    found.append((f"groups that {best.name} found", str(run.group_count)))
    score = group_agreement(run)
    if score is not None:
        name = f"agreement of {best.name}'s groups with the planted ones"
        found.append((f"{name} (adjusted Rand index, 1 = the same)", f"{score:.2f}"))
    known = [placed.right for placed in newcomer_placements(run) if placed.right is not None]
    if known:
        name = f"newcomers that {best.name} placed with their own population"
        found.append((name, f"{sum(known)} of {len(known)}"))
    return found
