"""What a client minimises."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol, runtime_checkable

from torch import Tensor, nn

from coterie.core.keys import Key


@runtime_checkable
class Objective(Protocol):
    """What a client minimises. A record whose fields are its hyper-parameters.

    ``mu`` is the weight of the proximal term that the solver adds to every gradient, ``mu (w -
    w_start)``; the batch loss itself is ``loss``. ``received()`` is the model that the client was
    sent: frozen, in evaluation mode, and made only when asked for.
    """

    @property
    def mu(self) -> float: ...

    def loss(
        self, module: nn.Module, x: Tensor, y: Tensor, received: Callable[[], nn.Module]
    ) -> Tensor: ...


@runtime_checkable
class Reshaping(Objective, Protocol):
    """An objective for another network, which it makes of the one it is given.

    ``pace`` names the tensors of which the server takes less than the whole weighted update, and
    what share.
    """

    def network(self, module: nn.Module, key: Key) -> nn.Module: ...

    def pace(self) -> Mapping[str, float]: ...
