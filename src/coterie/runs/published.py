"""What files and pages for others may show of a run; of a run with ``[privacy]`` that is little.

The guarantee of ``[privacy]`` is of models. All else that a run knows is exact: how many samples of
which class there are, who is in which group, and how well a client is served. So whatever renders a
run for others (export and its card, report, tables of a sweep, trackers, pages of a federation,
`coterie watch`, a notebook) reads it through the functions here. They list what of a private run goes
out; what they do not list stays in the folder, also what is added to a run later.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from coterie.files import refuse_malformed
from coterie.headline import ACCURACY, Headline
from coterie.runs.folder.digests import ROWS
from coterie.runs.folder.store import RunFolder
from coterie.runs.state import RunState, read_state

Values = Mapping[str, Any]

# With fewer clients in a group its figures would be nearly those of a single client.
LEAST_CLIENTS = 5
# Tables of the configuration that say how models were trained, and nothing of who holds what.
TABLES = (
    "algorithm",
    "model",
    "task",
    "objective",
    "local",
    "server",
    "weigh",
    "train",
    "evaluate",
    "bounds",
    "quorum",
    "privacy",
)
OF_A_ROW = ("round", "clients_assigned", "skipped", "local_steps", "seconds")
OF_PRIVACY = ("epsilon", "delta", "noise", "clip")
OF_A_SUMMARY = (
    "algorithm",
    "dataset",
    "partition",
    "model",
    "clients",
    "rounds",
    "complete",
    "skipped",
    "groups",
    "protocol",
    "seconds",
    "transfers",
    "refused",
    "clipped",
    "versions",
    "headline",
    "privacy",
)


def is_private(config: Values) -> bool:
    """Whether a configuration asks for differential privacy of updates."""
    return config.get("privacy") is not None


# --- the configuration ----------------------------------------------------------------------------


def published_config(config: Values) -> Values:
    """A resolved configuration; of a private run without seeds and what names clients."""
    if not is_private(config):
        return config
    found = {name: _without_seeds(config[name]) for name in TABLES if name in config}
    data = config["data"]
    found["data"] = {"source": data["source"], "partition": {"kind": data["partition"]["kind"]}}
    return found


def _without_seeds(values: Any) -> Any:
    """The same without seeds and lists, which may name clients, at every depth."""
    if not isinstance(values, Mapping):
        return values
    return {
        key: _without_seeds(value)
        for key, value in values.items()
        if not key.endswith("seed") and key != "unseen"
    }


# --- rows -----------------------------------------------------------------------------------------


def published_rows(rows: Sequence[Values], headline: Headline = ACCURACY) -> list[Values]:
    """The rows of a run, see `published_row`."""
    return [published_row(row, headline) for row in rows]


def published_row(row: Values, headline: Headline = ACCURACY) -> Values:
    """A row; of a private run its figures over all clients, and over groups that are not small."""
    if "privacy" not in row:
        return row
    keys = headline.keys
    names = [*OF_A_ROW]
    for way in (keys, *keys.others.values()):
        names += [way.value, way.all, way.mean]
    enough = has_enough(row.get("sizes", ()))
    if enough:
        names.append(keys.groups)
    found = {name: row[name] for name in names if name in row}
    found["sizes"] = row["sizes"] if enough else []
    found["refused"] = row.get("refused", {})
    found["notes"] = {}
    transfers = row.get("transfers", {})
    found["transfers"] = {name: value for name, value in transfers.items() if name != "flexcfl"}
    found["privacy"] = {name: row["privacy"][name] for name in OF_PRIVACY if name in row["privacy"]}
    return found


def has_enough(sizes: Sequence[int]) -> bool:
    """Whether figures of each group may be shown: a small group's also follow from those of all."""
    return all(size == 0 or size >= LEAST_CLIENTS for size in sizes)


# --- the whole run --------------------------------------------------------------------------------


def published_summary(summary: Values, headline: Headline = ACCURACY) -> Values:
    """A summary; of a private run without seed, small groups and single clients."""
    if "privacy" not in summary:
        return summary
    ways = [headline.keys, *headline.keys.others.values()]
    names = [*OF_A_SUMMARY, *(way.value for way in ways)]
    found = {name: summary[name] for name in names if name in summary}
    sizes = summary.get("sizes", [])
    found["sizes"] = sizes if has_enough(sizes) else []
    return {**found, "agreement": None, "fairness": {}}


def published_state(state: RunState) -> RunState:
    """What is known of a run, as others may see it."""
    summary = state.summary
    if summary is not None:
        summary = published_summary(summary, state.headline)
    return replace(
        state,
        config=published_config(state.config),
        rows=published_rows(state.rows, state.headline),
        summary=summary,
    )


def read_published(folder: RunFolder) -> RunState:
    """The state of a run, as others may see it."""
    state = read_state(folder)
    # Rows are JSON, and may still be others than a run writes.
    with refuse_malformed(folder.path / ROWS):
        return published_state(state)
