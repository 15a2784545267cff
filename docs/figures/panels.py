"""What a panel of a figure can show. Each kind draws itself into an area of WIDTH x HEIGHT.

Colours are numbers: 0 is grey (everybody), 1 to 4 are groups.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

from svg import Canvas, text_width

WIDTH = 224.0
HEIGHT = 176.0
Point = tuple[float, float]


class Panel(Protocol):
    def draw(self, canvas: Canvas, x: float, y: float) -> None: ...


@dataclass(frozen=True)
class Step:
    title: str
    picture: Panel
    text: str


@dataclass(frozen=True)
class Figure:
    name: str
    title: str  # read aloud by screen readers
    steps: tuple[Step, ...]


def ink(colour: int) -> str:
    return f"var(--c{colour})"


def soft(colour: int) -> dict[str, object]:
    """A pale filling in a group's colour, with its full colour at the edge."""
    return {"fill": ink(colour), "fill_opacity": 0.2, "stroke": ink(colour), "stroke_width": 1.5}


def model(canvas: Canvas, x: float, y: float, label: str, colour: int) -> None:
    width = max(26.0, text_width(label, 12) + 12)
    canvas.rect(x - width / 2, y - 12, width, 24, rx=5, **soft(colour))
    canvas.text(x, y + 4, label, anchor="middle")


def person(
    canvas: Canvas, x: float, y: float, colour: int, label: str = "", idle: bool = False
) -> None:
    look = soft(colour)
    if idle:
        look = {
            "fill": "none",
            "stroke": "var(--line)",
            "stroke_width": 1.2,
            "stroke_dasharray": "2.5 2.5",
        }
    canvas.circle(x, y, 11, **look)
    if label:
        canvas.text(x, y + 4, label, size=11, anchor="middle")


@dataclass(frozen=True)
class Client:
    colour: int = 0
    idle: bool = False
    label: str = ""
    receives: tuple[int, ...] = (0,)  # which of the server's models it is sent
    sends: int | None = 0  # the model that its reply goes to


IDLE = Client(idle=True)


@dataclass(frozen=True)
class Exchange:
    """The server sends models down, and clients send replies up."""

    models: tuple[tuple[str, int], ...]
    clients: tuple[Client, ...]
    down: str
    up: str

    def draw(self, canvas: Canvas, x: float, y: float) -> None:
        canvas.rect(x, y, WIDTH, 44, rx=8, fill="var(--panel)", stroke="var(--edge)")
        canvas.text(x + 8, y + 26, "server", size=10.5, colour="var(--muted)")
        if len(self.models) == 1:
            places = [x + WIDTH / 2]
        else:
            step = (WIDTH - 60) / max(1, len(self.models))  # a server may have no model
            places = [x + 52 + (index + 0.5) * step for index in range(len(self.models))]
        gap = WIDTH / len(self.clients)
        bottom = y + 124
        for index, client in enumerate(self.clients):
            self._links(canvas, client, places, (x + (index + 0.5) * gap, bottom), y + 36)
        for place, (label, colour) in zip(places, self.models, strict=True):
            model(canvas, place, y + 22, label, colour)
        for index, client in enumerate(self.clients):
            person(
                canvas, x + (index + 0.5) * gap, bottom, client.colour, client.label, client.idle
            )
        self._legend(canvas, x, y + 154)

    def _links(
        self, canvas: Canvas, client: Client, places: list[float], at: Point, top: float
    ) -> None:
        if client.idle:
            return
        across, bottom = at
        for target in client.receives:
            canvas.arrow(
                [(places[target] - 4, top), (across - 5, bottom - 14)], "var(--line)", 1.1, 5
            )
        if client.sends is not None:
            canvas.arrow(
                [(across + 5, bottom - 13), (places[client.sends] + 4, top + 2)],
                ink(client.colour),
                1.6,
            )

    def _legend(self, canvas: Canvas, x: float, y: float) -> None:
        for row, (arrow, colour, what) in enumerate(
            [("↓", "var(--line)", self.down), ("↑", "var(--ink)", self.up)]
        ):
            level = y + 17 * row
            canvas.text(x + 2, level, arrow, size=13, colour=colour, weight=700)
            canvas.text(x + 20, level, what, size=11.5)


@dataclass(frozen=True)
class Arrow:
    angle: float  # degrees, counted from the right against the clock
    length: float  # share of the panel's radius
    colour: int = 0
    label: str = ""
    bold: bool = False
    dashed: bool = False


