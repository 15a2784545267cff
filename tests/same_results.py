"""Compare the results of an earlier commit with those of the working tree, to the bit.

Both trees run the same cases on this machine, each in its own process: every case of the contract
suite, without and with clients that swap their data, and ten methods on MNIST. Final models,
members and all rows but their times must be equal. Digests are not committed, because compiled
sums have other last bits on another processor.

    python -m tests.same_results --quick                       # one minute, without MNIST
    python -m tests.same_results --keep FOLDER                 # the earlier commit runs only once
    python -m tests.same_results --base HEAD~3 --only 'ifca*'
    python -m tests.same_results --allow 'ifca*:transfers=a client tells its choice, not its losses'
"""

from __future__ import annotations

import argparse
import hashlib
import io
import json
import os
import platform
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
CASES = (
    Path(__file__).with_name("same_results_cases.py"),
    Path(__file__).with_name("contract") / "cases.py",
)
BEFORE_THE_HOUSE = "16b4afe"
TIMES = frozenset({"seconds"})
ABSENT = "(absent)"


@dataclass(frozen=True)
class Difference:
    """A field whose value is not the same in both trees; ``round`` is None for what is final."""

    case: str
    round: int | None
    field: str
    base: str
    new: str

    def __str__(self) -> str:
        where = "final" if self.round is None else f"round {self.round}"
        return f"{self.case}, {where}, {self.field}: base {self.base}, new {self.new}"


@dataclass(frozen=True)
class Stored:
    """What is compared of one case; a case that failed has only its error."""

    models: np.ndarray
    members: np.ndarray
    rows: list[dict[str, Any]]
    failure: str = ""


@dataclass(frozen=True)
class Allowed:
    """A field that is meant to change: a pattern of cases, the field and why."""

    case: str
    field: str
    reason: str

    @classmethod
    def parse(cls, text: str) -> Allowed:
        """``[CASE:]FIELD=REASON``; CASE may have wildcards, FIELD covers all that is below it."""
        place, equals, reason = text.partition("=")
        if not equals or not reason.strip():
            raise argparse.ArgumentTypeError(f"got {text!r}; expected [CASE:]FIELD=REASON")
        case, colon, field = place.rpartition(":")
        return cls(case if colon else "*", field, reason)

    def covers(self, difference: Difference) -> bool:
        """Whether a difference is one that this allows."""
        below = f"{difference.field}.".startswith(f"{self.field}.")
        return below and fnmatchcase(difference.case, self.case)


def read_case(folder: Path, case: str) -> Stored:
    """The stored result of a case."""
    failure = folder / f"{case}.failed"
    if failure.exists():
        return Stored(np.empty(0), np.empty(0), [], failure.read_text())
    with np.load(folder / f"{case}.npz", allow_pickle=False) as stored:
        rows = json.loads(str(stored["rows"]))
        return Stored(stored["models"], stored["members"], rows)


def differences(case: str, base: Stored, new: Stored) -> Iterator[Difference]:
    """All differences of a case: round by round, then the final members and models."""
    if base.failure or new.failure:
        yield Difference(case, None, "failure", base.failure or "none", new.failure or "none")
        return
    if len(base.rows) != len(new.rows):
        yield Difference(case, None, "rounds", str(len(base.rows)), str(len(new.rows)))
    for number, (before, after) in enumerate(zip(base.rows, new.rows, strict=False)):
        for field, old, now in unequal_fields(flat(before), flat(after)):
            yield Difference(case, number, field, old, now)
    for field in ("members", "models"):
        old, now = unequal_arrays(getattr(base, field), getattr(new, field))
        if old != now:
            yield Difference(case, None, field, old, now)


def flat(value: Any, field: str = "") -> dict[str, str]:
    """The values of a row by their dotted fields, written as JSON, without times.

    JSON tells 1 from 1.0 and 0.0 from -0.0, holds every bit of a float64, and makes NaN equal NaN.
    """
    if isinstance(value, dict) and value:
        named = [(name, one) for name, one in value.items() if name not in TIMES]
    elif isinstance(value, list) and value:
        named = [(str(place), one) for place, one in enumerate(value)]
    else:
        return {field: json.dumps(value)}
    fields: dict[str, str] = {}
    for name, one in named:
        fields |= flat(one, f"{field}.{name}" if field else name)
    return fields


