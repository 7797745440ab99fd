"""The server of the Model Context Protocol for coding agents, with the official `mcp` package (an extra)."""

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
from pydantic import ValidationError

from kbevolve import __version__
from kbevolve.configs.errors import KBEvolveError
from kbevolve.evolve.ask_tell.agent_tools import AgentTools

Tool = Callable[..., dict[str, Any]]

#: Seconds between two progress messages; clients give up after some 60 s without one.
SECONDS = 5.0

#: The agent reads this before it calls a tool.
INSTRUCTIONS = """\
kbevolve evolves fast GPU (or CPU) kernels: given a PyTorch `Model`, a faster `ModelNew` that computes the same. You
write the children. Call `begin` for a problem (`problems` lists them), or `ask` for an existing run. Answer each
question with `tell`: an idea in words, then the code that carries it out, or both at once (`idea` and `code`). `tell`
judges the kernel, returns the result in `news`, and the next question; repeat until `over` is true, then `export` the
best. Read the whole prompt of a question: `system` says what a kernel must be and what is refused, the last message
what is wanted. `evaluate` tries a kernel without answering. Nothing is lost: after any interruption, `ask` continues
the run."""


class _Server(MCPServer):
    """Says in one line which argument is wrong, and why."""

    async def call_tool(self, name: str, arguments: dict[str, Any], context: Context[Any, Any] | None = None) -> Any:
        """Call a tool by name."""
        try:
            return await super().call_tool(name, arguments, context)
        except ToolError as error:
            if not isinstance(error.__cause__, ValidationError):
                raise
            wrong = (
                f"{'.'.join(map(str, one['loc']))}: {one['msg'][:1].lower()}{one['msg'][1:]}"
                for one in error.__cause__.errors()
            )
            raise ToolError(f"{name} was called wrongly: {'; '.join(wrong)}") from None


def build_server(tools: AgentTools) -> MCPServer:
    """A server with these tools; their errors become tool errors of one line."""
    server = _Server("kbevolve", instructions=INSTRUCTIONS, version=__version__, log_level="WARNING")
    reading: tuple[Tool, ...] = (tools.problems, tools.runs, tools.kernel, tools.lineage, tools.evaluate)
    writing: tuple[Tool, ...] = (tools.begin, tools.ask, tools.tell, tools.export)
    for tool in (*writing, *reading):
        server.add_tool(_served(tool, tools), annotations=ToolAnnotations(read_only_hint=tool in reading))
    return server


def _served(tool: Tool, tools: AgentTools) -> Callable[..., Awaitable[dict[str, Any]]]:
    """A tool as the protocol calls it: in a thread of its own, with progress messages while it works."""

    @functools.wraps(tool)
    async def call(*, context: Context[Any, Any], **arguments: Any) -> dict[str, Any]:
        found: dict[str, Any] | KBEvolveError
        async with anyio.create_task_group() as group:
            group.start_soon(_beat, context, tools)
            try:
                found = await anyio.to_thread.run_sync(functools.partial(tool, **arguments))
            except KBEvolveError as error:
                found = error  # raised outside, because a task group wraps errors in a group
            group.cancel_scope.cancel()
        if isinstance(found, KBEvolveError):
            raise ToolError(str(found)) from found
        return found

    # The agent sees the tool's own signature; the server adds the context.
    own = inspect.signature(tool)
    added = inspect.Parameter("context", inspect.Parameter.KEYWORD_ONLY, annotation=Context)
    call.__signature__ = own.replace(parameters=[*own.parameters.values(), added])  # type: ignore[attr-defined]
    call.__annotations__ = {**tool.__annotations__, "context": Context}
    return call


async def _beat(context: Context[Any, Any], tools: AgentTools) -> None:
    """Report progress every few seconds, so that the client does not give up."""
    for beats in itertools.count(1):
        await anyio.sleep(SECONDS)
        await context.report_progress(beats * SECONDS, message=tools.doing or None)
