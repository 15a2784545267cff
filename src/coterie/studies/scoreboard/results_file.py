"""Results of a scoreboard as a file that others can check, merge and draw.

All but the times is the same, bit for bit, whenever and in however many processes the suite is run
with the same versions; ``digest`` is the SHA-256 of that part.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from coterie.config.problems import problems
from coterie.errors import ConfigError, first_line
from coterie.files import read_json, replace_file
from coterie.runs.summary import versions
from coterie.studies.scoreboard.suite import Suite

FORMAT = "coterie scoreboard 1"
Results = dict[str, Any]

# --- what a file may hold -------------------------------------------------------------------------

# Of anybody: what is drawn has to be a number, and what is written may not move a cursor.
Name = Annotated[str, Field(pattern=r"^[^\x00-\x1f\x7f-\x9f]{1,200}$")]
Lines = Annotated[str, Field(pattern=r"^[^\x00-\x09\x0b-\x1f\x7f-\x9f]{0,5000}$")]
Digest = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
Whole = Annotated[int, Field(ge=0, le=2**63 - 1)]
Number = Annotated[float, Field(ge=-1e15, le=1e15, allow_inf_nan=False)]
MOST_SHOWN = 5  # problems of a file


class _Part(BaseModel):
    # JSON has no tuples, and a later version may write more.
    model_config = ConfigDict(extra="ignore", strict=True)


class _Seconds(_Part):
    run: Number
    grouping: Number
    course: list[Number]


class _Run(_Part):
    seed: Whole
    equal_work: Number | None
    equal_bytes: Number | None
    all_rounds: Number | None
    ari: Number | None
    groups: Whole
    steps: Whole
    bytes: Whole
    course: list[Annotated[list[Number], Field(min_length=4, max_length=4)]]
    digest: Digest
    seconds: _Seconds


class _Entry(_Part):
    federation: Name
    method: Name
    settings: Literal["defaults", "tuned"]
    options: dict[Name, Any]
    rate: Number | None
    trials: Whole
    refused: Lines
    runs: list[_Run]


class _Suite(_Part):
    seeds: list[Whole]


class _File(_Part):
    digest: Digest
    suite: _Suite
    federations: dict[Name, Digest]
    entries: list[_Entry]


def _check(path: Path, found: Mapping[str, Any]) -> None:
    """Refuse values that a scoreboard does not write, the first ones of them at once."""
    try:
        checked = _File.model_validate(found)
    except ValidationError as error:
        # Of a file of anybody's, which may have millions.
        wrong = problems(error, found, _File)[:MOST_SHOWN]
        raise ConfigError.of(wrong).located(str(path)) from None
    for entry in checked.entries:
        for run in entry.runs:
            if len(run.course) != len(run.seconds.course):
                got = f"{len(run.seconds.course)} for {len(run.course)} points"
                what = f"the timings of {entry.method} on {entry.federation}"
                raise ConfigError(
                    "wrong-shape", path, what, found=got, allowed="one for each point"
                )


# --- a file ---------------------------------------------------------------------------------------


def results_of(suite: Suite, entries: Sequence[Mapping[str, Any]]) -> Results:
    """The content of a file."""
    found = {
        "format": FORMAT,
        "suite": suite.model_dump(mode="json"),
        "federations": suite.digests(),
        "versions": versions(),
        "entries": list(entries),
    }
    return {"digest": results_digest(found), **found}


def results_digest(results: Mapping[str, Any]) -> str:
    """The SHA-256 of results without their times."""
    lasting = _without(results, "digest")
    lasting["entries"] = [
        {**entry, "runs": [_without(run, "seconds") for run in entry["runs"]]}
        for entry in results["entries"]
    ]
    return hashlib.sha256(json.dumps(lasting, sort_keys=True).encode()).hexdigest()


def _without(values: Mapping[str, Any], key: str) -> dict[str, Any]:
    return {name: value for name, value in values.items() if name != key}


def write_scoreboard_results(path: Path, results: Results) -> None:
    """Write a file; a reader never sees a part of it."""
    # A line for each entry: short, and a comparison of two files shows which methods differ.
    lines = [f"{json.dumps(name)}: {_json(value)}" for name, value in results.items()]
    replace_file(path, ("{\n" + ",\n".join(lines) + "\n}\n").encode())


def _json(value: Any) -> str:
    if isinstance(value, list):
        return "[\n" + ",\n".join(json.dumps(one, ensure_ascii=False) for one in value) + "\n]"
    return json.dumps(value, ensure_ascii=False)


def read_results(path: Path) -> Results:
    """Read a file, and check that it is as it was written."""
    try:
        found: Results = read_json(path)
        form = found["format"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        what = "not a scoreboard results file"
        expected = "a file that `coterie scoreboard` wrote"
        raise ConfigError(
            "cannot-be-read", path, what, found=first_line(error), allowed=expected
        ) from None
    if form != FORMAT:
        raise ConfigError("differs", path, "a different format", got=form, allowed=repr(FORMAT))
    _check(path, found)
    stated = found["digest"]
    computed = results_digest(found)
    if stated != computed:
        what = "has changed since it was written"
        got = f"digest {computed[:12]}"
        raise ConfigError("differs", path, what, found=got, allowed=stated[:12])
    return found


def published(suite: str) -> Path:
    """The file of the results that come with Coterie."""
    file = Path(__file__).parent / "published" / f"{suite}.json"
    if not file.is_file():
        what = "Coterie does not include such results"
        raise ConfigError("not-found", "--merge", what, found=f"suite {suite!r}")
    return file


def merge(ours: Results, others: Mapping[Path, Results]) -> list[dict[str, Any]]:
    """The entries of several files on the federations of ours, ours first."""
    known = {_key(entry): entry for entry in ours["entries"]}
    seeds = ours["suite"]["seeds"]
    for path, found in others.items():
        check_mergeable(ours, path, found)
        for entry in found["entries"]:
            if entry["federation"] not in ours["federations"]:
                continue
            # Fewer are a run that failed: the method has its scores, and no rank.
            theirs = sorted(run["seed"] for run in entry["runs"])
            if not set(theirs) <= set(seeds) or len(set(theirs)) < len(theirs):
                what = f"different seeds of {entry['method']} on {entry['federation']}"
                raise ConfigError("differs", path, what, found=theirs, allowed=sorted(seeds))
            same = known.setdefault(_key(entry), entry)
            # What could not be run here may have been run elsewhere.
            if not same["runs"]:
                known[_key(entry)] = entry
            elif entry["runs"] and _digests(same) != _digests(entry):
                what = f"different results of {entry['method']} ({entry['settings']}) on {entry['federation']}"
                got = _digests(entry)
                raise ConfigError("differs", path, what, found=got, allowed=_digests(same))
    return list(known.values())


def check_mergeable(ours: Results, path: Path, others: Results) -> None:
    """Refuse results on other clients than ours."""
    expected = sorted(ours["suite"]["seeds"])
    got = sorted(others["suite"]["seeds"])
    if got != expected:
        raise ConfigError("differs", path, "different seeds", found=got, allowed=expected)
    shared = [name for name in ours["federations"] if name in others["federations"]]
    if not shared:
        raise ConfigError(
            "does-not-fit",
            path,
            "no federation in common",
            found=", ".join(others["federations"]),
            allowed=f"at least one of {', '.join(ours['federations'])}",
        )
    for name in shared:
        if ours["federations"][name] != others["federations"][name]:
            raise ConfigError(
                "differs",
                path,
                f"different clients in {name}",
                found=others["federations"][name][:12],
                allowed=ours["federations"][name][:12],
            )


def _key(entry: Mapping[str, Any]) -> tuple[str, str, str]:
    return entry["federation"], entry["method"], entry["settings"]


def _digests(entry: Mapping[str, Any]) -> str:
    """The digests of its runs by seed, short."""
    runs = sorted(entry["runs"], key=lambda run: int(run["seed"]))
    return ", ".join(f"seed {run['seed']}: {run['digest'][:8]}" for run in runs) or "no runs"
