"""What a client keeps on its own disk from round to round, copied for its site, and removed.

What stays with it of its model is in `coterie.flower.kept`.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import secrets
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import save
from safetensors.torch import load_file
from safetensors.torch import save as save_tensors
from torch import Tensor

from coterie.clients.wire import digest
from coterie.errors import ConfigError
from coterie.files import read_json
from coterie.flower.kept import KEPT_FILE, SERVED_FILE, ServedModel, newest_tensors
from coterie.flower.keys import replace_private

KEPT_RUNS = 3
SECRET = "secret"
_GONE = ".gone-"  # begins the name of a folder that is being removed
_DIGEST = re.compile(r"[0-9a-f]{32}")


class NodeCache:
    """Models that a client will need again, the label histogram of its last assignment, and its own
    secret, for the last few runs."""

    def __init__(self, root: Path, run: str) -> None:
        self.root = root
        self.folder = root / ("run-" + re.sub(r"[^0-9a-zA-Z-]", "_", run)[:64])
        # Only a new run makes others old: every message makes a cache, and need not look.
        if not self.folder.exists():
            self.folder.mkdir(parents=True, exist_ok=True)
            # Histograms and models say something about the data, and are for this user alone.
            self.root.chmod(0o700)
            others = [path for path in self.root.glob("run-*") if path != self.folder]
            # Its own folder stays: of a clock that was set back it would be the oldest.
            others.sort(key=lambda path: path.stat().st_mtime)
            for old in others[: 1 - KEPT_RUNS]:
                shutil.rmtree(old, ignore_errors=True)

    # --- models -----------------------------------------------------------------------------------

    def model(self, name: str) -> Tensor | None:
        """A model by its digest; ``None`` where it is missing or damaged."""
        # The name comes from the server: only a digest may become the name of a file.
        if not _DIGEST.fullmatch(name):
            return None
        try:
            vector = load_file(self.folder / f"{name}.safetensors")["w"]
        except (OSError, SafetensorError, KeyError):
            return None
        if digest(vector) == name:
            return vector
        return None

    def keep_models(self, models: Tensor) -> None:
        """Keep these models ``[r, d]``, and remove all others."""
        by_name = {digest(vector): vector for vector in models}
        for name, vector in by_name.items():
            if self.model(name) is None:
                # A row of a larger tensor is refused, hence the copy.
                data = save_tensors({"w": vector.clone()})
                replace_private(self.folder / f"{name}.safetensors", data)
        for file in self.folder.glob("*.safetensors"):
            if _DIGEST.fullmatch(file.stem) and file.stem not in by_name:
                file.unlink(missing_ok=True)

    # --- drift and noise --------------------------------------------------------------------------

    def reference(self, assignment_version: int, histogram: NDArray[np.int64]) -> NDArray[np.int64]:
        """The label histogram that the client had when it was first asked after its last assignment, or
        where none is kept, as after a loss of the disk, the present one (int64 ``[C]``)."""
        file = self.folder / "reference.json"
        # A file that is missing or damaged is as good as one of another assignment.
        try:
            kept = read_json(file)
            reference = np.asarray(kept["histogram"], np.int64)
            if kept["placement"] == assignment_version and reference.shape == histogram.shape:
                return reference
        except (OSError, ValueError, KeyError, TypeError):
            pass
        text = json.dumps({"placement": assignment_version, "histogram": histogram.tolist()})
        replace_private(file, text.encode())
        return histogram

    def secret(self) -> int:
        """The seed of the noise on the client's statistics: drawn once, and never sent."""
        file = self.root / SECRET
        if not file.exists():
            # From the system and not from the run's seed, which the server knows.
            seed = str(secrets.randbits(62)).encode()
            replace_private(file, seed)
        return int(file.read_text())


def cache_root(options: Mapping[str, Any], name: str) -> Path:
    """The folder of a client, in the node's ``cache``, else in ``COTERIE_CACHE``, else in
    ``~/.cache/coterie``."""
    default = Path.home() / ".cache" / "coterie"
    parent = options.get("cache") or os.environ.get("COTERIE_CACHE") or default
    return Path(str(parent)).expanduser() / hashlib.sha256(name.encode()).hexdigest()[:16]


# --- for the site ---------------------------------------------------------------------------------


def _nothing_kept(what: str, name: str, kept: str) -> ConfigError:
    expected = "the name and the cache of a node on this machine"
    got = f"{name!r}, {kept}"
    return ConfigError("not-found", "name", what, found=got, allowed=expected)


def export_kept(name: str, out: Path, cache: Path | None) -> list[str]:
    """Write what a client keeps of the run in which it trained last.

    The tensors are named as those of the network: personal layers as they are, and what is stored for a
    model of its own with the name of the vector in front, as ``v/fc.weight``. Of a client without labels
    it is the model that serves it. Returns the names of the tensors.
    """
    if out.exists():
        raise ConfigError("in-use", "--out", "already exists", found=out, allowed="a new file")
    root = cache_root({"cache": cache}, name)
    found = [file for kind in (KEPT_FILE, SERVED_FILE) for file in root.glob(f"run-*/{kind}")]
    files = sorted(found, key=lambda file: file.stat().st_mtime)
    if not files:
        kept = f"no {KEPT_FILE} or {SERVED_FILE} in {root}"
        raise _nothing_kept("this client keeps nothing", name, kept)
    last = files[-1]
    if last.name == SERVED_FILE:
        tensors = dict(ServedModel.read(last).tensors)
    else:
        tensors = newest_tensors(last)
    replace_private(out, save(tensors))
    return list(tensors)


def forget(name: str, cache: Path | None) -> tuple[list[Path], Path | None]:
    """Remove what this machine keeps for a client: parts of models and models of its own, models that
    it was sent, and label histograms, of all runs.

    Its secret stays: with a new one the noise on its statistics would be drawn again, which costs
    another privacy budget. Returns the folders that were removed, and the file of the secret.
    """
    root = cache_root({"cache": cache}, name)
    runs = sorted(root.glob("run-*"))
    if not runs:
        raise _nothing_kept("nothing is stored for this client", name, f"no run in {root}")
    for run in runs:
        # Renamed first: what a node at work writes in the meantime would stay.
        run.rename(root / f"{_GONE}{secrets.token_hex(4)}")
    for gone in root.glob(f"{_GONE}*"):
        shutil.rmtree(gone)
    secret = root / SECRET
    if not secret.exists():
        return runs, None
    return runs, secret
