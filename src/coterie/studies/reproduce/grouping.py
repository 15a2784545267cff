"""What inter-cluster grouping does to the class probability distance (FedGSP, Fig. 3a), from the
clients' label counts alone, without training."""

from __future__ import annotations

import json
from functools import cache

import numpy as np

from coterie.core.keys import Key
from coterie.experiment import check
from coterie.math.balanced import inter_cluster, random_equal_groups
from coterie.math.similarity import Matrix
from coterie.measures.groups import (
    common_gamma,
    cpd_label,
    cpd_share,
    cpd_vector,
    gamma_of_shares,
    totals,
)
from coterie.runs.data import load_data
from coterie.studies.reproduce.papers import Line

DRAWS = 5  # of groups, each with another key


def cpd_cut(line: Line, root: str | None) -> float:
    """By how much ICG's groups lower the median class probability distance, in percent.

    The line's arguments are ``groups`` (M), ``against`` (``clients``: pairs of single clients, as
    in FedAvg; ``random``: groups of equal size), ``reading`` of eq. 14 (``label``, ``vector`` or
    ``share``), and ``normalize`` (ICG compares class shares). Groups are drawn with the keys of
    seeds 0 to 4, and medians are averaged over them.
    """
    wanted = line.arguments
    held = _histograms_of(line, root)
    ours = _of_icg(held, wanted["groups"], wanted["reading"], wanted["normalize"])
    if wanted["against"] == "clients":
        theirs = _median(held, held, wanted["reading"])
    else:
        theirs = _of_random_groups(held, wanted["groups"], wanted["reading"])
    return 100 * (1 - ours / theirs)


def _of_icg(held: Matrix, groups: int, reading: str, normalize: bool) -> float:
    medians = []
    for seed in range(DRAWS):
        # NaiveGSP+ICG makes its groups once, so it appends the clients that are left over.
        group = inter_cluster(held, groups, Key(seed), "append", normalize)
        medians.append(_median(totals(held, group), held, reading))
    return float(np.mean(medians))


def _of_random_groups(held: Matrix, groups: int, reading: str) -> float:
    medians = []
    for seed in range(DRAWS):
        group = random_equal_groups(len(held), groups, Key(seed))
        medians.append(_median(totals(held, group), held, reading))
    return float(np.mean(medians))


def _median(rows: Matrix, clients: Matrix, reading: str) -> float:
    """The median distance of the rows. The kernel's width is that of the clients, for all alike."""
    if reading == "label":
        distances = cpd_label(rows)
    elif reading == "vector":
        distances = cpd_vector(rows, common_gamma(clients))
    else:
        distances = cpd_share(rows, gamma_of_shares(clients))
    return float(np.median(distances))


def _histograms_of(line: Line, root: str | None) -> Matrix:
    config = line.config(root).resolved()
    # The counts do not depend on the algorithm: lines that differ in it share them.
    config["algorithm"] = {"name": "fedavg"}
    return _histograms(json.dumps(config, sort_keys=True))


@cache
def _histograms(config: str) -> Matrix:
    """The clients' label counts. They are kept, since to decode the images takes seconds."""
    _, _, population = load_data(check(json.loads(config), "reproduce"))
    return population.histograms().astype(np.float64)
