"""`kbevolve mcp`: a server for coding agents."""

from pathlib import Path

import click

from kbevolve.configs.errors import UsageError
from kbevolve.evolve.cli.options import archive_option
from kbevolve.evolve.cli.settings_options import device_option


@click.command(epilog="Example: kbevolve mcp --archive kbevolve.db")
@device_option
@archive_option
def mcp(device: str | None, archive_path: Path) -> int:
    """Serve the Model Context Protocol on standard input and output, for coding agents.

    Its tools start runs, ask, tell, evaluate, show kernels and lineages, and export the best kernel. An agent starts
    this command itself (docs/agents.md has the setup); it ends when the agent closes the connection.
    """
    try:
        from kbevolve.evolve.ask_tell.mcp_server import build_server
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in ("mcp", "mcp_types"):
            raise
        raise UsageError("the package mcp is missing; install it: pip install 'kbevolve[mcp]'") from None
    from kbevolve.evolve.ask_tell.agent_tools import AgentTools

    build_server(AgentTools(archive_path, device or "auto")).run("stdio")
    return 0
