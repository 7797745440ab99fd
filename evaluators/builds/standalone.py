"""Builds a request in this process, from plain values to plain values: a task on another host."""

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

#: Host and device code side by side.
_COMPILERS = 2


def build_here(
    request: Mapping[str, Any], *, architecture: str, tools: str, seconds: float, cache: str | None = None
) -> dict[str, Any]:
    """Build a request with this host's compilers.

    Args:
        request: `BuildRequest.to_json()`.
        architecture: `BuildRequest.architecture`.
        tools: `compiler.toolchain()` of the caller.
        seconds: that compilers may take.
        cache: directory of this host's cache; None for a temporary one.

    Returns:
        Plain values for `product.from_plain`, with the library as bytes.

    Raises:
        BuildRefused: it is no valid request.
        EvaluatorError: this host has another torch or compiler, whose product would differ.
    """
    if tools != toolchain():
        raise EvaluatorError(
            "this host has another torch, Python or compiler than the judge's; build where they are the same"
        )
    with tempfile.TemporaryDirectory(prefix="kbevolve-cache-") as temporary:
        kept = BuildCache(Path(cache or temporary))
        parsed = BuildRequest.from_json(request, architecture=architecture)
        job = BuildJob(parsed, tools, cache=kept, headers=Headers(kept.directory), seconds=seconds)
        with ThreadPoolExecutor(_COMPILERS) as steps:
            return to_plain(job.result(steps, precompile=lambda name, command: None))
