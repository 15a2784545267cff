"""Draws the pictures of the docs: `python docs/figures/draw.py` writes docs/figures/*.svg.

The pictures of methods are in the modules of `DRAWN`. A test compares the files with what this
script draws.
"""

from __future__ import annotations

from pathlib import Path

import choosing
import models_of_groups
import one_model
import own_models
import personal_layers
import recent_groups
from landing import LANDING
from panels import HEIGHT, WIDTH, Figure, Step
from scoreboard_ranks import FILE, ranks_picture
from svg import BOLD, Canvas, text_width, wrap

# Modules; all their figures are drawn.
DRAWN = (one_model, personal_layers, own_models, models_of_groups, recent_groups)
HERE = Path(__file__).resolve().parent
MARGIN = 12.0  # inside a panel
GAP = 14.0  # between panels
HEAD = 38.0
LINE = 15.5
SMALL_TEXT = 11.5
OUTER = WIDTH + 2 * MARGIN


def draw(figure: Figure, columns: int | None = None) -> str:
    """Panels side by side, three in a row; two or four make rows of two."""
    if columns is None:
        columns = 2 if len(figure.steps) in (2, 4) else 3
    rows = [figure.steps[start : start + columns] for start in range(0, len(figure.steps), columns)]
    heights = [max(height(step) for step in row) for row in rows]
    canvas = Canvas(
        columns * OUTER + (columns - 1) * GAP,
        sum(heights) + GAP * (len(rows) - 1),
        figure.title,
    )
    top = 0.0
    for row, tall in enumerate(heights):
        for column, step in enumerate(rows[row]):
            left = column * (OUTER + GAP)
            canvas.rect(left, top, OUTER, tall, rx=10, fill="var(--paper)", stroke="var(--edge)")
            number = row * columns + column + 1
            place(canvas, step, f"{number}. {step.title}", left + MARGIN, top)
        top += tall + GAP
    return canvas.done()


def height(step: Step) -> float:
    lines = wrap(step.text, SMALL_TEXT, WIDTH)
    return HEAD + HEIGHT + 16 + LINE * len(lines) + MARGIN


def place(canvas: Canvas, step: Step, title: str, x: float, y: float) -> None:
    assert text_width(title, 13) * BOLD <= WIDTH, f"{canvas.title} The title {title!r} is too long."
    canvas.text(x, y + 23, title, size=13, weight=600)
    step.picture.draw(canvas, x, y + HEAD)
    for index, line in enumerate(wrap(step.text, SMALL_TEXT, WIDTH)):
        level = y + HEAD + HEIGHT + 20 + index * LINE
        canvas.text(x, level, line, size=SMALL_TEXT, colour="var(--muted)")


def narrow_pictures() -> dict[str, str]:
    """The landing page's with one panel below the other, for phones, by the name of the wide one."""
    return {f"{LANDING.name}.svg": draw(LANDING, columns=1)}


def pictures() -> dict[str, str]:
    """Each file's name and what is to stand in it."""
    named = [thing for module in DRAWN for thing in vars(module).values()]
    figures = [LANDING, *(thing for thing in named if isinstance(thing, Figure))]
    drawn = {f"{figure.name}.svg": draw(figure) for figure in figures}
    return {**drawn, FILE: ranks_picture(), choosing.FILE: choosing.tree_picture()}


if __name__ == "__main__":
    for name, text in pictures().items():
        (HERE / name).write_text(text, encoding="utf-8")
