"""Below a request: a wait that another thread can cancel, and quiet libraries."""

import asyncio
import importlib
import logging
from collections.abc import Coroutine
from threading import Event
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
