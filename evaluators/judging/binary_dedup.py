"""Kernels that compile to identical binaries are judged once: the second gets the first one's verdict and times.

A child that renames a variable in its CUDA code, or unrolls by hand what the compiler unrolls anyway, costs a build and
nothing more. It also gets no second measurement by which luck might make it look faster than its equal.

Two kernels are equal when everything that runs is equal: of the file, what no compiler sees (its shell); of the
libraries, their bytes, with the flags and the texts that the builders put around the file's own. Each text of the file
must be in the sources once and whole, and our builders must have built all: a library that a worker compiled itself is
unknown, and Triton compiles in the worker, whose reports are not believed beyond that (docs/novelty.md).
"""

import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from kbevolve.archive.records import Evaluation, Verdict, changed
from kbevolve.evaluators.builds.build_request import digest
from kbevolve.evaluators.sandbox.build_protocol import WorkerBuild

#: A file without the texts that only a compiler sees, and these texts; None where that is not certain.
ShellOf = Callable[[str], tuple[str, tuple[str, ...]] | None]

#: Verdicts that are kept; the newest stay.
_MOST_KNOWN = 4096
#: What of a build request decides about a library beside its sources.
_FLAGS = ("cflags", "cuda_cflags", "ldflags", "include_paths")


class KnownBinaries:
    """Verdicts of one problem's kernels by the hash of what they run. Thread-safe."""

    def __init__(self, shell_of: ShellOf | None) -> None:
        """`shell_of`: finds a file's shell; None where every kernel is to be judged itself."""
        self._shell_of = shell_of
        self._known: dict[str, Evaluation] = {}
        self._lock = threading.Lock()

    def hash_of(self, source: str, built: Sequence[WorkerBuild], *, built_alone: bool) -> str:
        """Hash of all that a kernel runs; "" where that is not known.

        Args:
            source: the file.
            built: what our builders made for its worker, once it is imported.
            built_alone: whether the worker compiled anything by itself.
        """
        if self._shell_of is None or built_alone or not built:
            return ""
        shell = self._shell_of(source)
        return "" if shell is None else _hash(*shell, built)

    def verdict(self, found: Evaluation) -> Evaluation | None:
        """The evaluation of another kernel with the same binaries, as one of this kernel; None where there is none."""
        with self._lock:
            known = self._known.get(found.compiled.binary_hash) if found.compiled.binary_hash else None
        if known is None or known.kernel == found.kernel:  # evaluated twice, a kernel gets two answers
            return None
        return changed(
            known,
            kernel=found.kernel,
            message=f"compiles to the machine code of kernel {known.kernel}, whose verdict and times these are",
            tags=tuple(dict.fromkeys((*found.tags, *known.tags))),
            sandbox=found.execution.sandbox,
            started_at=found.execution.started_at,
            device_instance=found.execution.device_instance,
            identical_to=known.kernel,
        )

    def remember(self, found: Evaluation) -> None:
        """Keep the verdict of a correct kernel. What failed once may pass next time, and is judged again."""
        if (
            not found.compiled.binary_hash
            or found.verdict is not Verdict.CORRECT
            or found.compiled.identical_to is not None
        ):
            return
        with self._lock:
            self._known.setdefault(found.compiled.binary_hash, replace(found, blocks=()))
            if len(self._known) > _MOST_KNOWN:
                del self._known[next(iter(self._known))]

    def forget(self, kernels: Iterable[str]) -> None:
        """Drop the verdicts of kernels that failed when they were judged again."""
        gone = set(kernels)
        with self._lock:
            for code in [code for code, known in self._known.items() if known.kernel in gone]:
                del self._known[code]


def _hash(shell: str, texts: Sequence[str], built: Sequence[WorkerBuild]) -> str:
    libraries = [build.library for build in built if build.library]
    if len(libraries) < len(built):
        return ""  # a build failed, and the file went on without it
    sources = {
        (number, at): str(text)
        for number, build in enumerate(built)
        for at, (_, text) in enumerate(build.request["sources"])
    }
    used = set()
    # The longest first: a definition may hold a declaration.
    for number, text in sorted(enumerate(texts), key=lambda one: -len(one[1])):
        if not text or sum(source.count(text) for source in sources.values()) != 1:
            return ""  # compiled later, or not known where
        (place,) = (place for place, source in sources.items() if text in source)
        sources[place] = sources[place].replace(text, f"\x00{number}\x00")
        used.add(place[0])
    if len(used) < len(built):
        return ""  # something else was built as well
    flags = [[build.request.get(name) for name in _FLAGS] for build in built]
    return digest(shell, list(sources.items()), flags, libraries)[:16]
