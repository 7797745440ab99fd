"""`kbevolve browse`: pages about the archive, for a browser."""

import ipaddress
import logging
from pathlib import Path
from threading import Thread

import click

from kbevolve.archive.store import Archive
from kbevolve.configs.errors import UsageError
from kbevolve.evolve.cli.options import archive_option

#: Names by which a browser on this machine asks for it.
LOOPBACK = ["localhost", "127.0.0.1", "[::1]"]


@click.command(epilog="Example: kbevolve browse --port 8765")
@click.option(
    "--host", default="127.0.0.1", show_default=True, help="The address to listen on; by default this machine only."
)
@click.option(
    "--port", default=8765, show_default=True, type=click.IntRange(0, 65535), help="The port; 0 for a free one."
)
@archive_option
def browse(host: str, port: int, archive_path: Path) -> int:
    """Serve pages about the archive: runs, kernels, lineages, ideas, differences, search.

    The archive is opened read-only. The pages of a run that goes on follow it. Ctrl-C ends the server.
    """
    try:
        from werkzeug.serving import make_server

        from kbevolve.evolve.web.app import create_app
        from kbevolve.evolve.web.snapshot import Snapshot
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in ("flask", "werkzeug"):
            raise
        raise UsageError("the package flask is missing; install it: pip install 'kbevolve[web]'") from None
    logging.getLogger("werkzeug").setLevel(logging.ERROR)  # no line for each request
    with Archive(archive_path, read_only=True) as archive:
        snapshot = Snapshot(archive)
        app = create_app(snapshot, hosts=LOOPBACK if _is_loopback(host) else None)
        try:
            server = make_server(host, port, app, threaded=True)
        except (OSError, SystemExit) as error:
            raise UsageError(f"cannot listen on {host}:{port}; name a free --port, or 0") from error
        shown = f"[{host}]" if ":" in host else host
        click.echo(f"Browse {archive_path} at http://{shown}:{server.port}/  (Ctrl-C ends)")
        if not _is_loopback(host):
            click.echo(f"Everyone who reaches {host} can read this archive.", err=True)
        Thread(target=snapshot.prepare, daemon=True).start()
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            click.echo()
    return 0


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
