"""The ledger: transfers, counted as FlexCFL's paper does and one by one, and models that were sent before."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import coterie as ct
from coterie.clients.clients import Clients, ModelShape
from coterie.clients.cohort import Sampler
from coterie.clients.ledger import Ledger
from coterie.core.engine import Reply
from coterie.core.keys import Key
from coterie.core.work import Train
from coterie.data.shifts import SHIFTS
from coterie.engines import SerialEngine
from coterie.local import LocalRunner, Trained
from coterie.methods.algorithm import as_algorithm
from coterie.models import initial_models
from coterie.runs.loop import simulate
from coterie.runs.schedule import Schedule
from tests.conftest import blobs
from tests.simulations import play_covering


def light(clients: int, classes: int = 2) -> tuple[ct.Population, nn.Module]:
    x = torch.from_numpy(np.random.default_rng(0).normal(size=(clients, 2)).astype(np.float32))
    y = torch.arange(clients) % classes
    held = tuple(np.array([i]) for i in range(clients))
    return ct.Population(x, y, held, held, classes), nn.Linear(2, classes)


class TenDirections(LocalRunner):
    """Clients whose update is one of ten directions, and needs no training.

    How many models are sent does not depend on how clients train, and 26,000 trainings take longer
    than all the rest of these runs.
    """

    def train(self, work: Train, client: int, start: Tensor, out: Tensor, key: Key) -> Trained:
        torch.sin(torch.arange(1.0, len(out) + 1) * (1 + client % 10), out=out)
        return Trained(1, 1.0)


def transfers(
    method: ct.Method, clients: int, rounds: int, shift: object = None, classes: int = 2
) -> int:
    """Model-sized transfers of a whole run in FlexCFL's accounting; the training itself is kept as
    light as can be."""
    population, net = light(clients, classes)
    net.weight.data += torch.arange(2.0 * classes).view(classes, 2)
    key = Key(1)
    solver = ct.Solver(epochs=1, batch_size=1, lr=0.1)
    sampler = Sampler("cover_then_uniform", np.arange(clients), 20, key)
    engine = SerialEngine(TenDirections(population, net, solver))
    with Clients(engine, shape=ModelShape(classes)) as reached:
        results = simulate(
            as_algorithm(method),
            reached,
            population,
            initial_models(net, key),
            Schedule(sampler, ct.Training(rounds, evaluate_every=10**9), key, shift),
        )
        return sum(result.row["transfers"]["flexcfl"] for result in results)


def test_the_ledger_reproduces_the_printed_ratios() -> None:
    """x1.26 on MNIST and +11.36 % on FEMNIST, with the papers' N, K, m, alpha and T."""
    frozen = {"pretrain_steps": 1, "on_shortage": "fewer"}
    assert transfers(ct.fedavg(), 1000, 300) == 12_000
    assert transfers(ct.flexcfl(3, **frozen), 1000, 300) == 15_120
    small = transfers(ct.flexcfl(5, **frozen), 200, 300)
    eta_g = transfers(ct.flexcfl(5, eta_g=5.0, **frozen), 200, 300)
    assert (small, eta_g) == (13_200, 14_700)
    assert eta_g / small - 1 == pytest.approx(0.1136, abs=1e-4)
    assert transfers(ct.ifca(3), 200, 30) == 20 * 4 * 30


@pytest.mark.slow
def test_migration_makes_ifca_5_43_times_as_dear_as_fedavg() -> None:
    """Every client of a swapped pair downloads the m models once more (MNIST, swap all, p = 0.05;
    printed 5.48)."""
    swap = SHIFTS["swap_all"](p=0.05)
    whole = transfers(ct.ifca(3, "per_label"), 1000, 300, swap, classes=100)
    assert whole / 12_000 == pytest.approx(5.43, abs=0.15)


def test_every_transfer_is_spelt_out() -> None:
    result = play_covering(ct.ifca(2), blobs(), 1)[0]
    down, up = result.blocks
    assert (down.up, up.up) == (False, True)
    assert down.what == up.what == "train", "a client chooses and trains in one exchange"
    assert down.models.tolist() == [2] * 4
    assert up.models.tolist() == [1] * 4
    assert result.row["transfers"]["models"] == 12
    assert down.bytes.sum() == result.row["transfers"]["down_bytes"]


def test_a_reply_of_no_client_keeps_the_names_of_its_fields() -> None:
    """The ledger names what was sent by the fields' shapes, not by how many clients answered."""
    ledger = Ledger()
    empty = Reply(0, np.empty(0, np.int64), {"delta": np.empty((0, 3), np.float32)})
    ledger.received(Key(0), empty, 3)
    assert ledger.blocks[0].fields == ("delta",)


# --- which models a client has been sent -----------------------------------------------------------

KEY = Key(0, "train").at(0)
BOTH = np.array([0, 1])


def sent(ledger: Ledger, models: torch.Tensor, which: np.ndarray) -> list[int]:
    """How many models a request of clients 0 and 1 counts for each of them."""
    ledger.sent(KEY, BOTH, models, which)
    return ledger.blocks[-1].models.tolist()


def test_a_model_is_counted_once_also_through_a_view() -> None:
    ledger = Ledger()
    models = torch.zeros(3, 4)
    assert sent(ledger, models, np.array([[0, 1], [2, 2]])) == [2, 1]
    assert sent(ledger, models[1][None], np.array([0, 0])) == [0, 1]


def test_rows_of_a_view_are_not_taken_for_later_rows() -> None:
    # Row 4 begins 4 * 4 values after row 0, and `models[1:]` 4 bytes * 4 values after it.
    ledger = Ledger()
    models = torch.zeros(6, 4)
    assert sent(ledger, models, np.array([4, 4])) == [1, 1]
    assert sent(ledger, models[1:], np.array([0, 0])) == [1, 1]


def test_another_model_in_the_same_memory_is_another_model() -> None:
    # Whether the allocator gives the same place again is its affair; here an array makes sure.
    ledger = Ledger()
    memory = np.zeros((2, 4), np.float32)
    first = torch.from_numpy(memory)
    assert sent(ledger, first, np.array([0, 1])) == [1, 1]
    assert sent(ledger, first, np.array([0, 1])) == [0, 0]
    del first
    assert sent(ledger, torch.from_numpy(memory), np.array([0, 1])) == [1, 1]
