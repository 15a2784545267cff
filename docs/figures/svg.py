"""A small SVG writer: shapes, arrows and text that is measured before it is written.

Colours are CSS variables, so that one file reads well on a light and on a dark page.
"""

from __future__ import annotations

import math
import re
from html import escape
from itertools import pairwise

FONT = "-apple-system, 'Segoe UI', Helvetica, Arial, sans-serif"
LIGHT = {
    "paper": "#ffffff",
    "ink": "#1f2933",
    "muted": "#56616d",
    "line": "#8f9aa6",
    "panel": "#f6f7f9",
    "edge": "#d5dae0",
    "c0": "#6b7682",
    "c1": "#2b6cd9",
    "c2": "#cf6317",
    "c3": "#208a5b",
    "c4": "#8450cf",
}
DARK = {
    "paper": "#14171b",
    "ink": "#e8ebee",
    "muted": "#aab3bd",
    "line": "#7d8894",
    "panel": "#1e2228",
    "edge": "#3a414a",
    "c0": "#9aa5b1",
    "c1": "#74a7ff",
    "c2": "#f39b5e",
    "c3": "#5fca97",
    "c4": "#bb9bf2",
}

# Advance widths of DejaVu Sans in hundredths of an em. It is wider than the fonts above, so text
# that fits by this table fits with any of them.
WIDTHS = {
    27: "'",
    28: "ijl",
    30: "IJ",
    33: " ,./:;\\|·",
    36: "f-",
    39: "()[]t!r",
    47: '"*_`–',
    53: "sz?°",
    56: "cL",
    59: "Fkvxyλγτ",
    61: "PTYaoeθμ",
    64: "ESbdghnpqu$0123456789{}",
    69: "KAVBRXZCΔα",
    76: "UHNDG",
    84: "&OQw#+<=>^~→←↓↑×≤≥",
    99: "Mm%W@½…",
}
WIDTH_OF = {letter: width / 100 for width, letters in WIDTHS.items() for letter in letters}
SMALL = 0.72  # size of a subscript
BOLD = 1.16  # bold letters are wider

Span = tuple[str, str]  # text, and one of "", "variable", "subscript"


def style() -> str:
    """The colours: the reader's system decides, unless a page of the site sets its theme."""
    light = "".join(f"--{name}:{colour};" for name, colour in LIGHT.items())
    dark = "".join(f"--{name}:{colour};" for name, colour in DARK.items())
    rules = [
        f".figure{{{light}font-family:{FONT}}}",
        f"@media (prefers-color-scheme:dark){{.figure{{{dark}}}}}",
        f"body[data-theme=light] .figure{{{light}}}",
        f"body[data-theme=dark] .figure{{{dark}}}",
        ".figure .v{font-style:italic}",
    ]
    return "<style>\n" + "\n".join(rules) + "\n</style>"


def spans(text: str) -> list[Span]:
    """Splits `groups $w_{t+1}$` into plain text, variables in italics and their subscripts."""
    found: list[Span] = []
    for index, part in enumerate(text.split("$")):
        if index % 2 == 0:
            found.append((part, ""))
            continue
        for base, long, short in re.findall(r"([^_]+)(?:_\{([^}]*)\}|_(.))?", part):
            found.append((base, "variable"))
            found.append((long or short, "subscript"))
    return [(piece, kind) for piece, kind in found if piece]


def text_width(text: str, size: float) -> float:
    total = 0.0
    for piece, kind in spans(text):
        scale = SMALL if kind == "subscript" else 1.0
        total += scale * sum(WIDTH_OF.get(letter, 0.9) for letter in piece)
    return total * size


def wrap(text: str, size: float, width: float) -> list[str]:
    """Lines of at most `width`. A formula between dollar signs is not broken."""
    words = re.findall(r"\$[^$]*\$\S*|\S+", text)
    lines: list[str] = []
    for word in words:
        longer = f"{lines[-1]} {word}" if lines else word
        if lines and text_width(longer, size) <= width:
            lines[-1] = longer
        else:
            lines.append(word)
    return lines


