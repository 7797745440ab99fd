"""Builds a request in this process: a task on another host."""

import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from kbevolve.configs.errors import EvaluatorError
from kbevolve.evaluators.builds.build_job import BuildJob
from kbevolve.evaluators.builds.build_request import BuildRequest
from kbevolve.evaluators.builds.cache import BuildCache
from kbevolve.evaluators.builds.compiler import toolchain
from kbevolve.evaluators.builds.headers import Headers
from kbevolve.evaluators.builds.product import BuildResult

#: Host and device code side by side.
_COMPILERS = 2


def build_here(request: BuildRequest, *, tools: str, seconds: float) -> BuildResult:
    """Build a request with this host's compilers.

    Args:
        request: what to build.
        tools: `compiler.toolchain()` of the caller.
        seconds: that compilers may take.

    Raises:
        BuildRefused: torch's builder refuses it.
        EvaluatorError: this host has another torch or compiler, whose product would differ.
    """
    if tools != toolchain():
        raise EvaluatorError(
            "this host has another torch, Python or compiler than the judge's; build where they are the same"
        )
    with tempfile.TemporaryDirectory(prefix="kbevolve-cache-") as name, ThreadPoolExecutor(_COMPILERS) as steps:
        cache = BuildCache(Path(name))
        job = BuildJob(request, tools, cache=cache, headers=Headers(cache.directory), seconds=seconds)
        return job.result(steps, precompile=lambda name, command: None)
