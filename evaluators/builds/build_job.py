"""Builds one order: an object for each source, side by side, then the link. Each step is a confined process."""

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from kbevolve.evaluators.builds.build_request import BuildRequest, digest, is_cuda
from kbevolve.evaluators.builds.cache import BuildCache, CacheEntry
from kbevolve.evaluators.builds.compiler import Commands, commands
from kbevolve.evaluators.builds.headers import Headers, LightHeaders
from kbevolve.evaluators.builds.listings import listed_traits, with_listing
from kbevolve.evaluators.builds.product import BuildFailure, BuildResult, BuiltLibrary, FailureReason
from kbevolve.evaluators.builds.resources import KernelResources, merged, read_ptxas, without_ptxas
from kbevolve.evaluators.builds.sandboxed_compiler import CompilerRun, build_directory, run
from kbevolve.evaluators.builds.traits import Traits, traits_of, united, words_for
from kbevolve.evaluators.sandbox.process_table import ProcessTable

#: Seconds without which no step is begun.
_LEAST_SECONDS = 0.5
#: A tenth of what others get of a core that all want (sched(7)): no build starves beside a busy neighbour.
_NICE = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class _Object:
    """One source, compiled or not."""

    data: bytes | None
    said: str
    seconds: float
    light: bool = False
    why: FailureReason = FailureReason.ERROR
    resources: tuple[KernelResources, ...] = ()
    #: What shows in its code; None where nobody could look.
    traits: Traits | None = None


class BuildJob:
    """One order on its way."""

    def __init__(
        self,
        order: BuildRequest,
        toolchain: str,
        *,
        cache: BuildCache,
        headers: Headers,
        seconds: float,
        stop: threading.Event | None = None,
        process_table: ProcessTable | None = None,
    ) -> None:
        """`seconds`: that compilers may take, on the wall; `stop`: ends them before that; `process_table`: counts them.

        Raises:
            BuildRefused: torch's builder refuses it.
            EvaluatorError: torch has no builder that we know.
        """
        self._order = order
        self._toolchain = toolchain
        self._commands: Commands = commands(order)
        self._cache = cache
        self._headers = headers
        self._seconds = seconds
        self._run = partial(_run, nice=_politeness(order.architecture), stop=stop, process_table=process_table)

    def outcome(self, steps: Executor, *, precompile: Callable[[str, Sequence[str]], None]) -> BuildResult:
        """Run all steps.

        Args:
            steps: runs them; no more at once than it has threads.
            precompile: told the name and the words for a header that is worth precompiling.
        """
        futures = [steps.submit(self._object, file, text, precompile) for file, text in self._order.sources]
        objects = [future.result() for future in futures]
        seconds = max(found.seconds for found in objects)
        said = "".join(found.said for found in objects)
        for found in objects:
            if found.data is None:
                log = said if found.why is FailureReason.ERROR else found.said
                return BuildFailure(why=found.why, log=log, seconds=seconds)
        return steps.submit(self._link, objects, said, seconds).result()

    # ---- one source ------------------------------------------------------------------------------------------------

    def _object(self, file: str, text: str, precompile: Callable[[str, Sequence[str]], None]) -> _Object:
        """Compile a source, lightly if it can be; it was perhaps compiled for another order."""
        # Whatever a source includes of its neighbours belongs to what is compiled.
        company = self._order.sources if '#include "' in text else ()
        key = digest(self._toolchain, self._commands.compile(file), text, company, self._order.plain)
        known = self._cache.get("object", key)
        if known is not None and known.product is not None:
            return _Object(
                data=known.product,
                said=known.record["said"],
                seconds=0.0,
                light=known.record["light"],
                resources=tuple(KernelResources.from_json(kernel) for kernel in known.record["resources"]),
                traits=traits_of(known.record.get("traits")),
            )
        light = None if self._order.plain else self._headers.lighter(text)
        if light is not None and light.binds and not is_cuda(file):
            name = self._headers.due(self._commands.cxx)
            if name is not None:
                precompile(name, self._commands.cxx)
        made = self._compile(file, light, self._seconds)
        if made.data is None and light is not None:
            again = self._compile(file, None, self._seconds - made.seconds)
            made = _Object(
                data=again.data,
                said=again.said,
                seconds=made.seconds + again.seconds,
                why=again.why,
                resources=again.resources,
                traits=again.traits,
            )
        if made.data is not None:
            kernels = [kernel.to_json() for kernel in made.resources]
            shown = words_for(made.traits)
            record = {"said": made.said, "light": made.light, "resources": kernels, "traits": shown}
            self._cache.put("object", key, CacheEntry(product=made.data, record=record))
        return made

    def _compile(self, file: str, light: LightHeaders | None, seconds: float) -> _Object:
        with build_directory() as directory:
            self._write_sources(directory)
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
        return _Object(
            data=data,
            said=without_ptxas(ran.said),
            seconds=ran.seconds,
            light=light is not None,
            why=_why(ran),
            resources=read_ptxas(ran.said),
            traits=traits,
        )

    def _is_kernel(self, file: str) -> bool:
        """Whether what computes is in there: with CUDA, the C++ beside it only launches."""
        return is_cuda(file) or not self._order.with_cuda

    def _write_sources(self, directory: Path) -> None:
        for name, text in self._order.sources:
            # newline="": carriage returns stay what they were.
            (directory / "work" / name).write_text(text, encoding="utf-8", newline="")

    # ---- all together ----------------------------------------------------------------------------------------------

    def _link(self, objects: Sequence[_Object], said: str, seconds: float) -> BuildResult:
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
            return BuildFailure(why=_why(ran), log=said + ran.said, seconds=seconds)
        files = [file for file, _ in self._order.sources]
        kernels = [found for file, found in zip(files, objects, strict=True) if self._is_kernel(file)]
        return BuiltLibrary(
            library=library,
            log=said + ran.said,
            resources=merged([found.resources for found in objects]),
            traits=united(kernel.traits for kernel in kernels),
            seconds=seconds,
            light=tuple(file for file, found in zip(files, objects, strict=True) if found.light),
        )


def _politeness(architecture: str) -> int:
    """By how much compilers yield to other processes, as nice(1) takes it.

    Beside them a kernel is timed on the GPU, whose host needs a core at once for each call, and workers start, which
    take turns at the driver. On a CPU nobody is timed meanwhile.
    """
    return _NICE if architecture else 0


def precompile(
    headers: Headers,
    name: str,
    command: Sequence[str],
    *,
    architecture: str,
    seconds: float,
    stop: threading.Event | None = None,
) -> bool:
    """Make a precompiled header in the cache; whether it was made. `architecture`: of the device here, "" for a CPU."""
    with build_directory() as directory:

        def make(words: Sequence[str], folder: Path) -> Path | None:
            made = directory / "work" / "object.o"
            ran = _run(words, directory, seconds, (folder,), nice=_politeness(architecture), stop=stop)
            return made if ran.code == 0 and made.is_file() else None

        return headers.precompile(name, command, make)


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
        return CompilerRun(code=-9, said="", seconds=0.0, timed_out=True)
    return run(
        command, directory, seconds=seconds, readable=readable, nice=nice, stop=stop, process_table=process_table
    )


def _product(path: Path) -> bytes | None:
    """What a compiler made; a link, a folder or nothing is none."""
    return path.read_bytes() if path.is_file() and not path.is_symlink() else None


def _why(ran: CompilerRun) -> FailureReason:
    if ran.timed_out:
        return FailureReason.TIME
    return FailureReason.MEMORY if ran.out_of_memory else FailureReason.ERROR
