"""The pages of the documentation, which their tests share."""

from __future__ import annotations

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "docs"))
try:
    import method_tables as method_tables
    import record_tables as record_tables
finally:
    sys.path.remove(str(ROOT / "docs"))
README = (ROOT / "README.md").read_text(encoding="utf-8")
PAGES = [
    *sorted((ROOT / "docs").rglob("*.md")),
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "CHANGELOG.md",
]


def blocks(language: str, text: str = README) -> list[str]:
    """The code blocks of a language on a page."""
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


# Pages that speak of the code as it is now.
NAMED = [
    page
    for page in PAGES
    if page.name != "CHANGELOG.md" and page.parent.name not in ("decisions", "results")
]
