"""The picture of the scoreboard's ranks: the mean rank of each method, in a bar as wide as the critical
difference."""

from __future__ import annotations

import math

from svg import Canvas

from coterie.studies.scoreboard.figures import DEFAULTS, Ranking, SuiteFigures
from coterie.studies.scoreboard.results_file import published, read_results

SUITE = "small"
FILE = f"scoreboard-{SUITE}-ranks.svg"
ROW = 19.0
NAMES = 96.0  # width of the methods' names
PLOT = 480.0
EDGE = 8.0
STEP = 5  # ranks between two lines of the axis
TEXT = 11.5


def ranks_picture() -> str:
    """The text of the file."""
    results = read_results(published(SUITE))
    ranking = SuiteFigures(results, results["entries"]).ranking(DEFAULTS, "equal_work")
    assert ranking is not None, "the suite has methods that ran on all its federations"
    return draw_ranks(ranking)


def draw_ranks(ranking: Ranking) -> str:
    """Methods from the best to the worst; those whose bar meets that of the best have its colour."""
    assert ranking.critical is not None, "there are enough methods and federations for a test"
    half = ranking.critical / 2
    ranks = ranking.ranks
    least = math.floor(min(ranks.values()) - half)
    most = math.ceil(max(ranks.values()) + half)
    height = ROW * len(ranks) + 40
    canvas = Canvas(
        NAMES + PLOT + EDGE,
        height,
        f"Mean rank of each method over the federations of the scoreboard {SUITE!r}, with the critical "
        "difference.",
    )

    def across(rank: float) -> float:
        return NAMES + PLOT * (rank - least) / (most - least)

    below = ROW * len(ranks) + 4
    # The best rank is 1; bars go below it.
    for rank in [1, *range(STEP, most + 1, STEP)]:
        canvas.line([(across(rank), 0.0), (across(rank), below)], stroke="var(--edge)")
        canvas.text(across(rank), below + 14, str(rank), TEXT, "middle", "var(--muted)")
    canvas.text(NAMES + PLOT / 2, below + 31, "mean rank, 1 is best", TEXT, "middle")
    best = min(ranks.values())
    for row, (method, rank) in enumerate(ranks.items()):
        middle = ROW * row + ROW / 2
        colour = "var(--c1)" if rank - best < ranking.critical else "var(--c0)"
        canvas.text(NAMES - 8, middle + 4, method, TEXT, "end")
        bar = [(across(rank - half), middle), (across(rank + half), middle)]
        canvas.line(bar, stroke=colour, stroke_width=4, stroke_opacity=0.35)
        canvas.circle(across(rank), middle, 4.0, fill=colour)
    return canvas.done()
