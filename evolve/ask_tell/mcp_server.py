"""The tools for coding agents behind the Model Context Protocol, with the official `mcp` package (an extra)."""

import functools
import inspect
import itertools
from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import anyio.to_thread
from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp_types import ToolAnnotations

from kbevolve import __version__
from kbevolve.configs.errors import KBEvolveError
from kbevolve.evolve.ask_tell.agent_tools import AgentTools

Tool = Callable[..., dict[str, Any]]

#: Seconds between two signs of life; clients give up after some 60 without any.
SECONDS = 5.0

#: What an agent reads before it calls anything.
INSTRUCTIONS = """\
kbevolve evolves fast GPU (or CPU) kernels: given a PyTorch `Model`, a faster `ModelNew` that computes the same. You are
the one who writes the children. Call `begin` for a problem, or `ask` for a run that is there. Answer each question with
`tell`: an idea in words, then the code that carries it out, or both at once (`idea` and `code`). `tell` judges the
kernel, says in `news` how it fared, and brings the next question; go on until `over` is true, then `export` the best.
Read the prompt of a question whole: `system` says what a kernel must be and what is refused, the last message what is
wanted. `evaluate` tries a kernel without telling it. Nothing is ever lost: after any interruption, `ask` goes on."""


def build_server(tools: AgentTools) -> MCPServer:
    """A server that offers the tools; errors of theirs are tool errors, with their one line."""
    server = MCPServer("kbevolve", instructions=INSTRUCTIONS, version=__version__, log_level="WARNING")
    looking: tuple[Tool, ...] = (tools.runs, tools.kernel, tools.lineage, tools.evaluate)
    changing: tuple[Tool, ...] = (tools.begin, tools.ask, tools.tell, tools.export)
    for tool in (*changing, *looking):
        server.add_tool(_served(tool, tools), annotations=ToolAnnotations(read_only_hint=tool in looking))
    return server


def _served(tool: Tool, tools: AgentTools) -> Callable[..., Awaitable[dict[str, Any]]]:
    """A tool as the protocol calls it: in a thread of its own, with a sign of life while it takes long."""

    @functools.wraps(tool)
    async def call(*, context: Context[Any, Any], **arguments: Any) -> dict[str, Any]:
        found: dict[str, Any] | KBEvolveError
        async with anyio.create_task_group() as group:
            group.start_soon(_beat, context, tools)
            try:
                found = await anyio.to_thread.run_sync(functools.partial(tool, **arguments))
            except KBEvolveError as error:
                found = error  # raised outside: what leaves a task group comes in a group of errors
            group.cancel_scope.cancel()
        if isinstance(found, KBEvolveError):
            raise ToolError(str(found)) from found
        return found

    # What it asks of the agent is the tool's own signature; the context comes from the server.
    own = inspect.signature(tool)
    added = inspect.Parameter("context", inspect.Parameter.KEYWORD_ONLY, annotation=Context)
    call.__signature__ = own.replace(parameters=[*own.parameters.values(), added])  # type: ignore[attr-defined]
    call.__annotations__ = {**tool.__annotations__, "context": Context}
    return call


async def _beat(context: Context[Any, Any], tools: AgentTools) -> None:
    """Tell the agent's side every few seconds that somebody is at work, so that it does not give up."""
    for beats in itertools.count(1):
        await anyio.sleep(SECONDS)
        await context.report_progress(beats * SECONDS, message=tools.doing or None)
