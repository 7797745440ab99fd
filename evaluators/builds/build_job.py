"""Builds one request: an object for each source, side by side, then the link. Each step is a confined process."""

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from dataclasses import replace
from functools import partial
from pathlib import Path

from kbevolve.evaluators.builds.build_request import BuildRequest, digest, is_cuda
from kbevolve.evaluators.builds.cache import BuildCache
from kbevolve.evaluators.builds.compiler import commands, toolchain
from kbevolve.evaluators.builds.headers import Headers, LightHeaders
from kbevolve.evaluators.builds.listings import listed_traits, with_listing
from kbevolve.evaluators.builds.resources import merged, read_ptxas, without_ptxas
from kbevolve.evaluators.builds.sandboxed_compiler import CompilerRun, build_directory, run
from kbevolve.evaluators.builds.traits import united
from kbevolve.evaluators.sandbox.build_protocol import BuildResult, FailureReason

#: Called with the name and the compiler's words for a header that is worth precompiling.
Precompile = Callable[[str, Sequence[str]], None]


class BuildJob:
    """The build of one request."""

    def __init__(
        self,
        request: BuildRequest,
        *,
        cache: BuildCache,
        headers: Headers,
        seconds: float,
        nice: int,
        stop: threading.Event,
    ) -> None:
        """`seconds`: wall time for compilers; `nice` and `stop` as in `run`. Raises as `commands`."""
        self._request = request
        self._commands = commands(request)
        self._cache = cache
        self._headers = headers
        self._seconds = seconds
        self._run = partial(run, nice=nice, stop=stop)

    def result(self, steps: Executor, *, precompile: Precompile) -> BuildResult:
        """Run all steps in the threads of `steps`."""
        futures = [steps.submit(self._object, file, text, precompile) for file, text in self._request.sources]
        objects = [future.result() for future in futures]
        seconds = max(found.seconds for found in objects)
        log = "".join(found.log for found in objects)
        for found in objects:
            if found.product is None:
                shown = log if found.why is FailureReason.ERROR else found.log
                return BuildResult(product=None, why=found.why, log=shown, seconds=seconds)
        return steps.submit(self._link, objects, log, seconds).result()

    # ---- one source ------------------------------------------------------------------------------------------------

    def _object(self, file: str, text: str, precompile: Precompile) -> BuildResult:
        """Compile a source, or find it compiled for another request; with light headers if possible."""
        # A source that includes another source depends on all of them.
        included = self._request.sources if '#include "' in text else ()
        key = digest(toolchain(), self._commands.compile(file), text, included, self._request.plain)
        known = self._cache.get("object", key)
        if known is not None:
            return known
        light = None if self._request.plain else self._headers.lighter(text)
        if light is not None and light.binds and not is_cuda(file):
            name = self._headers.due(self._commands.cxx)
            if name is not None:
                precompile(name, self._commands.cxx)
        made = self._compile(file, light, self._seconds)
        if made.product is None and light is not None:
            again = self._compile(file, None, self._seconds - made.seconds)
            made = replace(again, seconds=made.seconds + again.seconds)
        if made.product is not None:
            self._cache.put("object", key, made)
        return made

    def _compile(self, file: str, light: LightHeaders | None, seconds: float) -> BuildResult:
        with build_directory() as directory:
            for name, text in self._request.sources:
                # newline="": carriage returns are kept.
                (directory / "work" / name).write_text(text, encoding="utf-8", newline="")
            command = self._commands.compile(file)
            readable: tuple[Path, ...] = ()
            if light is not None:
                (directory / "named").mkdir()
                (directory / "named" / "kbevolve_named.h").write_text(light.named)
                command = self._commands.compile(file, first=light.flags(cuda=is_cuda(file)))
                readable = (light.folder,)
            work = directory / "work"
            if self._is_kernel(file):
                command = with_listing(command, file, work)
            ran = self._run(command, directory, seconds, readable)
            product = _product(ran, work / "object.o")
            traits = listed_traits(file, work, product) if product is not None and self._is_kernel(file) else None
        return BuildResult(
            product=product,
            log=without_ptxas(ran.log),
            why=_why(ran),
            resources=read_ptxas(ran.log),
            traits=traits,
            seconds=ran.seconds,
            light=() if light is None else (file,),
        )

    def _is_kernel(self, file: str) -> bool:
        """Whether this source computes: in an extension with CUDA, the C++ source only launches."""
        return is_cuda(file) or not self._request.with_cuda

    # ---- the link --------------------------------------------------------------------------------------------------

    def _link(self, objects: Sequence[BuildResult], log: str, seconds: float) -> BuildResult:
        with build_directory() as directory:
            names = []
            for number, found in enumerate(objects):
                names.append(f"{number}.o")
                (directory / "work" / names[-1]).write_bytes(found.product or b"")
            command = self._commands.link_into("product", names)
            ran = self._run(command, directory, self._seconds - seconds)
            product = _product(ran, directory / "work" / "product")
        compiled = list(zip(self._request.sources, objects, strict=True))
        return BuildResult(
            product=product,
            log=log + ran.log,
            why=_why(ran),
            resources=merged(found.resources for found in objects),
            traits=united(found.traits for (file, _), found in compiled if self._is_kernel(file)),
            seconds=seconds + ran.seconds,
            light=tuple(file for (file, _), found in compiled if found.light),
        )


def _product(ran: CompilerRun, path: Path) -> bytes | None:
    """What a compiler made; None for a failure, a link, a folder or nothing."""
    return path.read_bytes() if ran.code == 0 and path.is_file() and not path.is_symlink() else None


def _why(ran: CompilerRun) -> FailureReason:
    if ran.timed_out:
        return FailureReason.TIME
    return FailureReason.MEMORY if ran.out_of_memory else FailureReason.ERROR
