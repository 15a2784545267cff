"""More kinds of panels: trees of merges, bars, chains of clients, boxes with arrows."""

from __future__ import annotations

import math
from dataclasses import dataclass

from panels import HEIGHT, WIDTH, Point, ink, model, person, soft
from svg import Canvas, text_width


@dataclass(frozen=True)
class Merge:
    left: int  # a leaf, or the number of an earlier merge after the leaves
    right: int
    height: float
    colour: int = 0


@dataclass(frozen=True)
class Tree:
    """A tree of merges, and where it is cut."""

    leaves: tuple[int, ...]  # colours
    merges: tuple[Merge, ...]
    cut: float
    label: str

    def draw(self, canvas: Canvas, x: float, y: float) -> None:
        floor = y + HEIGHT - 22
        tall = HEIGHT - 44
        step = WIDTH / len(self.leaves)
        tops = [(x + (index + 0.5) * step, floor - 11.0) for index in range(len(self.leaves))]
        for merge in self.merges:
            left = tops[merge.left]
            right = tops[merge.right]
            level = floor - 11 - merge.height * tall
            stroke = ink(merge.colour)
            canvas.line(
                [left, (left[0], level), (right[0], level), right], stroke=stroke, stroke_width=1.8
            )
            tops.append(((left[0] + right[0]) / 2, level))
        for index, colour in enumerate(self.leaves):
            person(canvas, x + (index + 0.5) * step, floor, colour)
        level = floor - 11 - self.cut * tall
        canvas.line(
            [(x, level), (x + WIDTH, level)],
            stroke="var(--ink)",
            stroke_width=1.3,
            stroke_dasharray="5 4",
        )
        canvas.text(x + WIDTH / 2, level - 6, self.label, size=11.5, anchor="middle")


@dataclass(frozen=True)
class Bars:
    """Small bar charts side by side: label counts, losses, weights."""

    charts: tuple[
        tuple[str, tuple[float, ...], tuple[int, ...]], ...
    ]  # title, heights 0..1, colours
    labels: tuple[str, ...] = ()
    note: str = ""
    chosen: tuple[int, ...] = ()  # the bar of each chart that is marked

    def draw(self, canvas: Canvas, x: float, y: float) -> None:
        wide = WIDTH / len(self.charts)
        floor = y + HEIGHT - 36
        tall = HEIGHT - 76
        for index, (title, heights, colours) in enumerate(self.charts):
            left = x + index * wide + 8
            step = (wide - 16) / len(heights)
            canvas.text(left + (wide - 16) / 2, y + 14, title, size=11.5, anchor="middle")
            for bar, (height, colour) in enumerate(zip(heights, colours, strict=True)):
                top = floor - height * tall
                middle = left + (bar + 0.5) * step
                thick = min(22.0, 0.7 * step)
                canvas.rect(
                    middle - thick / 2, top, thick, max(1.0, height * tall), rx=2, **soft(colour)
                )
                if self.labels:
                    canvas.text(middle, floor + 15, self.labels[bar], size=11, anchor="middle")
                if self.chosen and self.chosen[index] == bar:
                    canvas.arrow([(middle, top - 22), (middle, top - 4)], "var(--ink)")
            canvas.line(
                [(left, floor), (left + wide - 16, floor)], stroke="var(--line)", stroke_width=1.0
            )
        if self.note:
            canvas.text(x + WIDTH / 2, y + HEIGHT - 4, self.note, size=11.5, anchor="middle")


@dataclass(frozen=True)
class Chains:
    """Rows of clients that train one after another. A client's slices are the classes it holds."""

    rows: tuple[tuple[tuple[int, ...], ...], ...]  # chains of clients of colours
    start: str = "$w$"
    end: str = "mean"

    def draw(self, canvas: Canvas, x: float, y: float) -> None:
        middle = y + HEIGHT / 2
        step = HEIGHT / len(self.rows)
        for index, row in enumerate(self.rows):
            level = y + (index + 0.5) * step
            first = x + 56.0
            gap = (WIDTH - 130) / (len(row) - 1)
            canvas.arrow([(x + 26, middle), (first - 14, level)], "var(--line)")
            for place, colours in enumerate(row):
                across = first + place * gap
                if place:
                    canvas.arrow([(across - gap + 13, level), (across - 12, level)], "var(--ink)")
                slices(canvas, (across, level), colours)
            canvas.arrow(
                [(x + WIDTH - 62, level), (x + WIDTH - 38, middle + 0.2 * (level - middle))],
                "var(--line)",
            )
        model(canvas, x + 13, middle, self.start, 0)
        canvas.text(x + WIDTH, middle + 4, self.end, size=11.5, anchor="end")


