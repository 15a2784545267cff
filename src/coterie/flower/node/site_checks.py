"""What a site checks before its node joins: its data, its clock, its versions, and the way to the
server. Each check says in one line what it found, or what is wrong."""

from __future__ import annotations

import http.client
import ssl
import time
from collections.abc import Mapping
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any

import numpy as np

from coterie.data.sources.files import DataForm
from coterie.data.tabular.raw import Encode
from coterie.errors import ConfigError, DataError, RemoteError
from coterie.flower.keys import certificate_end
from coterie.flower.node.client_data import ClientData
from coterie.flower.node.client_table import ClientTable
from coterie.flower.node.data_sources import NotNumbersError
from coterie.flower.node.own_data import node_context, own_classes, read_own_samples, read_own_table
from coterie.flower.operate.proxy import CARD_PATH, FederationCard, installed_version
from coterie.flower.processes.process import split_address
from coterie.runs.columns import ENOUGH_ROWS, columns_that_tell
from coterie.terminal import counted, printable, warn

ANSWER_WITHIN = 15.0  # seconds
# Flower takes signatures from the last 305 s, and at most 5 s from the future. A second less here,
# since the server's clock is read in whole seconds.
MOST_AHEAD = 4.0
MOST_BEHIND = 300.0
LONGEST_CARD = 1 << 20  # bytes
# OpenSSL's numbers of what is wrong with a certificate.
_EXPIRED = 10
_NOT_YET = 9
_OTHER_HOST = (62, 64)


@dataclass(frozen=True, slots=True)
class ServerAnswer:
    """What a server said when it was met."""

    card: FederationCard | None  # what it says of itself, if anything
    ahead: float  # seconds by which this machine's clock is ahead of its clock


def meet_server(server: str, certificates: Path) -> ServerAnswer:
    """Connect once, with TLS, to ``host:port``."""
    host, port = split_address(server, "--server")
    certificate_end(certificates)
    context = ssl.create_default_context(cafile=str(certificates))
    connection = http.client.HTTPSConnection(host, port, timeout=ANSWER_WITHIN, context=context)
    try:
        before = time.time()
        connection.request("GET", CARD_PATH)
        response = connection.getresponse()
        after = time.time()
        text = response.read(LONGEST_CARD)
    except ssl.SSLCertVerificationError as error:
        raise RemoteError("not-trusted", server, _certificate_problem(error, host)) from None
    except ssl.SSLError as error:
        expected = "the address to which nodes connect"
        raise _unreachable(server, "no TLS", error.reason or error, expected) from None
    except (OSError, http.client.HTTPException) as error:
        got = error or type(error).__name__
        expected = "a running server, and a firewall that allows connections from this machine"
        raise _unreachable(server, "no connection", got, expected) from None
    finally:
        connection.close()
    card = None
    if response.status == http.client.OK:
        card = FederationCard.loads(text)
    return ServerAnswer(card, _ahead(response.headers.get("Date"), before, after))


def _certificate_problem(error: ssl.SSLCertVerificationError, host: str) -> str:
    if error.verify_code == _EXPIRED:
        return "its certificate has expired: ask the operator for a new one, or correct the clock"
    if error.verify_code == _NOT_YET:
        return "its certificate is not valid yet: correct the clock"
    if error.verify_code in _OTHER_HOST:
        expected = f"`coterie deploy init --host {host}` at the server, or another --server"
        return f"its certificate is for other names, got {host}; expected {expected}"
    what = f"its certificate is signed by another authority, got {error.verify_message}"
    return f"{what}; expected that of --ca"


def _ahead(date: str | None, before: float, after: float) -> float:
    """By how many seconds this machine's clock is ahead, 0 where the server tells no time."""
    if date is None:
        return 0.0
    try:
        server = parsedate_to_datetime(date).timestamp()
    except (ValueError, TypeError):
        return 0.0
    # The server's time is cut to whole seconds, and the answer took a while.
    if before - 1.0 <= server <= after:
        return 0.0
    if server < before:
        return before - 1.0 - server
    return after - server


def _unreachable(server: str, what: str, got: object, expected: str) -> RemoteError:
    return RemoteError("unreachable", server, what, found=got, allowed=expected)


def check_clock(answer: ServerAnswer) -> str:
    """Whether Flower would take this machine's signatures, which have times."""
    ahead = answer.ahead
    if ahead > MOST_AHEAD or ahead < -MOST_BEHIND:
        got = f"{abs(ahead):.0f} s {'ahead of' if ahead > 0 else 'behind'} the server's"
        expected = f"at most {MOST_AHEAD:g} s ahead and {MOST_BEHIND:g} s behind (use NTP)"
        raise ConfigError("differs", "clock", "wrong time", found=got, allowed=expected)
    return "clock: agrees with the server"


