"""Kernels that compile to one machine code are judged once: the second has the first one's verdict and times.

A child that renames a variable in its CUDA code, or unrolls by hand what the compiler unrolls anyway, costs a build
and nothing more. It is also measured no second time by which it might look faster than its equal, by luck.

Two kernels are twins when everything that runs is equal: of the file what no compiler sees (its shell), of what a
compiler sees the bytes of the libraries, with the flags and the texts around it. What was built must hold the file's
own texts, each once and whole, and our builders must have built all of it: a library that a worker compiled is not
known, and Triton compiles in the worker. What a worker told is not believed beyond that (docs/novelty.md).
"""

import re
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from hashlib import sha256

from kbevolve.archive.parts import changed
from kbevolve.archive.records import Evaluation, Verdict
from kbevolve.evaluators.builds.build_request import digest
from kbevolve.evaluators.sandbox.build_protocol import BuildReply

#: A file but for what only a compiler sees, and the texts that it sees; None where that cannot be told for certain.
ShellOf = Callable[[str], tuple[str, tuple[str, ...]] | None]

#: Verdicts that are kept; the newest stay.
_MOST_KNOWN = 4096
#: How nvcc names what is inside one source: file-local variables of headers, kernels of anonymous namespaces.
_NUMBERED = re.compile(rb"(_(?:INTERNAL|GLOBAL__N_)_)([0-9a-f]{8})(?=_[0-9]+_)")
#: What of an order decides about a library beside its sources.
_FLAGS = ("cflags", "cuda_cflags", "ldflags", "include_paths", "with_cuda", "standalone")


class Twins:
    """What is known of the codes of one problem's kernels; for several threads."""

    def __init__(self, shell_of: ShellOf | None) -> None:
        """`shell_of`: tells a file's shell; None where every kernel is to be judged itself."""
        self._shell_of = shell_of
        self._known: OrderedDict[str, Evaluation] = OrderedDict()
        self._lock = threading.Lock()

    def code_of(self, source: str, built: Sequence[BuildReply], *, built_alone: bool) -> str:
        """Hash of all that a kernel runs; "" where that is not known.

        Args:
            source: the file.
            built: what our builders made for its worker, once it is imported.
            built_alone: whether the worker compiled anything by itself.
        """
        if self._shell_of is None or built_alone or not built:
            return ""
        shell = self._shell_of(source)
        return "" if shell is None else _code(*shell, built)

    def verdict(self, found: Evaluation) -> Evaluation | None:
        """The verdict of another kernel of the same code as one of this kernel's; None where there is none."""
        with self._lock:
            known = self._known.get(found.compiled.binary_hash) if found.compiled.binary_hash else None
        if known is None or known.kernel == found.kernel:  # asked twice about one kernel, somebody wants two answers
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

    def note(self, found: Evaluation) -> None:
        """Remember a verdict, if it is that a kernel is right: what failed once may do better, and is judged again."""
        if (
            not found.compiled.binary_hash
            or found.verdict is not Verdict.CORRECT
            or found.compiled.identical_to is not None
        ):
            return
        with self._lock:
            self._known.setdefault(found.compiled.binary_hash, replace(found, blocks=()))
            if len(self._known) > _MOST_KNOWN:
                self._known.popitem(last=False)

    def forget(self, kernels: Iterable[str]) -> None:
        """Kernels that did not pass again: nobody has their verdict any more."""
        gone = set(kernels)
        with self._lock:
            for code in [code for code, known in self._known.items() if known.kernel in gone]:
                del self._known[code]


def _code(shell: str, texts: Sequence[str], built: Sequence[BuildReply]) -> str:
    orders = [reply.request for reply in built if reply.request is not None and reply.library is not None]
    if len(orders) < len(built):
        return ""  # a build that failed, and went on without
    frames = [[str(text) for _, text in order["sources"]] for order in orders]
    used = set()
    # The longest first: a declaration may stand in a definition, too.
    for number in sorted(range(len(texts)), key=lambda number: -len(texts[number])):
        places = [
            (build, source)
            for build, sources in enumerate(frames)
            for source, whole in enumerate(sources)
            for _ in range(whole.count(texts[number]) if texts[number] else 0)
        ]
        if len(places) != 1:
            return ""  # it will be compiled later, or nobody can tell where it went
        ((build, source),) = places
        frames[build][source] = frames[build][source].replace(texts[number], f"\x00{number}\x00")
        used.add(build)
    if len(used) < len(built):
        return ""  # something else was built as well
    libraries = [sha256(_without_number(reply.library or b"")).hexdigest() for reply in built]
    flags = [[order.get(name) for name in _FLAGS] for order in orders]
    return digest(shell, frames, flags, libraries)[:16]


def _without_number(library: bytes) -> bytes:
    """The library without the number that nvcc derives from a source's text, and writes into names nobody outside sees.

    Any header of torch brings such names. A text of the kernel's own may look like one: the number is left out only
    where all of them have the same, for then no such text tells one library from another.
    """
    numbers = {found[2] for found in _NUMBERED.finditer(library)}
    return _NUMBERED.sub(rb"\1", library) if len(numbers) == 1 else library