def unequal_fields(
    base: Mapping[str, str],
    new: Mapping[str, str],
) -> Iterator[tuple[str, str, str]]:
    """Fields with other values, and fields that only one of two flat rows has."""
    for field in [*base, *(name for name in new if name not in base)]:
        old = base.get(field, ABSENT)
        now = new.get(field, ABSENT)
        if old != now:
            yield field, old, now


def unequal_arrays(base: np.ndarray, new: np.ndarray) -> tuple[str, str]:
    """The first values that differ in a bit, with their place; two equal texts if none does."""
    if base.dtype != new.dtype or base.shape != new.shape:
        return f"{base.dtype} {base.shape}", f"{new.dtype} {new.shape}"
    # Bits and not values: 0.0 == -0.0, and NaN != NaN.
    bits = [np.ascontiguousarray(each).view(np.uint8).ravel() for each in (base, new)]
    changed = np.flatnonzero(bits[0] != bits[1]) // base.itemsize
    if not len(changed):
        return "equal", "equal"
    first = int(changed[0])
    place = [int(one) for one in np.unravel_index(first, base.shape)]
    count = len(np.unique(changed))
    old = f"{base.flat[first]!r} at {place}"
    now = f"{new.flat[first]!r} at {place} ({count} of {base.size} values differ)"
    return old, now


def report(found: Sequence[Difference], allowed: Sequence[Allowed]) -> list[Difference]:
    """Print what differs and why it may; return what is not allowed."""
    refused = [one for one in found if not any(rule.covers(one) for rule in allowed)]
    for rule in allowed:
        covered = [one for one in found if rule.covers(one)]
        print(f"ALLOWED {rule.case}:{rule.field}, {len(covered)} differences: {rule.reason}")
        if covered:
            print(f"  first: {covered[0]}")
    for case in dict.fromkeys(one.case for one in refused):
        mine = [one for one in refused if one.case == case]
        fields = sorted({one.field.split(".")[0] for one in mine})
        print(f"DIFFERENT {mine[0]}")
        if len(mine) > 1:
            print(f"  {len(mine)} differences, in the fields {', '.join(fields)}")
    return refused


def export(commit: str, folder: Path) -> None:
    """Write the sources of a commit into a folder."""
    command = ["git", "archive", commit, "src"]
    packed = subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE).stdout
    with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        archive.extractall(folder, filter="data")


def digest(*parts: bytes) -> str:
    """Twelve hexadecimal digits that name some bytes."""
    return hashlib.sha256(b"\0".join(parts)).hexdigest()[:12]


def machine() -> str:
    """The processor and the versions of what computes: results are kept for these only."""
    processor = platform.processor() or platform.machine()
    facts = Path("/proc/cpuinfo")
    if facts.exists():
        lines = facts.read_text().splitlines()
        processor = next((line for line in lines if line.startswith("model name")), processor)
    versions = [f"{name} {version(name)}" for name in ("numpy", "scipy", "torch", "numba")]
    return ", ".join([processor, platform.python_version(), *versions])


def content(tree: Path) -> str:
    """A name for the sources of a tree, so that a changed tree is never taken for its commit."""
    files = sorted((tree / "src").rglob("*.py"))
    return digest(*(str(file.relative_to(tree)).encode() + file.read_bytes() for file in files))


def compiled_content(tree: Path) -> str:
    """A name for the sources of what Numba compiles in a tree.

    A kernel that Numba kept does not notice that a function it calls in another file has changed.
    So what is kept belongs to the content of all files in the packages that compile anything.
    """
    sources = (tree / "src").rglob("*.py")
    packages = {file.parent for file in sources if "numba" in file.read_text(encoding="utf-8")}
    files = sorted(file for package in packages for file in package.glob("*.py"))
    return digest(*(file.read_bytes() for file in files))


