"""Builds one request: an object for each source, side by side, then the link. Each step is a confined process."""

import tempfile
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path

from kbevolve.configs.errors import EvaluatorError
from kbevolve.evaluators.builds.build_request import BuildRequest, digest, is_cuda
from kbevolve.evaluators.builds.cache import BuildCache, CacheEntry
from kbevolve.evaluators.builds.compiler import commands, toolchain
from kbevolve.evaluators.builds.headers import Headers, LightHeaders
from kbevolve.evaluators.builds.listings import listed_traits, with_listing
from kbevolve.evaluators.builds.product import BuildFailure, BuildResult, BuiltLibrary, FailureReason
from kbevolve.evaluators.builds.resources import KernelResources, kernels_of, merged, read_ptxas, without_ptxas
from kbevolve.evaluators.builds.sandboxed_compiler import CompilerRun, build_directory, run
from kbevolve.evaluators.builds.traits import Traits, traits_of, united
from kbevolve.evaluators.sandbox.process_table import ProcessTable

#: With fewer seconds left no step is started.
_LEAST_SECONDS = 0.5
#: At this nice value a busy core gives a compiler a tenth of another process's share (sched(7)), so no build starves.
_NICE = 10
#: Compilers of `build_once`: for host and device code.
_COMPILERS = 2

