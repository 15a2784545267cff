"""Time and memory of reading a table, in multiples of what pandas takes.

A table of 10^6 rows and 20 columns of every kind is written as CSV and as parquet. Each way to read
it runs in a process of its own, ways in turn. Times are the least of several: seconds, and those of
all processors, which depend less on what else the machine does. Memory is the most that a process
held more than after its imports, over the size of the frame that pandas makes.

- ``pandas``: ``pandas.read_csv`` or ``pandas.read_parquet``.
- ``rows``: `coterie.data.rows.reading.read_rows` alone.
- ``training``: as for a run: the kind of each column, and the lines about its values.

    python -m benchmarks.table_reading [--rows 1000000] [--repeat 3] [--json FILE]
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

FORMATS = ("csv", "parquet")
WAYS = ("pandas", "rows", "training")
HOSPITALS = 200


def table(rows: int) -> Any:
    """A table of 20 columns: identifiers, categories, numbers, times, text, with missing values."""
    import pandas as pd

    rng = np.random.default_rng(0)

    def picked(values: list[str]) -> Any:
        return pd.Series(np.array(values, dtype=object)[rng.integers(len(values), size=rows)])

    def missing(column: Any, share: float) -> Any:
        return pd.Series(column).mask(rng.random(rows) < share)

    seconds = np.sort(rng.integers(1_300_000_000, 1_700_000_000, rows))
    moments = pd.Series(seconds.astype("datetime64[s]"))
    days = pd.Series(rng.integers(0, 30_000, rows).astype("datetime64[D]").astype("datetime64[s]"))
    words = np.array(["pain", "fever", "rest", "cough", "mild", "acute", "chest", "left"])
    notes = pd.Series(words[rng.integers(len(words), size=rows)])
    for _ in range(3):
        notes = notes + " " + pd.Series(words[rng.integers(len(words), size=rows)])
    columns = {
        "hospital": picked([f"{one:04d}" for one in range(HOSPITALS)]),
        "patient": pd.Series(rng.integers(10**17, 10**18, rows)).astype(str),
        "visit": np.arange(rows),
        "admitted": moments.dt.strftime("%Y-%m-%d %H:%M:%S"),
        "born": missing(days.dt.strftime("%Y-%m-%d"), 0.05),
        "note": notes + " " + pd.Series(np.arange(rows)).astype(str),
        "sex": picked(["female", "male"]),
        "ward": picked([f"ward {one}" for one in range(40)]),
        "drug": missing(picked([f"drug-{one:05d}" for one in range(3_000)]), 0.1),
        "code": picked([f"{one:02d}{letter}" for one in range(40) for letter in "ABC"]),
        "smoker": picked(["true", "false"]),
        "age": rng.integers(0, 100, rows),
        "stage": rng.integers(1, 5, rows),
        "beds": missing(rng.integers(0, 1_000, rows).astype(np.float64), 0.1),
        "weight": rng.normal(75, 12, rows).round(1),
        "height": rng.normal(1.7, 0.1, rows).round(3),
        "glucose": missing(rng.lognormal(1.6, 0.3, rows).round(4), 0.2),
        "pressure": rng.normal(size=rows),
        "lactate": missing(rng.gamma(2.0, size=rows), 0.3),
        "disease": picked(["no", "yes"]),
    }
    return pd.DataFrame(columns)


def read(way: str, path: Path) -> Any:
    """Read the table in one of the ways."""
    import pandas as pd

    if way == "pandas":
        return pd.read_csv(path) if path.suffix == ".csv" else pd.read_parquet(path)
    if way == "rows":
        from coterie.data.rows.reading import read_rows

        return read_rows(path)
    from coterie.data.tabular.notes import notes_on_values
    from coterie.data.tabular.training_rows import read_training_rows

    known = {"hospital": "identifier", "split": "category", "disease": "category"}
    rows, kinds = read_training_rows([path], known)
    notes_on_values(rows, kinds)
    return rows


def measured(way: str, path: Path) -> dict[str, float]:
    """Seconds and the largest memory of this process, which reads the table once."""
    # What the first call imports is no part of reading.
    warm_up = path.with_name(f"few{path.suffix}")
    read(way, warm_up)
    before = largest_memory()
    begun = time.perf_counter()
    begun_processor = time.process_time()
    found = read(way, path)
    seconds = time.perf_counter() - begun
    processor = time.process_time() - begun_processor
    peak = largest_memory()
    size = int(found.memory_usage(deep=True).sum()) if way == "pandas" else 0
    return {"seconds": seconds, "processor": processor, "bytes": peak - before, "frame": size}


def largest_memory() -> int:
    """The most bytes that this process held so far."""
    # Not getrusage, whose figure a process takes over from the one that started it.
    status = Path("/proc/self/status").read_text()
    line = next(line for line in status.splitlines() if line.startswith("VmHWM:"))
    return int(line.split()[1]) * 1024


def in_process(way: str, path: Path) -> dict[str, float]:
    """`measured` in a process of its own."""
    command = [sys.executable, "-m", "benchmarks.table_reading", "--read", way, str(path)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def write(folder: Path, rows: int) -> None:
    """Write the table, and its first rows, in all formats."""
    frame = table(rows)
    for name, part in {"all": frame, "few": frame.head(1_000)}.items():
        part.to_csv(folder / f"{name}.csv", index=False)
        part.to_parquet(folder / f"{name}.parquet", index=False)


def compare(folder: Path, suffix: str, repeat: int) -> dict[str, dict[str, float]]:
    """What each way takes, and its multiples of what pandas takes."""
    path = folder / f"all.{suffix}"
    runs: dict[str, list[dict[str, float]]] = {way: [] for way in WAYS}
    for _ in range(repeat):
        for way in WAYS:
            runs[way].append(in_process(way, path))
    frame = runs["pandas"][0]["frame"]

    def least(way: str, what: str) -> float:
        return min(run[what] for run in runs[way])

    return {
        way: {
            "seconds": least(way, "seconds"),
            "time": least(way, "seconds") / least("pandas", "seconds"),
            "processor": least(way, "processor") / least("pandas", "processor"),
            "memory": least(way, "bytes") / frame,
        }
        for way in WAYS
    }


def show(found: dict[str, dict[str, dict[str, float]]]) -> None:
    """A line for each format and way."""
    print(f"load of the machine {os.getloadavg()[0]:.1f}")
    print("format   way        seconds  time  processor time  memory")
    for suffix, ways in found.items():
        for way, one in ways.items():
            print(
                f"{suffix:8} {way:9} {one['seconds']:8.2f} {one['time']:5.2f} "
                f"{one['processor']:15.2f} {one['memory']:7.2f}"
            )


def main() -> None:
    """Write the table, read it in each way, and print what each takes."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=10**6)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--read", nargs=2, metavar=("WAY", "FILE"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.read:
        way, path = arguments.read
        print(json.dumps(measured(way, Path(path))))
        return
    with tempfile.TemporaryDirectory() as folder:
        write(Path(folder), arguments.rows)
        found = {suffix: compare(Path(folder), suffix, arguments.repeat) for suffix in FORMATS}
    show(found)
    if arguments.json:
        arguments.json.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
