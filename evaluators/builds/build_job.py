"""Builds one request: an object for each source, side by side, then the link. Each step is a confined process."""

import hashlib
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import replace
from functools import partial
from pathlib import Path

from kbevolve.evaluators.builds.build_request import BuildRequest, digest, is_cuda
from kbevolve.evaluators.builds.cache import EMPTY, BuildCache
from kbevolve.evaluators.builds.compiler import REPORTS, commands, toolchain
from kbevolve.evaluators.builds.dependencies import Reads, reads_of
from kbevolve.evaluators.builds.headers import FILES, Headers, LightHeaders, is_precompilable, lighter
from kbevolve.evaluators.builds.listings import LINKED_LATER, listed_traits, with_listing
from kbevolve.evaluators.builds.resources import merged, read_ptxas, without_ptxas
from kbevolve.evaluators.builds.sandboxed_compiler import CompilerRun, build_directory, made, readable_paths, run
from kbevolve.evaluators.builds.traits import united
from kbevolve.evaluators.sandbox.build_protocol import BuildResult, FailureReason

#: Bytes of a compiler's report about what it read.
_MOST_REPORT = 8 << 20

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
        self._files = {name: hashlib.sha256(content).hexdigest() for name, content in request.contents().items()}
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
        # The names of all files, because a source may test which exist. What it read of them is in the record.
        key = digest(toolchain(), FILES, self._commands.compile(file), text, sorted(self._files), self._request.plain)
        known = self._cache.get("object", key, self._files)
        if known is not None:
            return known
        light = None if self._request.plain else lighter(text, self._included(file, text))
        header: Path | None = None
        if light is not None and light.binds and not is_cuda(file) and is_precompilable(self._request):
            name = self._headers.due(self._commands.cxx)
            if name is not None:
                precompile(name, self._commands.cxx)
            header = self._headers.precompiled(self._commands.cxx)
        built = self._compile(file, light, self._seconds, header)
        if built.product is None and light is not None:
            again = self._compile(file, None, self._seconds - built.seconds)
            built = replace(again, seconds=built.seconds + again.seconds)
        if built.product is not None:
            self._cache.put("object", key, built)
        return built

    def _compile(
        self, file: str, light: LightHeaders | None, seconds: float, header: Path | None = None
    ) -> BuildResult:
        with build_directory() as directory:
            for name, content in self._request.contents().items():
                path = directory / "work" / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(content)
            command = self._commands.compile(file)
            if light is not None:
                light.write(directory, header)
                command = self._commands.compile(file, first=light.flags(cuda=is_cuda(file)))
            if self._is_kernel(file):
                command = with_listing(command, file, directory)
            began = time.time_ns()
            ran = self._run(command, directory, seconds, () if header is None else (header,))
            product = made(directory, "object.o") if ran.code == 0 else None
            traits = listed_traits(file, directory, product) if product is not None and self._is_kernel(file) else None
            # What the linker compiles, it reads without a report.
            known = product is not None and LINKED_LATER not in product
            reads = self._reads(directory, REPORTS, began, self._files) if known else None
        return BuildResult(
            product=product,
            log=without_ptxas(_log(ran, product)),
            why=_why(ran),
            resources=read_ptxas(ran.log),
            traits=traits,
            seconds=ran.seconds,
            light=() if light is None else (file,),
            reads=reads,
        )

    def _included(self, file: str, text: str) -> list[tuple[str, str]]:
        """Files of the request that a source may include."""
        sources = [(name, own) for name, own in self._request.sources if name != file and name in text]
        return [*self._request.files, *sources]

    def _is_kernel(self, file: str) -> bool:
        """Whether this source computes: in an extension with CUDA, the C++ source only launches."""
        return is_cuda(file) or not self._request.with_cuda

    def _reads(
        self, directory: Path, names: Sequence[str], began: int, files: Mapping[str, str] = EMPTY
    ) -> Reads | None:
        reports = [made(directory, name, most_bytes=_MOST_REPORT) for name in names]
        found = [report for report in reports if report is not None]
        if len(found) < len(reports):
            return None
        folders = self._commands.folders
        return reads_of(directory, found, files=files, folders=folders, began=began, readable=readable_paths())

    # ---- the link --------------------------------------------------------------------------------------------------

    def _link(self, objects: Sequence[BuildResult], log: str, seconds: float) -> BuildResult:
        with build_directory() as directory:
            names = {f"{number}.o": found.product or b"" for number, found in enumerate(objects)}
            for name, product in names.items():
                (directory / "work" / name).write_bytes(product)
            command = self._commands.link_into("../out/product", tuple(names))
            began = time.time_ns()
            ran = self._run(command, directory, self._seconds - seconds)
            linked = made(directory, "product") if ran.code == 0 else None
            reads = self._reads(directory, REPORTS[:1], began, dict.fromkeys(names, "linked"))
        compiled = list(zip(self._request.sources, objects, strict=True))
        return BuildResult(
            product=linked,
            log=log + _log(ran, linked),
            why=_why(ran),
            resources=merged(found.resources for found in objects),
            traits=united(found.traits for (file, _), found in compiled if self._is_kernel(file)),
            seconds=seconds + ran.seconds,
            light=tuple(file for (file, _), found in compiled if found.light),
            reads=_outside(reads, *(found.reads for found in objects)),
        )


def _outside(*parts: Reads | None) -> Reads | None:
    """What was read besides the request's own files, which are part of a library's key."""
    known = [part for part in parts if part is not None]
    if len(known) < len(parts):
        return None
    return {path: digest for part in known for path, digest in part.items() if path.startswith("/")}


def _log(ran: CompilerRun, product: bytes | None) -> str:
    lacking = "error: what was built is too large\n" if ran.code == 0 and product is None and not ran.timed_out else ""
    return ran.log + lacking


def _why(ran: CompilerRun) -> FailureReason:
    if ran.timed_out:
        return FailureReason.TIME
    return FailureReason.MEMORY if ran.out_of_memory else FailureReason.ERROR
