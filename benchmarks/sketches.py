"""Grouping 100,000 clients of 7,850 values by FedGroup's EDC and by FedClust's proximity, and how far
these are from exact grouping on 10,000.

    python -m benchmarks.sketches [--only edc fedclust exact] [--clients 100000] [--json FILE]

Updates lie around five planted directions. ``fedclust`` runs FedClust's own rule with clients that
send such updates; the time that the clients take to make them is left out. ``exact`` groups 10,000
clients without a sample or a projection, and with them, and compares: the distances of all pairs, the
groups, and EDC's directions. Each runs in a process of its own; memory is its peak.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy.sparse.linalg import svds
from sklearn.metrics import adjusted_rand_score

import coterie as ct
from coterie.clients.clients import Clients
from coterie.clients.round import Round
from coterie.core.engine import Reply
from coterie.core.groups import Groups
from coterie.math import similarity
from coterie.math.clustering import kmeans
from coterie.math.distances import l2
from coterie.math.similarity import largest_error, project
from coterie.rules.one_shot import OneShot
from coterie.rules.signatures import MOST, SKETCH, LargeFederation, TrainedUpdate

D = 7850
GROUPS = 5
BLOCK = 1024
SECONDS = 60


def update_rows(ids: np.ndarray, part: float) -> np.ndarray:
    """The updates of clients: noise of length 1 around directions of length ``part``."""
    centres = ct.Key(0).of("centres").generator().standard_normal((GROUPS, D), np.float32)
    rows = np.empty((len(ids), D), np.float32)
    for row, i in zip(rows, ids.tolist(), strict=True):
        ct.Key(1).client(i).generator().standard_normal(out=row, dtype=np.float32)
    return (rows + part * centres[ids % GROUPS]) / np.float32(np.sqrt(D))


class Planted:
    """Clients that send planted updates; ``seconds`` is what making them took."""

    def __init__(self, part: float) -> None:
        self.part = part
        self.seconds = 0.0

    def run(self, work: Any, ids: Any, models: Any, which: Any, *, key: ct.Key) -> list[Reply]:
        begun = time.perf_counter()
        ones = np.ones(len(ids))
        fields = {"delta": update_rows(ids, self.part), "size": ones, "loss": ones}
        self.seconds += time.perf_counter() - begun
        return [Reply(key.round, ids, fields, key.purpose)]

    def close(self) -> None: ...


def by_rule(rule: OneShot, clients: int, part: float) -> tuple[np.ndarray, float]:
    """The groups that FedClust's rule finds, and its seconds."""
    engine = Planted(part)
    groups = Groups(torch.zeros(1, D), np.full(clients, -1), start=torch.zeros(D))
    round = Round(0, ct.Key(0).at(0), np.arange(10), Clients(engine))  # type: ignore[arg-type]
    begun = time.perf_counter()
    groups, _ = rule(groups, round)
    return groups.member, time.perf_counter() - begun - engine.seconds


def fedclust(clients: int, part: float) -> dict[str, float]:
    """FedClust's proximity with a projection, and a sample that makes the tree."""
    member, seconds = by_rule(OneShot(TrainedUpdate(), groups="auto"), clients, part)
    found = int(member.max()) + 1
    ari = float(adjusted_rand_score(np.arange(clients) % GROUPS, member))
    return {"seconds": seconds, "groups": found, "ari": ari}


def edc(clients: int, part: float) -> dict[str, float]:
    """EDC's embedding and k-means."""
    updates = torch.from_numpy(update_rows(np.arange(clients), part))
    begun = time.perf_counter()
    labels = kmeans(similarity.edc_embedding(updates, GROUPS), GROUPS, ct.Key(0))
    seconds = time.perf_counter() - begun
    return {
        "seconds": seconds,
        "ari": float(adjusted_rand_score(np.arange(clients) % GROUPS, labels)),
    }


def exact(clients: int, part: float) -> dict[str, float]:
    """What the projection and a sample of four tenths change on at most 10,000 clients."""
    clients = min(clients, MOST)
    ids = np.arange(clients)
    updates = torch.from_numpy(update_rows(ids, part))
    found = _distance_errors(updates)
    member, _ = by_rule(OneShot(TrainedUpdate(), groups="auto"), clients, part)
    sampled, _ = by_rule(
        OneShot(TrainedUpdate(), groups="auto", large=LargeFederation(clients * 2 // 5)),
        clients,
        part,
    )
    found["exact_ari"] = float(adjusted_rand_score(ids % GROUPS, member))
    found["sampled_ari"] = float(adjusted_rand_score(ids % GROUPS, sampled))
    found["same_groups"] = float(adjusted_rand_score(member, sampled))
    _, _, right = svds(updates.numpy().astype(np.float64), GROUPS, tol=1e-10, random_state=0)
    basis = similarity.directions(updates, GROUPS).numpy()
    # The sine of the largest angle between the two spans.
    left = np.linalg.norm(basis - basis @ right.T @ right, 2)
    found["edc_span_error"] = float(left)
    return found


def _distance_errors(updates: torch.Tensor) -> dict[str, float]:
    """Relative errors of the projected distances of all pairs."""
    upper = np.triu_indices(len(updates), 1)
    ratio = l2(project(updates, SKETCH, ct.Key(0).of("sketch")))[upper] / l2(updates)[upper]
    return {
        "distance_error_rms": float(np.sqrt(((ratio - 1) ** 2).mean())),
        "distance_error_most": float(abs(ratio - 1).max()),
        "distance_error_bound": largest_error(SKETCH, len(ratio)),
    }


WHAT = {"edc": edc, "fedclust": fedclust, "exact": exact}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="+", choices=list(WHAT), default=list(WHAT))
    parser.add_argument("--clients", type=int, default=100_000)
    parser.add_argument("--part", type=float, default=1.0, help="length of a planted direction")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--one", choices=list(WHAT), help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.one:
        found = WHAT[args.one](args.clients, args.part)
        usage = resource.getrusage(resource.RUSAGE_SELF)
        found["processor"] = usage.ru_utime + usage.ru_stime
        found["GB"] = usage.ru_maxrss / 2**20
        print(json.dumps(found))
        return
    results = {}
    for name in args.only:
        call = [sys.executable, "-m", "benchmarks.sketches", "--one", name]
        call += ["--clients", str(args.clients), "--part", str(args.part)]
        output = subprocess.run(call, check=True, capture_output=True, text=True).stdout
        results[name] = {**json.loads(output.splitlines()[-1]), "load_average": os.getloadavg()[0]}
        figures = ", ".join(f"{key} {value:.4g}" for key, value in results[name].items())
        print(f"{name}: {figures}", flush=True)
    print(f"asked: at most {SECONDS} s each, the planted groups found (ari 1)")
    if args.json:
        args.json.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