def start(
    tree: Path,
    results: Path,
    scratch: Path,
    compiled: Path,
    selection: Sequence[str],
) -> subprocess.Popen[bytes]:
    """Start the process that runs the cases in one tree."""
    results.mkdir(parents=True, exist_ok=True)
    source = tree / "src"
    environment = os.environ | {
        "PYTHONPATH": str(source),
        "NUMBA_CACHE_DIR": str(compiled),
        "OMP_NUM_THREADS": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    command = [sys.executable, "-m", "tests.same_results_cases", str(results)]
    command += ["--src", str(source), *selection]
    scratch.mkdir()
    with open(scratch / "log", "w") as log:
        return subprocess.Popen(
            command,
            cwd=ROOT,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=log,
        )


def finish(name: str, process: subprocess.Popen[bytes], scratch: Path, verbose: bool) -> list[str]:
    """Wait for a tree's process and return the names of its cases."""
    begun = time.perf_counter()
    printed, _ = process.communicate()
    log = (scratch / "log").read_text()
    if process.returncode:
        raise SystemExit(f"the cases did not run in the {name} tree:\n{log[-3000:]}")
    if verbose:
        print(f"{name} tree\n{log}")
    names: list[str] = json.loads(printed.splitlines()[-1])
    ran = [line for line in log.splitlines() if line.split(": ")[0] in names]
    waited = time.perf_counter() - begun
    print(f"{name}: {len(ran)} cases run, {len(names) - len(ran)} kept, waited {waited:.0f} s")
    return names


def base_results(options: argparse.Namespace, tree: Path, scratch: Path) -> Path:
    """The folder of the base's results: one that is kept, or one that goes with the rest."""
    if options.keep is None:
        return scratch / "base-results"
    # Other sources, other cases or another machine have other results.
    cases = [file.read_bytes() for file in CASES]
    identity = digest(content(tree).encode(), *cases, machine().encode())
    return options.keep.resolve() / f"base-{identity}"


def run_both(options: argparse.Namespace, scratch: Path) -> list[Difference]:
    """Run the cases in both trees at the same time and compare what they leave."""
    base_tree = options.base_folder
    if base_tree is None:
        base_tree = scratch / "tree"
        export(options.base, base_tree)
    kept = base_results(options, base_tree, scratch)
    new_results = scratch / "new-results"
    selection = ["--quick"] if options.quick else []
    if options.only:
        selection += ["--only", *options.only]
    processes = {}
    for name, tree, results in (("base", base_tree, kept), ("new", ROOT, new_results)):
        compiled = scratch / name / "numba"
        # A base in a temporary folder could not find again what was compiled for it.
        if options.keep is not None and tree is ROOT:
            compiled = options.keep.resolve() / f"numba-{compiled_content(tree)}"
        processes[name] = start(tree, results, scratch / name, compiled, selection)
    cases = {
        name: finish(name, process, scratch / name, options.verbose)
        for name, process in processes.items()
    }
    compared = [case for case in cases["new"] if case in cases["base"]]
    added = [case for case in cases["new"] if case not in cases["base"]]
    if added:
        print(f"not compared, because the base lacks the method: {', '.join(added)}")
    gone = [case for case in cases["base"] if case not in cases["new"]]
    found = [Difference(case, None, "case", "run", ABSENT) for case in gone]
    for case in compared:
        found += differences(case, read_case(kept, case), read_case(new_results, case))
    base = options.base_folder or options.base
    print(f"compared {len(compared)} cases of {base} and the working tree")
    return found


def arguments() -> argparse.Namespace:
    """The options of the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--base", default=BEFORE_THE_HOUSE, help="commit to compare with")
    parser.add_argument("--base-folder", type=Path, help="use this tree in place of a commit")
    parser.add_argument("--quick", action="store_true", help="leave MNIST out")
    parser.add_argument("--only", nargs="+", metavar="NAME", help="cases, wildcards allowed")
    parser.add_argument("--keep", type=Path, help="folder for the base's results, to use again")
    parser.add_argument(
        "--allow",
        action="append",
        type=Allowed.parse,
        default=[],
        metavar="[CASE:]FIELD=REASON",
        help="a field that is meant to change, and why",
    )
    parser.add_argument("--verbose", action="store_true", help="print the time of every case")
    return parser.parse_args()


def main() -> int:
    """Compare; 0 if nothing differs but what is allowed, 1 otherwise."""
    options = arguments()
    if not options.quick and not options.only and not os.environ.get("COTERIE_DATA"):
        raise SystemExit("MNIST needs its data: set COTERIE_DATA, or leave it out with --quick")
    begun = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="same-results-") as scratch:
        found = run_both(options, Path(scratch))
    refused = report(found, options.allow)
    verdict = "equal"
    if found:
        verdict = "equal but for what is allowed"
    if refused:
        verdict = f"{len(refused)} differences that are not allowed"
    print(f"{verdict}, in {time.perf_counter() - begun:.0f} s")
    return 1 if refused else 0


if __name__ == "__main__":
    sys.exit(main())
