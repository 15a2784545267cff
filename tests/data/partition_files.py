"""Partitions in files, as a run has them in its folder."""

from __future__ import annotations

from pathlib import Path

from coterie.data.partition import Partition, partition_bytes


def write_partition(path: Path, parts: Partition) -> None:
    """Write ``partition.npz``."""
    path.write_bytes(partition_bytes(parts))
