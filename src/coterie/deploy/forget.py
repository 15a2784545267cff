"""Forgetting a client on its own machine: what its node keeps from round to round."""

from __future__ import annotations

import shutil
from pathlib import Path

from coterie.deploy.cache import SECRET, cache_root
from coterie.errors import ConfigError


def forget(name: str, cache: Path | None) -> tuple[list[Path], Path | None]:
    """Remove what this machine keeps for a client: parts of models and models of its own, models that
    it was sent, and label histograms, of all runs.

    Its secret stays: with a new one the noise on its statistics would be drawn again, which costs
    another privacy budget.

    Args:
        cache: the node's ``cache``; ``None``: where a node keeps it that has none.

    Returns:
        The folders that were removed, and the file of the secret where there is one.
    """
    options = {} if cache is None else {"cache": cache}
    root = cache_root(options, name)
    runs = sorted(root.glob("run-*"))
    if not runs:
        what = f"nothing is kept for such a client, got {name!r} and no run in {root}"
        raise ConfigError(f"node forget: {what}; expected the name and the cache of a node here")
    for run in runs:
        shutil.rmtree(run)
    secret = root / SECRET
    if not secret.exists():
        return runs, None
    return runs, secret
