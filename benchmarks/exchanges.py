"""How many exchanges a round takes over Flower, counted for every method: writes the table of
docs/exchanges.md.

Four nodes with digits in this process run four rounds of each method, with an evaluation in every
round. The counts of the version before requests travelled together are in
benchmarks/exchanges_before.json; they were made by this script at that version.

    python -m benchmarks.exchanges
"""

from __future__ import annotations

import json
import re
import tempfile
from pathlib import Path

from tests.engines.test_flower import FEDERATED, deploy, every_method, nodes

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "exchanges.md"
BEFORE = ROOT / "benchmarks" / "exchanges_before.json"


def count(name: str) -> list[int]:
    """Exchanges of each round of a method."""
    config = every_method(name)
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        reported = deploy(place, config, nodes(place, config, 4), clients=4, min_clients=4)
    return [row["exchanges"] for row in reported.rows]


def main() -> None:
    before = json.loads(BEFORE.read_text(encoding="utf-8"))
    lines = ["| method | before | now |", "|---|---|---|"]
    for name in FEDERATED:
        counts = [", ".join(map(str, one)) for one in (before.get(name, []), count(name))]
        lines.append(f"| `{name}` | {counts[0] or 'new'} | {counts[1]} |")
    table = "\n".join(lines)
    page = PAGE.read_text(encoding="utf-8")
    whole = "<!-- exchanges -->\n\n" + table + "\n\n<!-- end of exchanges -->"
    page = re.sub(r"<!-- exchanges -->.*<!-- end of exchanges -->", whole, page, flags=re.S)
    PAGE.write_text(page, encoding="utf-8")


if __name__ == "__main__":
    main()
