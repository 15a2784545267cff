"""The sections over all runs of a page: accuracy, costs, agreement, configurations.

Each function makes the sections of one kind, none where the runs have nothing to show.
`coterie.report.sections` puts them in order.
"""

from __future__ import annotations

from collections.abc import Sequence

import tomli_w

from coterie.config.identity import differing
from coterie.headline import ACCURACY
from coterie.report.chart_tables import (
    accuracy_table,
    agreement_table,
    bytes_table,
    seconds_table,
)
from coterie.report.charts.accuracy import accuracy_chart
from coterie.report.charts.costs import bytes_chart, seconds_by_series, time_chart
from coterie.report.charts.rounds import agreement_chart
from coterie.report.section import Chart, Section
from coterie.report.series import Series

ACCURACY_NOTE = (
    "Accuracy is the share of test samples that are classified correctly, each client's by the "
    "model that serves it. A round counts the clients that have a group in that round. A client "
    "that had one earlier and has none now does not count."
)
OTHER_NOTE = (
    "{} is of all test samples, each client's by the model that serves it. A round counts the "
    "clients that have a group in that round. A client that had one earlier and has none now does "
    "not count."
)
SEEDS_NOTE = (
    " A line is the mean over the seeds. Its band reaches from the lowest to the highest seed."
)
COST_NOTE = (
    "How the result changes with the bytes that all clients have received and sent, and what the "
    "seconds of a round go into on the machine that did the run."
)
AGREEMENT_NOTE = (
    "How well the groups agree with the planted ones after each round. 1 is the same grouping. "
    "A grouping by chance has an adjusted Rand index of about 0."
)
CONFIGURATION_NOTE = "Each configuration has every default filled in. The command coterie {command} accepts it as it is."
MOST_KEYS = 12  # in which configurations differ, by name
MOST_CONFIGURATIONS = 20


def accuracy_section(series: Sequence[Series]) -> list[Section]:
    """Accuracy by round; none before the first evaluated round."""
    if not any(one.evaluated for one in series):
        return []
    headline = series[0].headline
    note = ACCURACY_NOTE if headline == ACCURACY else OTHER_NOTE.format(_capital(headline.title))
    if any(one.many_seeds for one in series):
        note += SEEDS_NOTE
    chart: Chart = {
        "id": "accuracy",
        "spec": accuracy_chart(series),
        "table": accuracy_table(series),
    }
    return [{"title": f"{_capital(headline.title)} by round", "note": note, "charts": [chart]}]


def _capital(name: str) -> str:
    return name[0].upper() + name[1:]


def cost_section(series: Sequence[Series]) -> list[Section]:
    """Bytes and seconds, where the runs counted them."""
    charts: list[Chart] = []
    by_bytes = bytes_chart(series)
    if by_bytes is not None:
        title = f"{_capital(series[0].headline.title)} by bytes"
        table = bytes_table(series)
        charts.append({"id": "bytes", "spec": by_bytes, "table": table, "title": title})
    seconds = seconds_by_series(series)
    if seconds:
        title = "Seconds of a round"
        table = seconds_table(seconds)
        charts.append({"id": "time", "spec": time_chart(seconds), "table": table, "title": title})
    if not charts:
        return []
    return [{"title": "What it costs", "note": COST_NOTE, "charts": charts, "wide": True}]


def agreement_section(series: Sequence[Series]) -> list[Section]:
    """Agreement with the planted groups, where some were planted."""
    runs = [one.first for one in series]
    spec = agreement_chart(runs)
    if spec is None:
        return []
    chart: Chart = {"id": "agreement", "spec": spec, "table": agreement_table(runs)}
    title = "Agreement with the planted groups"
    return [{"title": title, "note": AGREEMENT_NOTE, "charts": [chart]}]


def configuration_section(series: Sequence[Series]) -> list[Section]:
    """The configurations in full, what they differ in, and the versions of the software."""
    known = [one for one in series if one.first.tables]
    if not known:
        return []
    texts = [
        (f"{one.name} (seed {one.first.seed})", tomli_w.dumps(one.first.tables))
        for one in known[:MOST_CONFIGURATIONS]
    ]
    # Real clients have their own data, which nothing here could simulate.
    real = known[0].first.tables.get("data", {}).get("source") == "nodes"
    command = "deploy init" if real else "run"
    note = CONFIGURATION_NOTE.format(command=command) + _differing_keys(known) + _software(known)
    return [{"title": "Configuration and versions", "note": note, "texts": texts}]


def _differing_keys(series: Sequence[Series]) -> str:
    first = series[0].first.tables
    keys: dict[str, None] = {}
    for one in series[1:]:
        # Against the first and not pair by pair: what changes anywhere differs from it somewhere.
        keys |= dict.fromkeys(differing(first, one.first.tables))
    # Seeds differ within a series; the introduction of the page names them.
    keys.pop("seed", None)
    if not keys:
        return ""
    names = ", ".join([*keys][:MOST_KEYS])
    if len(keys) > MOST_KEYS:
        names += " and more"
    return f" The configurations differ in {names}."


def _software(series: Sequence[Series]) -> str:
    versions: dict[str, None] = {}
    for one in series:
        for run in one.runs:
            versions[", ".join(f"{name} {number}" for name, number in run.versions.items())] = None
    known = [text for text in versions if text]
    if not known:
        return ""
    return f" Software: {'; '.join(known)}."
