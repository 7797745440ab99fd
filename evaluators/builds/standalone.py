"""Builds an order in this process, from plain values to plain values: what a task on another host does."""

import tempfile
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from kbevolve.configs.errors import EvaluatorError
from kbevolve.evaluators.builds.build_job import BuildJob
from kbevolve.evaluators.builds.build_request import BuildRequest
from kbevolve.evaluators.builds.cache import BuildCache
from kbevolve.evaluators.builds.compiler import toolchain
from kbevolve.evaluators.builds.headers import Headers
from kbevolve.evaluators.builds.product import to_plain

#: Host and device part side by side.
_COMPILERS = 2


def build_here(
    order: Mapping[str, Any], *, architecture: str, tools: str, seconds: float, cache: str | None = None
) -> dict[str, Any]:
    """Build an order with this host's compilers.

    Args:
        order: `BuildRequest.to_json()`.
        architecture: of the GPU that it shall run on, `BuildRequest.architecture`.
        tools: `compiler.toolchain()` of who asks.
        seconds: that compilers may take.
        cache: directory of this host's cache; None for one that ends with the call.

    Returns:
        What `product.from_plain` reads: plain values, the library as bytes.

    Raises:
        BuildRefused: it is no order.
        EvaluatorError: another torch or compiler is here, which would build something else under the same name.
    """
    if tools != toolchain():
        raise EvaluatorError(
            "this host has another torch, Python or compiler than the judge's; build where they are the same"
        )
    with tempfile.TemporaryDirectory(prefix="kbevolve-cache-") as passing:
        place = BuildCache(Path(cache or passing))
        building = BuildJob(
            BuildRequest.from_json(order, architecture=architecture),
            tools,
            cache=place,
            headers=Headers(place.directory),
            seconds=seconds,
        )
        with ThreadPoolExecutor(_COMPILERS) as steps:
            return to_plain(building.outcome(steps, precompile=lambda name, command: None))