class Canvas:
    def __init__(self, width: float, height: float, title: str) -> None:
        self.width = width
        self.height = height
        self.title = title
        self.parts: list[str] = []

    def add(self, tag: str, **attributes: object) -> None:
        named = {name.replace("_", "-"): value for name, value in attributes.items()}
        written = " ".join(f'{name}="{number(value)}"' for name, value in named.items())
        self.parts.append(f"<{tag} {written}/>")

    def rect(self, x: float, y: float, width: float, height: float, **look: object) -> None:
        self.add("rect", x=x, y=y, width=width, height=height, **look)

    def circle(self, x: float, y: float, radius: float, **look: object) -> None:
        self.add("circle", cx=x, cy=y, r=radius, **look)

    def line(self, points: list[tuple[float, float]], **look: object) -> None:
        joined = " ".join(f"{number(x)},{number(y)}" for x, y in points)
        self.add("polyline", points=joined, **{"fill": "none", "stroke_linejoin": "round", **look})

    def arrow(
        self,
        points: list[tuple[float, float]],
        colour: str,
        width: float = 1.4,
        head: float = 6.0,
        dash: str = "",
    ) -> None:
        """A line with a head at its last point; the line ends inside the head."""
        (x0, y0), (x1, y1) = points[-2:]
        length = math.dist((x0, y0), (x1, y1))
        unit_x = (x1 - x0) / length
        unit_y = (y1 - y0) / length
        base_x = x1 - head * unit_x
        base_y = y1 - head * unit_y
        dashed = {"stroke_dasharray": dash} if dash else {}
        body = [*points[:-1], (base_x, base_y)]
        self.line(body, stroke=colour, stroke_width=width, **dashed)
        half = 0.45 * head
        corners = [
            (x1, y1),
            (base_x - half * unit_y, base_y + half * unit_x),
            (base_x + half * unit_y, base_y - half * unit_x),
        ]
        joined = " ".join(f"{number(x)},{number(y)}" for x, y in corners)
        self.add("polygon", points=joined, fill=colour)

    def text(
        self,
        x: float,
        y: float,
        text: str,
        size: float = 12,
        anchor: str = "start",
        colour: str = "var(--ink)",
        weight: int = 400,
    ) -> None:
        width = text_width(text, size) * (BOLD if weight > 400 else 1.0)
        left = x - width * {"start": 0.0, "middle": 0.5, "end": 1.0}[anchor]
        assert left >= 0, f"{self.title}: {text!r} is cut off on the left"
        assert left + width <= self.width, f"{self.title}: {text!r} is cut off on the right"
        inner = ""
        lowered = False
        for piece, kind in spans(text):
            shift = ""
            if (kind == "subscript") != lowered:
                lowered = kind == "subscript"
                shift = f' dy="{number(size * (0.22 if lowered else -0.22))}"'
            small = f' font-size="{number(SMALL * size)}"' if kind == "subscript" else ""
            italic = ' class="v"' if kind and not piece.isdigit() else ""
            inner += f"<tspan{shift}{small}{italic}>{escape(piece)}</tspan>"
        self.parts.append(
            f'<text x="{number(x)}" y="{number(y)}" font-size="{number(size)}" '
            f'xml:space="preserve" text-anchor="{anchor}" font-weight="{weight}" '
            f'fill="{colour}">{inner}</text>'
        )

    def done(self) -> str:
        title = escape(self.title, quote=True)
        head = (
            '<svg xmlns="http://www.w3.org/2000/svg" class="figure" role="img" '
            f'aria-label="{title}" '
            f'viewBox="-1 -1 {number(self.width + 2)} {number(self.height + 2)}" '
            f'width="{number(self.width + 2)}" height="{number(self.height + 2)}">'
        )
        return "\n".join([head, f"<title>{title}</title>", style(), *self.parts, "</svg>", ""])


def number(value: object) -> str:
    """One decimal is enough, and keeps the files the same on every machine."""
    if not isinstance(value, float):
        return escape(str(value), quote=True)
    rounded = round(value, 1) + 0.0  # no minus before a zero
    return f"{rounded:g}"


def along(points: list[tuple[float, float]], share: float) -> tuple[float, float]:
    """The point after `share` of a line's length."""
    rest = share * sum(math.dist(a, b) for a, b in pairwise(points))
    for a, b in pairwise(points):
        length = math.dist(a, b)
        if rest <= length:
            part = rest / length
            return a[0] + part * (b[0] - a[0]), a[1] + part * (b[1] - a[1])
        rest -= length
    return points[-1]
