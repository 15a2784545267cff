"""What the server tells every node that asks before it joins: versions, and the form of the data.

nginx answers with it at ``/federation.json``, so the SuperLink is not reached. Everyone who reaches
the port of the nodes can read it; without its lines in ``nginx.conf`` there is no answer.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from coterie.deploy.data_form import DataForm
from coterie.deploy.flower_commands import flower_home
from coterie.deploy.settings import DeploymentSettings
from coterie.errors import ConfigError, RemoteError

CARD = "federation.conf"  # in the folder of what Flower's commands keep; nginx.conf includes it
CARD_PATH = "/federation.json"
LONGEST = 3000  # letters; nginx reads no longer words from its configuration
_FORM = ("shape", "classes", "target_shape", "columns")


@dataclass(frozen=True, slots=True)
class FederationCard:
    """What a server says of itself.

    Args:
        form: of the samples; ``None`` where it is too long to be told.
    """

    coterie: str
    flower: str
    form: DataForm | None

    @classmethod
    def loads(cls, text: bytes) -> FederationCard:
        """What a server answered."""
        try:
            card = json.loads(text)
            form = None
            if "shape" in card:
                told = {name: card[name] for name in _FORM}
                form = DeploymentSettings.of({"clients": 1, **told}, "the server's data").form
            return cls(str(card["coterie"]), str(card["flower"]), form)
        except (ValueError, TypeError, KeyError, RecursionError, ConfigError):
            what = f"no description of a federation, got {text[:60]!r}"
            raise RemoteError(f"server: {what}; expected that of `coterie server up`") from None


def installed_version(package: str) -> str:
    """The version of an installed package; empty where there is none."""
    try:
        return version(package)
    except PackageNotFoundError:
        return ""


def card_text(settings: DeploymentSettings) -> str:
    """The card of a deployment, as JSON."""
    card: dict[str, Any] = {
        "coterie": installed_version("coterie"),
        "flower": installed_version("flwr"),
    }
    form = {
        "shape": settings.shape,
        "classes": settings.classes,
        "target_shape": settings.target_shape,
        "columns": settings.columns,
    }
    whole = json.dumps({**card, **form})
    if len(nginx_word(whole)) > LONGEST:
        return json.dumps(card)
    return whole


def write_card(folder: Path, settings: DeploymentSettings) -> Path:
    """Write what nginx answers; returns the file."""
    file = flower_home(folder) / CARD
    file.parent.mkdir(parents=True, exist_ok=True)
    lines = [
        "# Written by `coterie server up`: what `coterie node check` compares.",
        f"location = {CARD_PATH} {{",
        "    default_type application/json;",
        f"    return 200 '{nginx_word(card_text(settings))}';",
        "}",
    ]
    file.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return file


def nginx_word(text: str) -> str:
    r"""JSON as a quoted word of nginx's configuration, in which ``$`` begins a variable.

    Example:
        >>> print(nginx_word('["$5", "it\'s"]'))
        ["\\u00245", "it\\u0027s"]
    """
    for letter in "$'":
        text = text.replace(letter, f"\\u{ord(letter):04x}")
    return text.replace("\\", "\\\\")