def slices(canvas: Canvas, at: Point, colours: tuple[int, ...], radius: float = 11.0) -> None:
    """A client as a pie of the classes it holds."""
    across, down = at
    if len(colours) == 1:
        canvas.circle(across, down, radius, **soft(colours[0]))
        return
    turn = 2 * math.pi / len(colours)
    for index, colour in enumerate(colours):
        start = index * turn - math.pi / 2
        stop = start + turn
        path = (
            f"M{across:.1f} {down:.1f}"
            f"L{across + radius * math.cos(start):.1f} {down + radius * math.sin(start):.1f}"
            f"A{radius:.1f} {radius:.1f} 0 0 1 "
            f"{across + radius * math.cos(stop):.1f} {down + radius * math.sin(stop):.1f}Z"
        )
        canvas.add("path", d=path, **soft(colour))


@dataclass(frozen=True)
class Sorting:
    """Clients as they are on the left, and as they are put together on the right."""

    before: tuple[tuple[tuple[int, ...], ...], ...]
    after: tuple[tuple[tuple[int, ...], ...], ...]
    titles: tuple[str, str]

    def draw(self, canvas: Canvas, x: float, y: float) -> None:
        self._rows(canvas, x, y, self.titles[0], self.before)
        self._rows(canvas, x + 130, y, self.titles[1], self.after)
        middle = y + HEIGHT / 2 + 6
        canvas.arrow([(x + 101, middle), (x + 123, middle)], "var(--ink)", 2.0, 8)

    def _rows(
        self,
        canvas: Canvas,
        x: float,
        y: float,
        title: str,
        rows: tuple[tuple[tuple[int, ...], ...], ...],
    ) -> None:
        canvas.text(x + 47, y + 12, title, size=11.5, anchor="middle", colour="var(--muted)")
        step = (HEIGHT - 22) / len(rows)
        for index, row in enumerate(rows):
            level = y + 22 + (index + 0.5) * step
            canvas.rect(x, level - 18, 94, 36, rx=8, fill="var(--panel)", stroke="var(--edge)")
            gap = 94 / len(row)
            for place, colours in enumerate(row):
                slices(canvas, (x + (place + 0.5) * gap, level), colours)


@dataclass(frozen=True)
class Box:
    at: Point  # centre, as shares of the panel
    label: str
    colour: int | None = None  # None: no frame
    width: float = 70.0
    height: float = 26.0
    dashed: bool = False


@dataclass(frozen=True)
class Blocks:
    """Boxes and arrows: what happens inside a client."""

    boxes: tuple[Box, ...]
    links: tuple[tuple[Point, Point], ...]
    dashed_links: tuple[tuple[Point, Point], ...] = ()

    def draw(self, canvas: Canvas, x: float, y: float) -> None:
        for links, dash in ((self.links, ""), (self.dashed_links, "4 3")):
            for start, stop in links:
                points = [(x + px * WIDTH, y + py * HEIGHT) for px, py in (start, stop)]
                canvas.arrow(points, "var(--line)", dash=dash)
        for box in self.boxes:
            across = x + box.at[0] * WIDTH
            down = y + box.at[1] * HEIGHT
            if box.colour is not None:
                look = soft(box.colour)
                if box.dashed:
                    look["stroke_dasharray"] = "4 3"
                corner = (across - box.width / 2, down - box.height / 2)
                canvas.rect(*corner, box.width, box.height, rx=5, **look)
                assert text_width(box.label, 11.5) <= box.width - 6, (
                    f"{box.label!r} is wider than its box"
                )
            canvas.text(across, down + 4, box.label, size=11.5, anchor="middle")
