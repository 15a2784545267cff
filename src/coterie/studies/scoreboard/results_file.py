"""Results of a scoreboard as a file that others can check, merge and draw.

All but the times is the same, bit for bit, whenever and in however many processes the suite is run
with the same versions; ``digest`` is the SHA-256 of that part.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from coterie.errors import ConfigError
from coterie.files import read_json, replace_file
from coterie.runs.summary import versions
from coterie.studies.scoreboard.suite import Suite

FORMAT = "coterie scoreboard 1"
Results = dict[str, Any]


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
        if found["format"] != FORMAT:
            raise ValueError(f"its format is {found['format']!r}")
        stated, computed = found["digest"], results_digest(found)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ConfigError(
            "cannot-be-read",
            path,
            "not results of a scoreboard",
            found=error,
            allowed="a file that `coterie scoreboard` wrote",
        ) from None
    if stated != computed:
        raise ConfigError(
            "differs",
            path,
            "has changed since it was written",
            found=f"digest {computed[:12]}",
            allowed=stated[:12],
        )
    return found


def published(suite: str) -> Path:
    """The file of the results that come with Coterie."""
    file = Path(__file__).parent / "published" / f"{suite}.json"
    if not file.is_file():
        raise ConfigError(
            "not-found", "--merge", "Coterie includes no such results", found=f"suite {suite!r}"
        )
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
            if not set(theirs) <= set(seeds):
                raise ConfigError(
                    "differs",
                    path,
                    f"different seeds of {entry['method']} on {entry['federation']}",
                    found=theirs,
                    allowed=sorted(seeds),
                )
            same = known.setdefault(_key(entry), entry)
            # What could not be run here may have been run elsewhere.
            if not same["runs"]:
                known[_key(entry)] = entry
            elif entry["runs"] and _digests(same) != _digests(entry):
                raise ConfigError(
                    "differs",
                    path,
                    f"different results of {entry['method']} ({entry['settings']}) on {entry['federation']}",
                    found=_digests(entry),
                    allowed=_digests(same),
                )
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
            allowed=f"some of {', '.join(ours['federations'])}",
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
