"""The tables of methods in README.md and in the pages, written by `python docs/method_tables.py`.

No method is listed by hand in a second place. Its factory says in its docstring what it does, how
many models it trains and which paper it is from. Its page in docs/algorithms says what its clients
send. The tables stand between `<!-- methods: NAME -->` and `<!-- end of methods -->`. A test
compares them with what this script writes, and says what a new method still lacks.
"""

from __future__ import annotations

import inspect
import re
import textwrap
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
COMMAND = "python docs/method_tables.py"
Factories = Mapping[str, Callable[..., Any]]

PER_GROUP = "one per group, their number "
INDEX = """\
## A model per group

These methods find groups of clients and train a model for each.

{grouped}

## One model

These methods train one model for all clients.

{single}"""

SOURCE = re.compile(r"Source: (?P<authors>[^,]+), (?P<title>.+) \((?P<year>\d{4})\)")
ROW = re.compile(r"^\| `(?P<name>\w+)` \| (?P<fields>(?:`\w+` ?)+)\| (?P<senders>.+) \|$", re.M)


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
            found[row["name"]] = Sent(page.stem, row["fields"].strip(), row["senders"])
    return found


def table(*rows: tuple[str, ...]) -> str:
    """A Markdown table; its first row is the head."""
    head, *others = [f"| {' | '.join(row)} |" for row in rows]
    return "\n".join([head, "|" + "---|" * len(rows[0]), *others])


def overview(factories: Factories, pages: Mapping[str, Sent]) -> str:
    """The table of README.md."""
    rows = [("name", "what it does", "paper (with a link to the method's page)")]
    for name, factory in factories.items():
        said = summary(factory)
        link = f"[{said.paper}](docs/algorithms/{pages[name].page}.md)"
        rows.append((f"`{name}`", said.line, link))
    return table(*rows)


def index(factories: Factories, pages: Mapping[str, Sent]) -> str:
    """The two tables of docs/algorithms/index.md."""
    grouped = [("method", "name", "what it does", "number of groups")]
    single = [("method", "name", "what it does")]
    for name, factory in factories.items():
        said = summary(factory)
        row = (f"[{said.title}]({pages[name].page}.md)", f"`{name}`", said.line)
        _, per_group, number = said.models.partition(PER_GROUP)
        if per_group:
            grouped.append((*row, number))
        else:
            single.append(row)
    return INDEX.format(grouped=table(*grouped), single=table(*single))


def replies(factories: Factories, pages: Mapping[str, Sent]) -> str:
    """The table of docs/privacy.md."""
    rows = [("method", "fields", "from whom, and when")]
    rows += [(f"`{name}`", pages[name].fields, pages[name].senders) for name in factories]
    return table(*rows)


def needed(factories: Factories, pages: Mapping[str, Sent]) -> str:
    """The table of what a server needs of single clients, in docs/privacy.md."""
    from coterie.methods.method import Method
    from coterie.methods.traits import IN_ROUNDS, WORDS, single_updates

    rows = [("method", "single updates are needed", "and what clients say of their data")]
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


def migrating(factories: Factories, pages: Mapping[str, Sent]) -> str:
    """The list of docs/shifts.md."""
    from coterie.runs.compose import can_migrate

    names = [f"`{name}`" for name in factories if can_migrate(name)]
    listed = f"{', '.join(names[:-1])} and {names[-1]}."
    return textwrap.fill(listed, 100)


# Name between the markers -> the file, and what is written there.
TABLES: Mapping[str, tuple[str, Callable[[Factories, Mapping[str, Sent]], str]]] = {
    "overview": ("README.md", overview),
    "index": ("docs/algorithms/index.md", index),
    "replies": ("docs/privacy.md", replies),
    "needed": ("docs/privacy.md", needed),
    "migrating": ("docs/shifts.md", migrating),
}


def stale(factories: Factories, root: Path = ROOT) -> Iterator[tuple[Path, str]]:
    """The files whose tables are not up to date, each with its new text.

    A method without a page is left out: there is nothing to link to.
    """
    pages = sent(root)
    known = {name: factory for name, factory in factories.items() if name in pages}
    for marker, (name, write) in TABLES.items():
        file = root / name
        text = file.read_text(encoding="utf-8")
        begin = f"<!-- methods: {marker} -->\n"
        end = "\n<!-- end of methods -->"
        before, _, rest = text.partition(begin)
        _, _, after = rest.partition(end)
        assert after, f"{name} has lost the markers {begin.strip()} and {end.strip()}"
        written = f"{before}{begin}\n{write(known, pages)}\n{end}{after}"
        if written != text:
            yield file, written


if __name__ == "__main__":
    from coterie.algorithms import ALGORITHMS

    for changed, written in stale(ALGORITHMS):
        changed.write_text(written, encoding="utf-8")
        print(f"wrote {changed.relative_to(ROOT)}")