@dataclass(frozen=True)
class Directions:
    """Updates as arrows from a common start."""

    arrows: tuple[Arrow, ...]
    origin: str = ""
    cones: tuple[tuple[float, float, int], ...] = ()  # from angle, to angle, colour
    at: Point = (0.5, 0.5)
    radius: float = 92.0

    def draw(self, canvas: Canvas, x: float, y: float) -> None:
        centre_x = x + self.at[0] * WIDTH
        centre_y = y + self.at[1] * HEIGHT
        radius = self.radius
        for start, stop, colour in self.cones:
            self._cone(canvas, (centre_x, centre_y), radius, (start, stop), colour)
        for arrow in self.arrows:
            tip = self._tip((centre_x, centre_y), arrow.angle, radius * arrow.length)
            canvas.arrow(
                [(centre_x, centre_y), tip],
                ink(arrow.colour),
                width=3.0 if arrow.bold else 1.5,
                head=10.0 if arrow.bold else 6.5,
                dash="4 3" if arrow.dashed else "",
            )
            if arrow.label:
                place = self._tip((centre_x, centre_y), arrow.angle, radius * arrow.length + 13)
                canvas.text(place[0], place[1] + 4, arrow.label, size=11.5, anchor="middle")
        canvas.circle(centre_x, centre_y, 3.5, fill="var(--ink)")
        if self.origin:
            canvas.text(centre_x - 7, centre_y + 14, self.origin, size=11.5, anchor="end")

    def _tip(self, centre: Point, angle: float, length: float) -> Point:
        turn = math.radians(angle)
        return centre[0] + length * math.cos(turn), centre[1] - length * math.sin(turn)

    def _cone(
        self, canvas: Canvas, centre: Point, radius: float, angles: tuple[float, float], colour: int
    ) -> None:
        start = self._tip(centre, angles[0], radius)
        stop = self._tip(centre, angles[1], radius)
        path = (
            f"M{centre[0]:.1f} {centre[1]:.1f}L{start[0]:.1f} {start[1]:.1f}"
            f"A{radius:.1f} {radius:.1f} 0 0 0 {stop[0]:.1f} {stop[1]:.1f}Z"
        )
        canvas.add("path", d=path, fill=ink(colour), fill_opacity=0.14)


@dataclass(frozen=True)
class Mark:
    at: Point  # shares of the panel, from the top left
    colour: int = 0
    label: str = ""
    radius: float = 6.0
    centre: bool = False  # drawn as a cross
    hollow: bool = False
    below: bool = False  # the label stands below, not to the right


@dataclass(frozen=True)
class Route:
    """A line through points of the plane."""

    points: tuple[Point, ...]
    colour: int = 0
    dashed: bool = False
    head: bool = True
    width: float = 1.6


@dataclass(frozen=True)
class Plane:
    """Models as points: where clients end, where centres are, which way a model goes."""

    marks: tuple[Mark, ...]
    routes: tuple[Route, ...] = ()
    rings: tuple[tuple[Point, float, int], ...] = ()  # centre, radius in pixels, colour
    notes: tuple[tuple[Point, str], ...] = ()

    def draw(self, canvas: Canvas, x: float, y: float) -> None:
        def place(point: Point) -> Point:
            return x + point[0] * WIDTH, y + point[1] * HEIGHT

        for centre, radius, colour in self.rings:
            across, down = place(centre)
            canvas.circle(
                across, down, radius, fill=ink(colour), fill_opacity=0.08, stroke=ink(colour)
            )
        for route in self.routes:
            self._route(canvas, [place(point) for point in route.points], route)
        for mark in self.marks:
            self._mark(canvas, place(mark.at), mark)
        for point, note in self.notes:
            across, down = place(point)
            canvas.text(across, down, note, size=11.5, colour="var(--muted)")

    def _route(self, canvas: Canvas, points: list[Point], route: Route) -> None:
        dash = "4 3" if route.dashed else ""
        if route.head:
            canvas.arrow(points, ink(route.colour), route.width, dash=dash)
            return
        look = {"stroke_dasharray": dash} if dash else {}
        canvas.line(points, stroke=ink(route.colour), stroke_width=route.width, **look)

    def _mark(self, canvas: Canvas, at: Point, mark: Mark) -> None:
        across, down = at
        reach = mark.radius
        if mark.centre:
            for rise in (-1, 1):
                ends = [
                    (across - reach, down - rise * reach),
                    (across + reach, down + rise * reach),
                ]
                canvas.line(ends, stroke=ink(mark.colour), stroke_width=3.2)
        elif mark.hollow:
            canvas.circle(
                across, down, reach, fill="none", stroke=ink(mark.colour), stroke_width=1.5
            )
        else:
            canvas.circle(across, down, reach, **soft(mark.colour))
        if mark.label and mark.below:
            canvas.text(across, down + reach + 14, mark.label, size=11.5, anchor="middle")
        elif mark.label:
            canvas.text(across + reach + 5, down + 4, mark.label, size=11.5)
