"""The model that serves a client without labels, in a file on its node that only its owner may read."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save
from torch import Tensor

from coterie.core.vectors import Layout, state_dict
from coterie.deploy.private_file import replace_private
from coterie.errors import DataError

FILE = "served.safetensors"
_WHAT = "coterie-served-1"  # what the file is, with the version of its format


@dataclass(frozen=True, slots=True)
class ServedModel:
    """The model that serves a client.

    Args:
        tensors: name in the network -> values.
        group: of the client, -1 without one.
        by: how it came to the group, in words.
        round: after which it was sent, from 0.
    """

    tensors: Mapping[str, NDArray[Any]]
    group: int
    by: str
    round: int

    @classmethod
    def of(cls, layout: Layout, vector: Tensor, group: int, by: str, round: int) -> ServedModel:
        """A model as it is sent."""
        tensors = state_dict(layout, vector)
        # Contiguous copies: a slice would be saved as the bytes that it begins with.
        arrays = {name: np.ascontiguousarray(one.numpy()) for name, one in tensors.items()}
        return cls(arrays, group, by, round)

    def write(self, path: Path) -> None:
        """Write the file so that it is the old one or the new one, whole."""
        about = {"what": _WHAT, "group": str(self.group), "by": self.by, "round": str(self.round)}
        replace_private(path, save(dict(self.tensors), {"coterie": json.dumps(about)}))

    @classmethod
    def read(cls, path: Path) -> ServedModel:
        try:
            with safe_open(path, framework="numpy") as file:
                about = json.loads((file.metadata() or {})["coterie"])
                tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
            if about["what"] != _WHAT:
                raise ValueError(about["what"])
            return cls(tensors, int(about["group"]), str(about["by"]), int(about["round"]))
        except (OSError, SafetensorError, ValueError, KeyError, TypeError) as error:
            line = (str(error).splitlines() or [""])[0]
            raise DataError(f"{path}: cannot be read, got {line}; expected {FILE}") from None
