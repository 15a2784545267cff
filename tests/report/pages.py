"""Runs as the page sees them, and a reader of pages: what tests of the report share."""

from __future__ import annotations

from collections.abc import Sequence
from html.parser import HTMLParser

import numpy as np
import torch

from coterie.measures.client_table import ScoredClients
from coterie.report import RunView
from coterie.rules.signatures import SignatureMemory

HOSTILE = "</script><img src=x onerror=alert(1)>"


def rows(*accuracies: float) -> list[dict]:
    return [
        {"round": t, "accuracy": a, "seconds": {"total": 0.5}} for t, a in enumerate(accuracies)
    ]


def plain(name: str = "FedAvg", final: float = 0.81) -> RunView:
    return RunView(name, rows(0.2, final), np.zeros(6, np.int64), [f"c{i}" for i in range(6)])


def grouped(name: str = "FedGroup", final: float = 0.931, **changes: object) -> RunView:
    planted = np.array([0, 0, 0, 1, 1, 1])
    fields: dict = {
        "groups": np.array([1, 1, 1, 0, 0, 1]),
        "names": [f"c{i}" for i in range(6)],
        "embedding": np.eye(3)[planted] + np.arange(18).reshape(6, 3) / 100,
        "histograms": np.array([[5, 1, 0]] * 3 + [[0, 2, 4]] * 3),
        "planted": planted,
        "joined": np.array([0, 0, 0, 0, 1, 1]),
        "newcomers": np.array([0, 0, 1, 0, 0, 1], bool),
    }
    return RunView(name, **{"rounds": rows(0.3, final), **fields, **changes})


def numbered(*accuracies: float) -> RunView:
    """A run with groups of which everything that the page shows by round is known."""
    groups = np.array([0, 0, 0, 1, 1, -1])
    moves = [[client, int(group)] for client, group in enumerate(groups)]
    course = [
        {
            **row,
            "moves": [] if row["round"] else moves,
            "sizes": [3, 2],
            "newcomers": 5 if not row["round"] else 0,
            "agreement": {"ari": 0.5, "nmi": 0.5},
            "theory": {"divergence": 0.3, "divergence_one": 0.7},
            "transfers": {"down_bytes": 8, "up_bytes": 8},
            "shift": [{"shift": "swap_all", "pairs": [[0, 1]]}],
            "changed": 2,
        }
        for row in rows(*accuracies)
    ]
    return grouped(rounds=course, groups=groups)


def shifted(round: int, events: list[dict], **counts: int) -> dict:
    zero = dict.fromkeys(("changed", "missed", "drifted", "migrations", "same_group"), 0)
    return {
        "round": round,
        "accuracy": None if round == 1 else 0.5,
        "shift": events,
        **zero,
        **counts,
    }


COURSE = [
    shifted(0, [{"shift": "awaited", "clients": [5]}]),
    shifted(
        1,
        [{"shift": "swap_all", "pairs": [[0, 1], [2, 3]]}],
        changed=4,
        drifted=3,
        migrations=2,
        same_group=1,
    ),
    shifted(2, [{"shift": "arrivals", "clients": [5]}]),
    shifted(3, [{"shift": "swap_all", "pairs": [[0, 1]]}], changed=2, missed=2),
]


def remembered_tree(
    links: np.ndarray, leaves: np.ndarray, threshold: float, proximity: np.ndarray | None
) -> SignatureMemory:
    """What one-shot grouping remembers, of which the report draws the tree alone."""
    return SignatureMemory(
        torch.zeros(1), torch.zeros(0), np.empty(0, np.int64), threshold, links, leaves, proximity
    )


def linkage_memory(n: int = 6, seed: int = 0) -> SignatureMemory:
    from scipy.cluster.hierarchy import linkage
    from scipy.spatial.distance import pdist, squareform

    points = np.random.default_rng(seed).normal(size=(n, 2)) + 9 * (np.arange(n) % 2)[:, None]
    near = pdist(points)
    links = linkage(near, "average")
    proximity = squareform(near).astype(np.float32)
    return remembered_tree(links, np.arange(n)[::-1].copy(), 4.0, proximity)


def client_table(
    names: Sequence[str], groups: Sequence[int], each: Sequence[float]
) -> ScoredClients:
    """Clients with a hundred test samples each."""
    samples = np.full(len(names), 100)
    columns = {"correct": samples * np.array(each)}
    return ScoredClients(list(names), np.array(groups), samples, columns)


def seeded(name: str, seed: int, final: float, groups: list[int], each: list[float]) -> RunView:
    moves = [[i, g] for i, g in enumerate(groups)]
    course = [
        {**row, "moves": moves if not at else [], "sizes": [3, 3]}
        for at, row in enumerate(rows(0.2, final))
    ]
    tables = {"seed": seed, "algorithm": {"name": name}}
    return RunView(
        name,
        course,
        np.array(groups),
        list("abcdef"),
        tables=tables,
        client_table=client_table("abcdef", groups, each),
    )


def both_methods() -> list[RunView]:
    found = []
    for seed, off in ((0, 0.0), (1, 0.02)):
        found.append(seeded("fedavg", seed, 0.7 + off, [0] * 6, [0.7] * 6))
        found.append(
            seeded("fedgroup", seed, 0.8 + off, [0, 0, 0, 1, 1, 1], [0.9, 0.9, 0.9, 0.8, 0.7, 0.5])
        )
    return found


class Scripts(HTMLParser):
    """Script elements, and every address that the page names in an attribute."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.scripts: list[tuple[dict, str]] = []
        self.addresses: list[str] = []
        self.policy = ""
        self.text = ""
        self.style = ""
        self._tag = ""
        self._inside: dict | None = None

    def handle_starttag(self, tag: str, attrs: list) -> None:
        named = dict(attrs)
        self.addresses += [v for k, v in attrs if k in ("src", "href")]
        if named.get("http-equiv") == "Content-Security-Policy":
            self.policy = named["content"]
        self._tag = tag
        if tag == "script":
            self._inside = named
            self.scripts.append((named, ""))

    def handle_endtag(self, tag: str) -> None:
        self._inside = None if tag == "script" else self._inside
        self._tag = ""

    def handle_data(self, data: str) -> None:
        if self._inside is not None:
            self.scripts[-1] = (self._inside, self.scripts[-1][1] + data)
        elif self._tag == "style":
            self.style += data
        else:
            self.text += data


def parse(path) -> Scripts:
    parser = Scripts()
    parser.feed(path.read_text(encoding="utf-8"))
    return parser


def data_of(spec: dict, *fields: str) -> list[tuple]:
    rows = [row for rows in spec["datasets"].values() for row in rows]
    return [tuple(row[f] for f in fields) for row in rows if set(fields) <= set(row)]
