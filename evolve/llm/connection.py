"""The wire below a request: a connection that can be cut, a wait that can be given up, and libraries kept quiet."""

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

#: Loggers of the libraries below us. They print to the terminal when nobody configured them, and httpcore's debug
#: lines hold headers; what they have to say reaches the user through our errors.
_CHATTY = ("openevolve", "openai", "httpx", "httpx2", "httpcore", "httpcore2")

#: Seconds to open a connection: a machine that is there answers in milliseconds, over any ocean in under one second.
CONNECT_SECONDS = 10.0

#: Seconds between looks at whether anybody still waits for the answer: Ctrl-C must not feel slow.
GLANCE = 0.2


class Line:
    """An openai client that keeps the whole answer and whose connection can be cut from outside.

    A thread that waits for a silent server is not woken by closing its socket, only by shutting it down; the socket
    is learnt from the `trace` extension of httpx.
    """

    def __init__(self, *, base: str | None, key: str, timeout: float) -> None:
        import openai

        self._sockets: list[socket.socket] = []
        self._openai = openai.OpenAI(
            api_key=key,
            base_url=base,
            timeout=openai.Timeout(timeout, connect=min(timeout, CONNECT_SECONDS)),
            max_retries=0,
            http_client=openai.DefaultHttpxClient(event_hooks={"request": [self._listen]}),
        )
        #: The whole chat completion, None before it came.
        self.completion: Any = None
        #: What openevolve takes for its client.
        self.client = SimpleNamespace(chat=SimpleNamespace(completions=SimpleNamespace(create=self._create)))

    def hang_up(self) -> None:
        """End the request, if it is still under way, and close the connection."""
        for connection in self._sockets:
            with contextlib.suppress(OSError):  # it is closed already
                connection.shutdown(socket.SHUT_RDWR)
        self._openai.close()

    def _create(self, **parameters: Any) -> Any:
        self.completion = self._openai.chat.completions.create(**parameters)
        return self.completion

    def _listen(self, request: Any) -> None:
        request.extensions["trace"] = self._trace

    def _trace(self, event: str, info: dict[str, Any]) -> None:
        if event in ("connection.connect_tcp.complete", "connection.start_tls.complete"):
            found = info["return_value"].get_extra_info("socket")
            if found is not None:
                self._sockets.append(found)


async def while_wanted(work: Coroutine[Any, Any, T], over: Event) -> T:
    """The result of `work`, which is given up when `over` is set."""
    task = asyncio.ensure_future(work)
    try:
        while not task.done():
            if over.is_set():
                raise ProposerError("the request was given up; `kbevolve resume` sends it again")
            await asyncio.wait({task}, timeout=GLANCE)
        return task.result()
    finally:
        if not task.done():
            task.cancel()
            await asyncio.wait({task})  # so that the connection is closed before the loop waits for its threads


def silence_libraries() -> None:
    """Keep the libraries below us from writing to our terminal."""
    for library in ("openai", "openevolve"):
        importlib.import_module(library)  # first, because importing sets the levels that are set here
    for name in _CHATTY:
        logging.getLogger(name).setLevel(logging.CRITICAL + 1)
