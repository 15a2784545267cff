"""What a client keeps, as a file to take away: made on its own machine, for those who run its node."""

from __future__ import annotations

from pathlib import Path

from safetensors.numpy import save

from coterie.deploy.cache import cache_root
from coterie.deploy.kept_file import FILE, newest_tensors
from coterie.deploy.private_file import replace_private
from coterie.deploy.served_file import FILE as SERVED
from coterie.deploy.served_file import ServedModel
from coterie.errors import ConfigError


def export_kept(name: str, out: Path, cache: Path | None) -> list[str]:
    """Write what a client keeps of the run in which it trained last.

    The tensors are named as those of the network: personal layers as they are, and what is stored for a
    model of its own with the name of the vector in front, as ``v/fc.weight``. Of a client without labels
    it is the model that serves it.

    Args:
        cache: the node's ``cache``; ``None``: where a node keeps it that has none.

    Returns:
        The names of the tensors.
    """
    if out.exists():
        raise ConfigError(f"--out: there already, got {out}; expected a new file")
    options = {} if cache is None else {"cache": cache}
    root = cache_root(options, name)
    found = [file for kind in (FILE, SERVED) for file in root.glob(f"run-*/{kind}")]
    files = sorted(found, key=lambda file: file.stat().st_mtime)
    if not files:
        what = f"nothing stays with such a client, got {name!r} and no {FILE} or {SERVED} in {root}"
        raise ConfigError(f"node export: {what}; expected the name and the cache of a node here")
    last = files[-1]
    if last.name == SERVED:
        tensors = dict(ServedModel.read(last).tensors)
    else:
        tensors = newest_tensors(last)
    replace_private(out, save(tensors))
    return list(tensors)