#: Called with the name and the compiler's words for a header that is worth precompiling.
Precompile = Callable[[str, Sequence[str]], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class _CompiledSource:
    """One source, compiled or not."""

    #: The object file; None for a failure.
    data: bytes | None
    log: str
    seconds: float
    #: Whether it was compiled with light headers.
    light: bool = False
    why: FailureReason = FailureReason.ERROR
    resources: tuple[KernelResources, ...] = ()
    #: Of its code; None where it could not be disassembled.
    traits: Traits | None = None


class BuildJob:
    """The build of one request."""

    def __init__(
        self,
        request: BuildRequest,
        toolchain: str,
        *,
        cache: BuildCache,
        headers: Headers,
        seconds: float,
        stop: threading.Event | None = None,
        process_table: ProcessTable | None = None,
    ) -> None:
        """`seconds`: wall time for compilers; `stop`: ends them earlier; `process_table`: counts their processes.

        Raises:
            BuildRefused: torch's builder refuses it.
            EvaluatorError: this torch's builder is unknown.
        """
        self._request = request
        self._toolchain = toolchain
        self._commands = commands(request)
        self._cache = cache
        self._headers = headers
        self._seconds = seconds
        self._run = partial(_run, nice=_nice(request.architecture), stop=stop, process_table=process_table)

    def result(self, steps: Executor, *, precompile: Precompile) -> BuildResult:
        """Run all steps in the threads of `steps`."""
        futures = [steps.submit(self._object, file, text, precompile) for file, text in self._request.sources]
        objects = [future.result() for future in futures]
        seconds = max(found.seconds for found in objects)
        log = "".join(found.log for found in objects)
        for found in objects:
            if found.data is None:
                shown = log if found.why is FailureReason.ERROR else found.log
                return BuildFailure(why=found.why, log=shown, seconds=seconds)
        return steps.submit(self._link, objects, log, seconds).result()

    # ---- one source ------------------------------------------------------------------------------------------------

    def _object(self, file: str, text: str, precompile: Precompile) -> _CompiledSource:
        """Compile a source, or find it compiled for another request; with light headers if possible."""
        # A source that includes another source depends on all of them.
        included = self._request.sources if '#include "' in text else ()
        key = digest(self._toolchain, self._commands.compile(file), text, included, self._request.plain)
        known = self._cache.get("object", key)
        if known is not None and known.product is not None:
            return _CompiledSource(
                data=known.product,
                log=known.record["log"],
                seconds=0.0,
                light=known.record["light"],
                resources=kernels_of(known.record["resources"]),
                traits=traits_of(known.record["traits"]),
            )
        light = None if self._request.plain else self._headers.lighter(text)
        if light is not None and light.binds and not is_cuda(file):
            name = self._headers.due(self._commands.cxx)
            if name is not None:
                precompile(name, self._commands.cxx)
        made = self._compile(file, light, self._seconds)
        if made.data is None and light is not None:
            again = self._compile(file, None, self._seconds - made.seconds)
            made = replace(again, seconds=made.seconds + again.seconds)
        if made.data is not None:
            kernels = [asdict(kernel) for kernel in made.resources]
            record = {"log": made.log, "light": made.light, "resources": kernels, "traits": made.traits}
            self._cache.put("object", key, CacheEntry(product=made.data, record=record))
        return made

    def _compile(self, file: str, light: LightHeaders | None, seconds: float) -> _CompiledSource:
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
            data = _product(work / "object.o") if ran.code == 0 else None
            traits = listed_traits(file, work, data) if data is not None and self._is_kernel(file) else None
        return _CompiledSource(
            data=data,
            log=without_ptxas(ran.log),
            seconds=ran.seconds,
            light=light is not None,
            why=_why(ran),
            resources=read_ptxas(ran.log),
            traits=traits,
        )

    def _is_kernel(self, file: str) -> bool:
        """Whether this source computes: in an extension with CUDA, the C++ source only launches."""
        return is_cuda(file) or not self._request.with_cuda

    # ---- the link --------------------------------------------------------------------------------------------------

    def _link(self, objects: Sequence[_CompiledSource], log: str, seconds: float) -> BuildResult:
        with build_directory() as directory:
            names = []
            for number, found in enumerate(objects):
                assert found.data is not None
                names.append(f"{number}.o")
                (directory / "work" / names[-1]).write_bytes(found.data)
            command = self._commands.link_into("product", names)
            ran = self._run(command, directory, self._seconds - seconds)
            library = _product(directory / "work" / "product") if ran.code == 0 else None
        seconds += ran.seconds
        if library is None:
            return BuildFailure(why=_why(ran), log=log + ran.log, seconds=seconds)
        compiled = [(file, found) for (file, _), found in zip(self._request.sources, objects, strict=True)]
        return BuiltLibrary(
            library=library,
            log=log + ran.log,
            resources=merged([found.resources for found in objects]),
            traits=united(found.traits for file, found in compiled if self._is_kernel(file)),
            seconds=seconds,
            light=tuple(file for file, found in compiled if found.light),
        )


def build_once(request: BuildRequest, *, tools: str, seconds: float) -> BuildResult:
    """Build a request in this process with a temporary cache: a task on another host.

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


def precompile_header(
    headers: Headers,
    name: str,
    command: Sequence[str],
    *,
    architecture: str,
    seconds: float,
    stop: threading.Event | None = None,
) -> bool:
    """Make a precompiled header in the cache; whether it was made. `architecture`: of the device, "" for a CPU."""
    with build_directory() as directory:

        def make(words: Sequence[str], folder: Path) -> Path | None:
            made = directory / "work" / "object.o"
            ran = _run(words, directory, seconds, (folder,), nice=_nice(architecture), stop=stop)
            return made if ran.code == 0 and made.is_file() else None

        return headers.precompile(name, command, make)


def _nice(architecture: str) -> int:
    """By how much compilers yield to other processes, as nice(1) takes it.

    While they run, a kernel may be timed on the GPU, whose host process needs a core at once for each call, and workers
    start, which use the driver in turn. On a CPU no kernel is timed meanwhile.
    """
    return _NICE if architecture else 0


def _run(
    command: Sequence[str],
    directory: Path,
    seconds: float,
    readable: Sequence[Path] = (),
    *,
    nice: int,
    stop: threading.Event | None = None,
    process_table: ProcessTable | None = None,
) -> CompilerRun:
    if seconds < _LEAST_SECONDS:
        return CompilerRun(code=-9, log="", seconds=0.0, timed_out=True)
    return run(
        command, directory, seconds=seconds, readable=readable, nice=nice, stop=stop, process_table=process_table
    )


def _product(path: Path) -> bytes | None:
    """What a compiler made; None for a link, a folder or nothing."""
    return path.read_bytes() if path.is_file() and not path.is_symlink() else None


def _why(ran: CompilerRun) -> FailureReason:
    if ran.timed_out:
        return FailureReason.TIME
    return FailureReason.MEMORY if ran.out_of_memory else FailureReason.ERROR
