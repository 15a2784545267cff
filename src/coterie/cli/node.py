"""``coterie node``: a site of a federation of real clients."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from coterie.cli.options import Debug, JsonLogs
from coterie.cli.signals import stop_once

if TYPE_CHECKING:
    from coterie.flower.node.site import Site

Client = Annotated[str, typer.Argument(help="The name of a client on this machine.")]
Cache = Annotated[
    Path | None,
    typer.Option(
        metavar="DIR", help="The node's cache. Default: COTERIE_CACHE, then ~/.cache/coterie."
    ),
]


@dataclass(frozen=True, slots=True)
class NodeOptions:
    """What a node is and where its server is."""

    server: Annotated[
        str,
        typer.Option(metavar="HOST:PORT", help="The address at which nodes connect to the server."),
    ]
    ca: Annotated[
        Path, typer.Option(metavar="FILE", help="The file ca.crt from the operator of the server.")
    ]
    name: Annotated[str, typer.Option(help="The name of this client, such as hospital-3.")]
    folder: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR", help="The folder for the key and logs. Default: ~/.coterie/NAME."
        ),
    ] = None
    cache: Cache = None


@dataclass(frozen=True, slots=True)
class DataOptions:
    """Where a node's samples are."""

    data: Annotated[
        str | None,
        typer.Option(
            metavar="PATH|URL",
            help="A parquet or CSV file, a folder of them or of images, or a database's URL.",
        ),
    ] = None
    query: Annotated[
        str | None, typer.Option(metavar="SQL", help="For a database: SELECT ... ORDER BY ...")
    ] = None
    label: Annotated[
        str | None, typer.Option(metavar="COLUMN", help="The column of labels. Default: label.")
    ] = None
    input: Annotated[
        str | None,
        typer.Option(
            metavar="COLUMN", help="The column of inputs, if they are lists of numbers. Default: x."
        ),
    ] = None
    shape: Annotated[
        str | None,
        typer.Option(help="The shape of an input that is stored as a flat list, such as 8,8."),
    ] = None
    classes: Annotated[
        str | None, typer.Option(help="This site's class list, such as healthy,ill.")
    ] = None
    unlabelled: Annotated[
        bool,
        typer.Option("--unlabelled", help="The samples have no labels: the node does not train."),
    ] = False
    loader: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="A Python file with load_client, used instead of --data."
        ),
    ] = None

    def values(self) -> dict[str, Any]:
        """What is given, as the node's configuration has it."""
        from coterie.flower.node.node_source import PASSWORD, has_password, is_database
        from coterie.terminal import warn

        paths = {"data": self.data, "loader": self.loader}
        # Flower starts the node's processes in another folder.
        found: dict[str, Any] = {
            name: str(Path(path).expanduser().absolute())
            for name, path in paths.items()
            if path is not None
        }
        if self.data is not None and is_database(self.data):
            found["data"] = self.data
            if has_password(self.data):
                what = "every user of this machine can see the password in the URL"
                warn(f"--data: {what}: set it in {PASSWORD}")
        texts = {
            "query": self.query,
            "label": self.label,
            "input": self.input,
            "shape": self.shape,
            "classes": self.classes,
        }
        found |= {name: text for name, text in texts.items() if text is not None}
        if self.unlabelled:
            found["unlabelled"] = True
        return found


def node_join(
    node: NodeOptions, data: DataOptions, json_logs: JsonLogs = False, debug: Debug = False
) -> None:
    """Check this site, and run its node until Ctrl-C.

    The first time, it creates the node's key, and prints which file to send to the server's operator.
    """
    with stop_once():
        from coterie.flower.node.site import check_site, make_key, run_node

        site = _site(node, data)
        say = _say_with_time(json_logs)
        say(make_key(site))
        check_site(site, say)
        run_node(site, say, json_logs)


def node_check(node: NodeOptions, data: DataOptions, debug: Debug = False) -> None:
    """Check data, versions and connection without joining."""
    from coterie.flower.node.site import check_site
    from coterie.terminal import say

    check_site(_site(node, data), say)


def node_status(
    name: Client,
    folder: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Default: ~/.coterie/NAME.")
    ] = None,
    debug: Debug = False,
) -> None:
    """Show whether the node of a client is connected.

    The exit code is 7 if it is not.
    """
    from coterie.flower.keys import check_name
    from coterie.flower.node.site import default_folder, require_connected
    from coterie.terminal import say

    say(require_connected(name, folder or default_folder(check_name(name))))


def node_key(
    names: Annotated[list[str], typer.Argument(metavar="NAME...", help="Names of clients.")],
    folder: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Default: ~/.coterie/NAME.")
    ] = None,
    debug: Debug = False,
) -> None:
    """Create a node's key, and print the path of its public half.

    An existing key is kept.
    """
    from coterie.flower.keys import check_name, make_node_key
    from coterie.flower.node.site import default_folder
    from coterie.terminal import say

    for name in names:
        key = make_node_key(folder or default_folder(check_name(name)), name)
        say(str(key.with_name(f"{name}.pub")))


def _site(node: NodeOptions, data: DataOptions) -> Site:
    from coterie.flower.keys import check_name
    from coterie.flower.node.site import Site, default_folder
    from coterie.flower.processes.flower_commands import require_flower

    require_flower()
    name = check_name(node.name)
    options = data.values()
    if node.cache is not None:
        options["cache"] = str(node.cache.expanduser().absolute())
    folder = (node.folder or default_folder(name)).expanduser().absolute()
    return Site(node.server, node.ca.expanduser(), name, folder, options)


def _say_with_time(as_json: bool) -> Any:
    """Lines with their times, as the node's log has them."""
    from coterie.flower.node.site import log_line
    from coterie.terminal import say

    return lambda line: say(log_line(line, as_json))


def node_export(
    name: Client,
    out: Annotated[Path, typer.Option(metavar="FILE", help="The safetensors file to write.")],
    cache: Cache = None,
    debug: Debug = False,
) -> None:
    """Write the values that a client keeps to a file.

    These are its personal layers, or the values stored for its own model, from the run in which it
    last trained. For a client without labels, this is the model that it received.
    """
    from coterie.flower.node.cache import export_kept
    from coterie.terminal import say

    names = export_kept(name, out, cache)
    say(f"{out}: {', '.join(names)}")


def node_forget(name: Client, cache: Cache = None, debug: Debug = False) -> None:
    """Remove everything that a client's node keeps here.

    This includes its own layers and models, the models that it received, and its label histograms,
    from all runs. If the client takes part again, it starts from the beginning.
    """
    from coterie.flower.node.cache import forget
    from coterie.terminal import say

    removed, secret = forget(name, cache)
    for folder in removed:
        say(f"removed {folder}")
    if secret is not None:
        say(
            f"kept {secret}: with a new secret, the noise on the client's statistics would be "
            "drawn again"
        )
