"""How what a worker needs reaches a process that was not forked.

Python writes the arguments of a new process into a pipe that it holds open itself, and so waits for ever
for a process that ends before it has read them, as that of a script without a guard does. Few bytes
fit into the pipe. So large tensors go as arguments, which are a few bytes each since they lie in shared
memory, and the rest follows in a pipe of which the death of a process is seen.
"""

from __future__ import annotations

import io
import pickle
from typing import Any

from torch import Tensor

_LARGE = 2**20  # bytes


class _Packer(pickle.Pickler):
    """Leaves out large tensors, and those in shared memory."""

    def __init__(self, file: io.BytesIO) -> None:
        super().__init__(file, pickle.HIGHEST_PROTOCOL)
        self.tensors: list[Tensor] = []

    def persistent_id(self, obj: Any) -> int | None:
        """The number of a tensor that is left out."""
        if not isinstance(obj, Tensor) or not (obj.nbytes >= _LARGE or obj.is_shared()):
            return None
        for number, known in enumerate(self.tensors):
            if known is obj:
                return number
        self.tensors.append(obj)
        return len(self.tensors) - 1


class _Unpacker(pickle.Unpickler):
    def __init__(self, packed: bytes, tensors: list[Tensor]) -> None:
        super().__init__(io.BytesIO(packed))
        self._tensors = tensors

    def persistent_load(self, pid: Any) -> Tensor:
        """The tensor of a number."""
        return self._tensors[pid]


def pack_arguments(value: Any) -> tuple[bytes, list[Tensor]]:
    """A value as bytes, and the large tensors in it.

    Example:
        >>> import torch
        >>> packed, tensors = pack_arguments({"small": torch.ones(2), "large": torch.ones(2**20)})
        >>> len(packed) < 2**20, [len(tensor) for tensor in tensors]
        (True, [1048576])
        >>> unpack_arguments(packed, tensors)["small"].tolist()
        [1.0, 1.0]
    """
    file = io.BytesIO()
    packer = _Packer(file)
    packer.dump(value)
    return file.getvalue(), packer.tensors


def unpack_arguments(packed: bytes, tensors: list[Tensor]) -> Any:
    """The value of `pack_arguments`."""
    return _Unpacker(packed, tensors).load()
