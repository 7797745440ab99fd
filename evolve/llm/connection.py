"""Below a request: a connection that another thread can cut, a wait that can be cancelled, and quiet libraries."""

import asyncio
import contextlib
import importlib
import logging
import socket
from collections.abc import Coroutine
from threading import Event
from types import SimpleNamespace
from typing import Any, TypeVar

from kbevolve.configs.errors import ProposerError

T = TypeVar("T")

#: Loggers of the libraries below. Unconfigured they print to the terminal, and httpcore's debug lines contain headers;
#: what matters reaches the user through our errors.
_LOGGERS = ("openevolve", "openai", "httpx", "httpx2", "httpcore", "httpcore2")

#: Seconds to open a connection: a reachable machine answers in milliseconds, across an ocean in under one second.
CONNECT_SECONDS = 10.0

#: Seconds between checks whether a request was cancelled: Ctrl-C must not feel slow.
POLL_SECONDS = 0.2

#: Why a cancelled request ends.
CANCELLED = "the request was cancelled; `kbevolve resume` sends it again"


class OpenAIConnection:
    """An openai client that keeps the whole completion and whose connection another thread can cut.

    Closing a socket does not wake a thread that waits for a silent server; shutting it down does. The `trace` extension
    of httpx gives us the socket.
    """

    def __init__(self, *, base: str | None, key: str, timeout: float) -> None:
        import openai

        self._sockets: list[socket.socket] = []
        self._openai = openai.OpenAI(
            api_key=key,
            base_url=base,
            timeout=openai.Timeout(timeout, connect=min(timeout, CONNECT_SECONDS)),
            max_retries=0,
            http_client=openai.DefaultHttpxClient(event_hooks={"request": [self._trace_request]}),
        )
        #: The whole chat completion; None before it arrives.
        self.completion: Any = None
        #: What openevolve uses as its client.
        self.client = SimpleNamespace(chat=SimpleNamespace(completions=SimpleNamespace(create=self._create)))

    def close(self) -> None:
        """End the request, if it is still running, and close the connection."""
        for connection in self._sockets:
            with contextlib.suppress(OSError):  # already closed
                connection.shutdown(socket.SHUT_RDWR)
        self._openai.close()

    def _create(self, **parameters: Any) -> Any:
        self.completion = self._openai.chat.completions.create(**parameters)
        return self.completion

    def _trace_request(self, request: Any) -> None:
        request.extensions["trace"] = self._trace

    def _trace(self, event: str, info: dict[str, Any]) -> None:
        if event in ("connection.connect_tcp.complete", "connection.start_tls.complete"):
            found = info["return_value"].get_extra_info("socket")
            if found is not None:
                self._sockets.append(found)


async def until_cancelled(work: Coroutine[Any, Any, T], cancelled: Event) -> T:
    """The result of `work`; ProposerError as soon as `cancelled` is set."""
    task = asyncio.ensure_future(work)
    try:
        while not task.done():
            if cancelled.is_set():
                raise ProposerError(CANCELLED)
            await asyncio.wait({task}, timeout=POLL_SECONDS)
        return task.result()
    finally:
        if not task.done():
            task.cancel()
            await asyncio.wait({task})  # so that the connection is closed before the loop waits for its threads


def silence_libraries() -> None:
    """Keep the libraries below from writing to the terminal."""
    for library in ("openai", "openevolve"):
        importlib.import_module(library)  # first, because importing sets the levels that are set here
    for name in _LOGGERS:
        logging.getLogger(name).setLevel(logging.CRITICAL + 1)
