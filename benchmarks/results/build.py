"""Make the pages of ``docs/results`` from the result files of this folder.

    python -m benchmarks.results.build            # write the pages, and lay out the files
    python -m benchmarks.results.build --check    # say which pages are not what the files make

A page is ``<page>.md`` of this folder, in which ``{{ name | argument | ... }}`` stands for a table
(``tables.py``) or a figure (``figures.py``) made from ``<page>.json``. The pages are committed, so
that they can be read without a build; a test compares them with what this makes.
"""

from __future__ import annotations

import argparse
import re
import sys
import textwrap
from pathlib import Path

from benchmarks.results import papers, records
from benchmarks.results.figures import FIGURES
from benchmarks.results.intervals import INTERVALS
from benchmarks.results.records import FOLDER, TOPICS, ResultPage
from benchmarks.results.tables import TABLES
from benchmarks.results.unmeasured import UNMEASURED

PAGES = FOLDER.parents[1] / "docs" / "results"
PLACEHOLDER = re.compile(r"\{\{\s*(.+?)\s*\}\}", re.DOTALL)
CODE = re.compile(r"`[^`]*`")
COMMENT = "<!-- Made by `python -m benchmarks.results.build` from benchmarks/results/{name}. -->"


def fill(template: str, page: ResultPage) -> str:
    """The template with tables and figures in place of what stands in double braces."""
    return wrapped(PLACEHOLDER.sub(lambda match: _made(match[1], page), template))


def wrapped(text: str) -> str:
    """Paragraphs and list items in lines of at most 100 characters, everything else as it is."""
    blocks = re.split(r"(\n{2,}|\n(?=- ))", text)
    return "".join(_wrapped_block(block) for block in blocks)


def _wrapped_block(block: str) -> str:
    if not block.strip() or re.match(r"[|#`!<]", block):
        return block
    indent = "  " if block.startswith("- ") else ""
    end = "\n" if block.endswith("\n") else ""
    # A command that is broken over two lines cannot be copied from the file.
    kept = CODE.sub(lambda code: code[0].replace(" ", "\0"), " ".join(block.split()))
    # MyST takes a line that begins with a percent sign for a comment.
    kept = kept.replace(" %", "\0%")
    lines = textwrap.wrap(
        kept, width=100, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    )
    return "\n".join(lines).replace("\0", " ") + end


def _made(call: str, page: ResultPage) -> str:
    name, *arguments = [" ".join(part.split()) for part in call.split("|")]
    known = {**TABLES, **INTERVALS, **FIGURES, **UNMEASURED}
    make = known.get(name)
    if make is None:
        raise KeyError(f"{name}: expected one of {', '.join(known)}")
    named = dict(part.split("=", 1) for part in arguments if re.match(r"[a-z]+=", part))
    plain = [part for part in arguments if not re.match(r"[a-z]+=", part)]
    return make(page, *plain, **named)


def template(name: str) -> str:
    """A page's sentences, with places for its figures."""
    return (FOLDER / f"{name}.md").read_text(encoding="utf-8")


def body(name: str, page: ResultPage) -> str:
    """A page's Markdown."""
    source = f"[benchmarks/results/{name}.json](../../benchmarks/results/{name}.json)"
    head = f"{COMMENT.format(name=f'{name}.json and {name}.md')}\n\n# {page.question}\n"
    foot = f"All figures on this page, seed by seed: {source}.\n"
    return "\n".join([head, fill(template(name), page), foot])


def answer(name: str, page: ResultPage) -> str:
    """A page's first paragraph on one line."""
    return " ".join(fill(template(name), page).split("\n\n", 1)[0].split())


def index(pages: dict[str, ResultPage]) -> str:
    """The page from which every table of a paper is two clicks away."""
    return template("index").format(
        comment=COMMENT.format(name="papers.json and index.md"),
        papers=_papers(pages),
        questions="\n".join(_questions(topic, pages) for topic in TOPICS),
        names="\n".join(pages),
    )


def _papers(pages: dict[str, ResultPage]) -> str:
    """Every table and figure of the papers, with the pages that measure it."""
    lines = []
    for paper in papers.tables():
        lines.append(f"\n### {paper['paper']}\n")
        for table in paper["tables"]:
            lines.append(f"- **{table['name']}**, {table['shows']}.")
            lines += [f"  - [{pages[name].question}]({name}.md)" for name in table["pages"]]
            if table["otherwise"]:
                lines.append(f"  - {table['otherwise']}")
    return "\n".join(lines).strip()


def _questions(topic: str, pages: dict[str, ResultPage]) -> str:
    of_topic = {name: page for name, page in pages.items() if page.topic == topic}
    lines = [f"### {topic.capitalize()}\n"]
    for name, page in of_topic.items():
        lines.append(wrapped(f"- [{page.question}]({name}.md) {answer(name, page)}"))
    return "\n".join(lines) + "\n"


def make() -> dict[str, str]:
    """Every page by its file name."""
    pages = {name: records.read(name) for name in records.names()}
    made = {f"{name}.md": body(name, page) for name, page in pages.items()}
    return {**made, "index.md": index(pages)}


def differing(made: dict[str, str], folder: Path = PAGES) -> list[str]:
    """Names of the pages in the folder that are missing, too many, or not as they were made."""
    there = {path.name: path.read_text(encoding="utf-8") for path in folder.glob("*.md")}
    return sorted(name for name in {*made, *there} if made.get(name) != there.get(name))


def main() -> int:
    """Write the pages, or say which differ."""
    parser = argparse.ArgumentParser(description="Make the pages of docs/results.")
    parser.add_argument("--check", action="store_true", help="write nothing, say what differs")
    options = parser.parse_args()
    if not options.check:
        for name in records.names():
            records.write(name, records.read(name))
    made = make()
    names = differing(made)
    if options.check:
        print("\n".join(names))
        return 1 if names else 0
    PAGES.mkdir(parents=True, exist_ok=True)
    for name in names:
        if name in made:
            (PAGES / name).write_text(made[name], encoding="utf-8")
        else:
            (PAGES / name).unlink()
    print(f"{len(names)} of {len(made)} pages changed")
    return 0


if __name__ == "__main__":
    sys.exit(main())
