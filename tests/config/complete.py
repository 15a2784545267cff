"""A complete configuration that tests share."""

from __future__ import annotations

COMPLETE = """
seed = 0
[data]
source = "mnist"
[data.partition]
kind = "power_law"            # also classes, dirichlet, ditto, femnist10, natural, iid, planted
clients = 1000
classes_per_client = 2
[model]
name = "mclr"
[local]
epochs = 10
batch_size = 10
lr = 0.03
[train]
rounds = 300
clients_per_round = 20
sampler = "cover_then_uniform" # or "uniform"
[algorithm]
name = "fedgroup"
groups = 3
alpha = 20
measure = "edc"               # or "madc"
[engine]
name = "pool"
workers = 2
"""
