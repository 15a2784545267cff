"""The decision tree of docs/choose.md: questions from top to bottom, and what to try."""

from __future__ import annotations

from dataclasses import dataclass

from panels import ink
from svg import Canvas, text_width, wrap

FILE = "choosing.svg"
TITLE = (
    "Questions from top to bottom: the first that is answered with yes names the methods to try. "
    "The list below has the same in words."
)
ASKED = 250.0  # width of a question
GAP = 62.0  # between a question and its answer
ANSWER = 452.0  # width of an answer
SIZE = 12.5
LINE = 18.0
PAD = 10.0
SPACE = 26.0  # between two questions


@dataclass(frozen=True)
class Branch:
    """Methods to try, and when: files of docs/algorithms by the names that are shown."""

    when: str
    methods: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Question:
    text: str
    branches: tuple[Branch, ...]


FEDGROUP = ("FedGroup", "fedgroup")
IFCA = ("IFCA", "ifca")
QUESTIONS = (
    Question(
        "Few clients, all with similar data?",
        (
            Branch(
                "one model:",
                (("FedAvg", "fedavg"), ("FedProx", "fedprox"), ("FedOpt", "fedopt")),
            ),
        ),
    ),
    Question(
        "One model for all, and unbalanced classes?",
        (
            Branch(
                "weights or sequences:",
                (("RFedAvg", "rfedavg"), ("FedGSP", "fedgsp"), ("Astraea", "astraea")),
            ),
        ),
    ),
    Question(
        "Does every client differ from every other?",
        (
            Branch("labels differ:", (("FedPer", "fedper"), ("FedRep", "fedrep"))),
            Branch("inputs look different:", (("FedBN", "fedbn"),)),
            Branch("a shared model, too:", (("FedROD", "fedrod"),)),
            Branch("unknown how much:", (("Ditto", "ditto"), ("APFL", "apfl"))),
        ),
    ),
    Question(
        "Is each client a mixture of several kinds?",
        (
            Branch("shares of groups:", (("FedSoft", "fedsoft"),)),
            Branch("several models for each client:", (("FedEM", "fedem"), ("FedRC", "fedrc"))),
        ),
    ),
    Question(
        "Do the clients' data change over time?",
        (
            Branch("shows in the labels:", (("FlexCFL", "flexcfl"), IFCA)),
            Branch("does not show there:", (("FedDrift", "feddrift"),)),
            Branch("few clients, often there:", (("Feroma", "feroma"),)),
        ),
    ),
    Question(
        "May clients describe their data before they train?",
        (
            Branch("clients without labels join later:", (("FLUX", "flux"),)),
            Branch("means of inputs differ:", (("k-FED", "k_fed"),)),
            Branch("otherwise:", (("PACFL", "pacfl"),)),
        ),
    ),
    Question(
        "Can some clients train once before the groups are formed?",
        (
            Branch("start here:", (FEDGROUP, ("FedClust", "fedclust"))),
            Branch("few clients, all reachable:", (("SR-FCA", "sr_fca"),)),
            Branch("groups hard to tell apart:", (("CFL-GP", "cfl_gp"),)),
            Branch("unequal numbers of samples:", (("CORNFLQS", "cornflqs"),)),
            Branch("similar inputs in all groups:", (("LCFed", "lcfed"),)),
        ),
    ),
    Question(
        "",  # none is left
        (
            Branch("number of groups known:", (("CLoVE", "clove"), IFCA, ("FeSEM", "fesem"))),
            Branch("their number should grow:", (("CFL", "cfl"),)),
            Branch("clients arrive one by one:", (("StoCFL", "stocfl"),)),
            Branch("very many clients, updates only:", (("Auxo", "auxo"),)),
            Branch("many rounds, losses only:", (("FedGWC", "fedgwc"),)),
        ),
    ),
)


def tree_picture() -> str:
    """The tree as an SVG whose methods are links."""
    heights = [_height(question) for question in QUESTIONS]
    total = sum(heights) + SPACE * (len(QUESTIONS) - 1)
    canvas = Canvas(ASKED + GAP + ANSWER, total, TITLE)
    top = 0.0
    for number, (question, tall) in enumerate(zip(QUESTIONS, heights, strict=True)):
        middle = top + tall / 2
        if question.text:
            _ask(canvas, f"{number + 1}. {question.text}", top, tall)
            canvas.arrow([(ASKED, middle), (ASKED + GAP - 2, middle)], "var(--line)")
            canvas.text(ASKED + GAP / 2 - 3, middle - 6, "yes", size=11.5, anchor="middle")
            bottom = top + tall
            if number < len(QUESTIONS) - 2:
                canvas.arrow([(ASKED / 2, bottom), (ASKED / 2, bottom + SPACE - 2)], "var(--line)")
                canvas.text(ASKED / 2 + 8, bottom + SPACE / 2 + 4, "no", size=11.5)
            else:
                end = bottom + SPACE + heights[-1] / 2
                corner = [(ASKED / 2, bottom), (ASKED / 2, end), (ASKED + GAP - 2, end)]
                canvas.arrow(corner, "var(--line)")
                canvas.text(ASKED / 2 + 8, bottom + SPACE / 2 + 4, "no", size=11.5)
                canvas.text(ASKED / 2 + 10, end - 7, "groups form in training", size=11.5)
        _answer(canvas, question.branches, top, tall)
        top += tall + SPACE
    return canvas.done()


def _height(question: Question) -> float:
    asked = len(wrap(question.text, SIZE, ASKED - 2 * PAD - 14))
    return max(asked, len(question.branches)) * LINE + 2 * PAD


def _ask(canvas: Canvas, text: str, top: float, tall: float) -> None:
    canvas.rect(0.0, top, ASKED, tall, rx=8, fill="var(--panel)", stroke="var(--edge)")
    lines = wrap(text, SIZE, ASKED - 2 * PAD)
    first = top + tall / 2 - LINE * (len(lines) - 1) / 2 + 4
    for index, line in enumerate(lines):
        canvas.text(PAD, first + LINE * index, line, size=SIZE)


def _answer(canvas: Canvas, branches: tuple[Branch, ...], top: float, tall: float) -> None:
    left = ASKED + GAP
    canvas.rect(left, top, ANSWER, tall, rx=8, fill="var(--paper)", stroke=ink(1))
    first = top + tall / 2 - LINE * (len(branches) - 1) / 2 + 4
    for index, branch in enumerate(branches):
        level = first + LINE * index
        canvas.text(left + PAD, level, branch.when, size=SIZE, colour="var(--muted)")
        at = left + PAD + 222
        for name, page in branch.methods:
            canvas.parts.append(f'<a href="algorithms/{page}.html">')
            canvas.text(at, level, name, size=SIZE, colour=ink(1), weight=600)
            canvas.parts.append("</a>")
            at += text_width(name, SIZE) * 1.16 + 14
