"""The picture of the landing page: groups form in the demonstration (figures in demo.json).

It moves: it shows the end, and then a cycle of all rounds. Without motion it shows the end.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from panels import HEIGHT, WIDTH, Figure, Step, ink, soft
from svg import Canvas

MEASURED = json.loads(Path(__file__).with_name("demo.json").read_text(encoding="utf-8"))

CYCLE = 14  # seconds
PLAYED = 70  # per cent of a cycle, in which the rounds pass


def moving(canvas: Canvas, name: str, frames: str, style: str = "") -> str:
    """The class of what moves by these frames, where the reader wants motion."""
    begun = CYCLE * (PLAYED + 4) / 100  # at rest: a picture that begins empty looks broken
    rule = f".figure .{name}{{animation:{name} {CYCLE}s linear -{begun:.1f}s infinite;{style}}}"
    canvas.parts.append(
        f"<style>@media (prefers-reduced-motion:no-preference){{{rule}}}"
        f"@keyframes {name}{{{frames}}}</style>"
    )
    return name


def appearing(canvas: Canvas, name: str, round: int, rounds: int) -> str:
    """The class of what is not there before a round."""
    at = PLAYED * (round - 1) / (rounds - 1)
    frames = f"0%,{at:.1f}%{{opacity:0}}{at + 1:.1f}%,100%{{opacity:1}}"
    return moving(canvas, name, frames)


@dataclass(frozen=True)
class Images:
    """Images of digits, each row turned by another angle."""

    rows: tuple[tuple[str, int], ...]  # label, quarter turns

    def draw(self, canvas: Canvas, x: float, y: float) -> None:
        size = 38.0
        for row, (label, turns) in enumerate(self.rows):
            top = y + row * (HEIGHT / len(self.rows)) + 8
            canvas.text(x, top + size / 2 + 4, label, size=11.5, colour="var(--muted)")
            for column, image in enumerate(MEASURED["digits"]):
                self._image(canvas, x + 44 + column * (size + 7), top, size, turned(image, turns))

    def _image(
        self, canvas: Canvas, x: float, y: float, size: float, image: list[list[float]]
    ) -> None:
        canvas.rect(x, y, size, size, rx=4, fill="var(--panel)", stroke="var(--edge)")
        pixel = (size - 4) / len(image)
        top = max(max(line) for line in image)
        for row, line in enumerate(image):
            for column, value in enumerate(line):
                if value <= 0:
                    continue
                left = x + 2 + column * pixel
                canvas.rect(
                    left,
                    y + 2 + row * pixel,
                    pixel + 0.2,
                    pixel + 0.2,
                    fill="var(--ink)",
                    fill_opacity=round(value / top, 2),
                )


def turned(image: list[list[float]], turns: int) -> list[list[float]]:
    for _ in range(turns):
        image = [list(line) for line in zip(*image, strict=True)][::-1]
    return image


@dataclass(frozen=True)
class Scatter:
    """The clients by the direction of their first update, in the colours of their groups."""

    def draw(self, canvas: Canvas, x: float, y: float) -> None:
        across = [client[0] for client in MEASURED["clients"]]
        down = [client[1] for client in MEASURED["clients"]]
        scale = min(
            (WIDTH - 24) / (max(across) - min(across)), (HEIGHT - 24) / (max(down) - min(down))
        )
        middle_x = (max(across) + min(across)) / 2
        middle_y = (max(down) + min(down)) / 2
        rounds = len(MEASURED["accuracy"]["FedGroup"])
        classes: dict[int, str] = {}
        for at_x, at_y, group, late, joined in MEASURED["clients"]:
            if joined not in classes:
                classes[joined] = appearing(canvas, f"joins-{joined}", joined, rounds)
            look = soft(group + 1)
            if late:
                look = {"fill": "var(--paper)", "stroke": ink(group + 1), "stroke_width": 2.2}
            place = (
                x + WIDTH / 2 + scale * (at_x - middle_x),
                y + HEIGHT / 2 - scale * (at_y - middle_y),
            )
            # Without a group yet; those that come later are not there at all.
            if not late:
                canvas.circle(*place, 5.5, fill="var(--panel)", stroke="var(--line)")
            canvas.circle(*place, 5.5, **{**look, "class": classes[joined]})


@dataclass(frozen=True)
class Curves:
    """Accuracy by round, of one model for all and of a model per group."""

    runs: tuple[tuple[str, str, int], ...]  # run, label, colour

    def draw(self, canvas: Canvas, x: float, y: float) -> None:
        left = x + 24
        wide = WIDTH - 28
        floor = y + HEIGHT - 26
        tall = HEIGHT - 36
        for percent in (0, 50, 100):
            level = floor - percent / 100 * tall
            canvas.line([(left, level), (left + wide, level)], stroke="var(--edge)", stroke_width=1)
            canvas.text(left - 5, level + 4, str(percent), size=10.5, anchor="end")
        drawn = moving(
            canvas,
            "drawn",
            f"0%{{stroke-dashoffset:1}}{PLAYED}%,100%{{stroke-dashoffset:0}}",
            "stroke-dasharray:1",
        )
        said = moving(canvas, "said", f"0%,{PLAYED}%{{opacity:0}}{PLAYED + 3}%,100%{{opacity:1}}")
        for run, label, colour in self.runs:
            values = MEASURED["accuracy"][run]
            points = [
                (left + i / (len(values) - 1) * wide, floor - value / 100 * tall)
                for i, value in enumerate(values)
            ]
            look = {"stroke": ink(colour), "stroke_width": 2.4, "pathLength": 1, "class": drawn}
            canvas.line(points, **look)
            below = 48 if label.startswith("one") else 19
            text = f"{label}: {values[-1]:.1f} %"
            canvas.parts.append(f'<g class="{said}">')
            canvas.text(left + wide, points[-1][1] + below, text, size=11.5, anchor="end")
            canvas.parts.append("</g>")
        canvas.text(left + wide / 2, y + HEIGHT - 6, "rounds →", size=11.5, anchor="middle")


LANDING = Figure(
    "landing",
    "60 clients hold rotated images; three groups are found; a model per group is more accurate.",
    (
        Step(
            "Clients differ",
            Images((("as is", 0), ("90°", 1), ("180°", 2))),
            "60 clients hold real images of digits. Each client has them in one of three "
            "rotations. The methods do not know which.",
        ),
        Step(
            "Groups form",
            Scatter(),
            "Each mark is a client, placed by the direction of its first update. FedGroup finds "
            "the three groups. Hollow: clients that came later.",
        ),
        Step(
            "Each group has its model",
            Curves((("FedGroup", "a model per group", 1), ("FedAvg", "one model for all", 0))),
            "Test accuracy in percent over 30 rounds of the demonstration.",
        ),
    ),
)
