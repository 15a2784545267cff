"""Tables of all methods, which the directive `methods` shows when the documentation is built.

No method is listed by hand in a second place. Its factory says in its docstring what it does, how
many models it trains and which paper it is from. Its page in docs/algorithms says what its clients
send, and in how many exchanges. A test says what a new method still lacks.
"""

from __future__ import annotations

import inspect
import re
import textwrap
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
Factories = Mapping[str, Callable[..., Any]]

PER_GROUP = "one per group; their number is "

SOURCE = re.compile(r"Source: (?P<authors>[^,]+), (?P<title>.+) \((?P<year>\d{4})\)")
ROW = re.compile(
    r"^\| `(?P<name>\w+)` \| (?P<fields>(?:`\w+` ?)+)\| (?P<senders>.+) "
    r"\| (?P<exchanges>none|\d+(?:, \d+)*) \|$",
    re.MULTILINE,
)


@dataclass(frozen=True)
class Summary:
    """What a factory's docstring says; empty where it does not say it."""

    title: str = ""
    line: str = ""
    models: str = ""
    paper: str = ""


@dataclass(frozen=True)
class Sent:
    """What the page of a method says of the replies of its clients."""

    page: str
    fields: str
    senders: str
    exchanges: str


def summary(factory: Callable[..., Any]) -> Summary:
    """The first paragraph is "Name: what it does."; others begin with "Models:" or "Source:"."""
    paragraphs = [" ".join(one.split()) for one in (inspect.getdoc(factory) or "").split("\n\n")]
    title, colon, line = paragraphs[0].partition(": ")
    if not colon:
        title = ""
    models = next((one for one in paragraphs if one.startswith("Models: ")), "")
    source = next(filter(None, map(SOURCE.match, paragraphs)), None)
    paper = "" if source is None else f"{source['authors']} {source['year']}"
    return Summary(title, capitalised(line), models.removeprefix("Models: ").rstrip("."), paper)


def capitalised(sentence: str) -> str:
    return sentence[:1].upper() + sentence[1:]


def sections(text: str) -> dict[str, str]:
    """The text below each heading of the second level."""
    parts = re.split(r"^## (.+)\n", text, flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def sent(root: Path = ROOT) -> dict[str, Sent]:
    """What each method's page says in its section "What is sent"."""
    found = {}
    for page in sorted((root / "docs" / "algorithms").glob("*.md")):
        section = sections(page.read_text(encoding="utf-8")).get("What is sent", "")
        for row in ROW.finditer(section):
            found[row["name"]] = Sent(
                page.stem, row["fields"].strip(), row["senders"], row["exchanges"]
            )
    return found


def table(*rows: tuple[str, ...]) -> str:
    """A Markdown table; its first row is the head."""
    head, *others = [f"| {' | '.join(row)} |" for row in rows]
    return "\n".join([head, "|" + "---|" * len(rows[0]), *others])


def grouped(factories: Factories, pages: Mapping[str, Sent]) -> str:
    """The methods that train a model per group."""
    rows = [("method", "name", "what it does", "paper", "number of groups")]
    for name, factory in factories.items():
        _, per_group, number = summary(factory).models.partition(PER_GROUP)
        if per_group:
            rows.append((*row_of(name, factory, pages), number))
    return table(*rows)


def single(factories: Factories, pages: Mapping[str, Sent]) -> str:
    """The methods that train one model."""
    rows = [("method", "name", "what it does", "paper")]
    for name, factory in factories.items():
        if PER_GROUP not in summary(factory).models:
            rows.append(row_of(name, factory, pages))
    return table(*rows)


def row_of(name: str, factory: Callable[..., Any], pages: Mapping[str, Sent]) -> tuple[str, ...]:
    """The row of a method in the lists of methods."""
    said = summary(factory)
    return f"[{said.title}]({pages[name].page}.md)", f"`{name}`", said.line, said.paper


def replies(factories: Factories, pages: Mapping[str, Sent]) -> str:
    """What the replies of clients contain."""
    rows = [("method", "fields", "from whom, and when")]
    rows += [(f"`{name}`", pages[name].fields, pages[name].senders) for name in factories]
    return table(*rows)


def needed(factories: Factories, pages: Mapping[str, Sent]) -> str:
    """What a server needs of single clients."""
    from coterie.methods.method import Method
    from coterie.methods.traits import IN_ROUNDS, WORDS, single_updates

    rows = [("method", "individual updates are needed", "and data statistics of clients")]
    for name, factory in factories.items():
        method = factory()
        assert isinstance(method, Method), name
        occasions = single_updates(method)
        needs = [WORDS[one] for one in occasions if one not in IN_ROUNDS]
        in_rounds = [WORDS[one] for one in occasions if one in IN_ROUNDS]
        if in_rounds:
            needs.append(f"in every round: {', and '.join(in_rounds)}")
        statistics = "statistics" in (method.needs or ())
        rows.append((f"`{name}`", "; ".join(needs) or "no", "yes" if statistics else "no"))
    return table(*rows)


def exchanges(factories: Factories, pages: Mapping[str, Sent]) -> str:
    """How many exchanges each of the first rounds takes."""
    rows = [("method", "exchanges of rounds 0, 1, 2 and 3")]
    rows += [(f"`{name}`", pages[name].exchanges) for name in factories]
    return table(*rows)


def migrating(factories: Factories, pages: Mapping[str, Sent]) -> str:
    """The methods that can follow a shift, as a sentence."""
    from coterie.runs.fitting import can_migrate

    names = [f"`{name}`" for name in factories if can_migrate(name)]
    return textwrap.fill(f"{', '.join(names[:-1])} and {names[-1]}.", 100)


TABLES: Mapping[str, Callable[[Factories, Mapping[str, Sent]], str]] = {
    "grouped": grouped,
    "single": single,
    "replies": replies,
    "needed": needed,
    "exchanges": exchanges,
    "migrating": migrating,
}
