"""A chart of what `run` measured: how many times Coterie's median seconds a round of each peer
takes.

python -m benchmarks.peers.chart FILE.json [FILE.json ...] --out docs/peers.svg
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import altair as alt

SKIP = ("versions", "coterie")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("files", type=Path, nargs="+")
    parser.add_argument("--out", type=Path, default=Path("docs/peers.svg"))
    args = parser.parse_args()
    rows = []
    for path in args.files:
        for model, found in json.loads(path.read_text()).items():
            if model != "versions":
                base = found["coterie"]["median"]
                rows += [
                    {"model": model, "peer": name, "times": row["median"] / base}
                    for name, row in found.items()
                    if name not in SKIP
                ]
    title = "median seconds of a round, in times those of Coterie"
    bars = alt.Chart(alt.Data(values=rows)).encode(
        x=alt.X("times:Q", title=title, scale=alt.Scale(domainMin=0)),
        y=alt.Y("peer:N", title=None, sort="-x"),
    )
    text = bars.mark_text(align="left", dx=3).encode(text=alt.Text("times:Q", format=".1f"))
    chart = (
        (bars.mark_bar(color="#4c78a8") + text)
        .properties(width=360)
        .facet(row=alt.Row("model:N", title=None))
    )
    chart.resolve_scale(y="independent").save(args.out)
    print(f"chart: {args.out}")


if __name__ == "__main__":
    main()