def check_versions(card: FederationCard | None) -> str:
    """Whether this machine has the versions of the server."""
    own = installed_version("coterie")
    flower = installed_version("flwr")
    if card is None:
        return f"versions: Coterie {own}, Flower {flower}; the server does not report its versions"
    if card.coterie != own:
        what = "a different version of Coterie"
        expected = f"{card.coterie}, as on the server"
        raise ConfigError("differs", "versions", what, found=own, allowed=expected)
    if card.flower != flower:
        other = printable(card.flower)
        return f"versions: Coterie {own}; Flower {flower}, but {other} on the server"
    return f"versions: Coterie {own} and Flower {flower}, as on the server"


# --- data -----------------------------------------------------------------------------------------


def check_data(options: Mapping[str, Any], form: DataForm | None) -> str:
    """Read a node's samples as a run would, and say what was found; the form is what the server says
    that all samples have in common, if it does."""
    if "data" not in options and "loader" not in options:
        return "data: read by the client.py of the federation, so not checked"
    own = own_classes(options)
    if own and form is not None and own != form.classes:
        expected = ", ".join(form.classes)
        what = "a different class list"
        raise DataError("differs", "--classes", what, found=", ".join(own), allowed=expected)
    if form is None:
        return _unknown_form(options, own)
    found: ClientData | ClientTable
    if form.columns:
        # How columns become numbers is known by the run; which columns there are, by the form.
        found = read_own_table(node_context(options), None, form, Encode())
        if not found.labelled:
            return f"data: {_inputs(len(found.train[1]))}, with all {counted(len(form.columns), 'column')}"
        _warn_of_columns(found, form)
        lengths = [len(found.train[1]), len(found.test[1])]
        return f"data: {_rows(lengths)}, with all {counted(len(form.columns), 'column')}"
    train, test = read_own_samples(node_context(options), None, form.classes, form.features)
    found = ClientData.of(train, test, form)
    if not found.labelled:
        return f"data: {_inputs(len(found.train[1]))}, inputs {list(form.shape)}"
    lengths = [len(found.train[1]), len(found.test[1])]
    return f"data: {_rows(lengths)}, inputs {list(form.shape)}{_labels(found, form)}"


def _warn_of_columns(found: ClientTable, form: DataForm) -> None:
    """Warn of columns that have one value at this site, and of those that give the label away."""
    table, targets = found.train
    names = list(form.columns)
    for name, values in zip(names, table.values.T, strict=True):
        if len(values) > 1 and len(np.unique(values)) == 1:
            warn(f"column {name} has the same value in every row at this site")
    if len(targets) < ENOUGH_ROWS or targets.ndim > 1:
        return
    giving_away = columns_that_tell(names, table.values, targets, numbers=not form.classes)
    for name, count in giving_away.items():
        warn(
            f"column {name} determines the label in {count} of the {len(targets)} rows of this site; "
            "unless its value is known before the label, the operator should leave it out of "
            "deploy.toml"
        )


def _labels(data: ClientData, form: DataForm) -> str:
    """How often each class occurs, for a site that wonders whether it chose the right column."""
    if form.numbers or form.target_shape or len(form.classes) > 20:
        return ""
    counts = data.histogram(len(form.classes))
    named = [f"{printable(name)} {count}" for name, count in zip(form.classes, counts, strict=True)]
    return f", to train on: {', '.join(named)}"


def _unknown_form(options: Mapping[str, Any], classes: tuple[str, ...]) -> str:
    """What can be said without knowing what the server expects."""
    # Without a class list labels may be names of any classes.
    try:
        (x, y), test = read_own_samples(node_context(options), None, classes or None)
    except NotNumbersError:
        # What becomes of the columns of a table is known by the server alone.
        return "data: a table that can be read; the server does not say what it expects"
    other = [] if test is None else test[1]
    x = np.asarray(x)
    rows = _inputs(len(x))
    if y is not None:
        y = np.asarray(y)
        rows = _rows([len(y), len(other)])
    if not np.isfinite(np.asarray(x, np.float64)).all():
        raise DataError("not-finite", "data", "inputs not finite", found="NaN or infinity")
    if classes and y is not None and len(y) and not 0 <= y.min() <= y.max() < len(classes):
        what = "labels out of range"
        got = f"{y.min()} to {y.max()}"
        raise DataError("out-of-range", "data", what, found=got, allowed=f"0 to {len(classes) - 1}")
    return f"data: {rows}, inputs {list(x.shape[1:])}; the server does not say what it expects"


def _rows(lengths: list[int]) -> str:
    return f"{counted(lengths[0], 'row')} to train on and {lengths[1]} to test on"


def _inputs(rows: int) -> str:
    return f"{counted(rows, 'row')} without labels, so this client does not train"
