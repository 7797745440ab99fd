"""Lets a compiler leave a text of its code, and reads its traits: PTX of nvcc, a disassembly of C++.

nvcc writes PTX anyway, so keeping it costs nothing. The disassembler of the CUDA toolkit takes 0.4 s to start, for each
of the two parts of a library, and its output is ambiguous where PTX is clear (`evaluators.worker.ptx`).
"""

import functools
import platform
import shutil
from collections.abc import Sequence
from pathlib import Path

from kbevolve.evaluators.builds.build_request import is_cuda
from kbevolve.evaluators.builds.disassembly import x86_traits
from kbevolve.evaluators.builds.traits import Traits, traits_of, united
from kbevolve.evaluators.worker.ptx import ptx_traits

#: Where nvcc keeps its intermediate files, and the file of the disassembly: beside the object.
_KEPT = "kept"
_LISTING = "listing"
#: Most bytes of a text that is read. Kernels have up to two megabytes; to search this many takes most of a second.
_MOST_BYTES = 16 << 20
#: The exit code is the compiler's. A later failure only leaves no listing. The object is linked first, because
#: objdump's time is quadratic in sections: for a pybind module without -O 21 s before and 0.2 s after. `timeout` runs
#: in the foreground; otherwise it kills the whole group.
_SCRIPT = """"$@" || exit
{
  ld -shared --noinhibit-exec --defsym=__dso_handle=0 -o linked object.o &&
    timeout --foreground 3 "$0" -d --no-show-raw-insn -j .text linked > listing
} > messages 2>&1 || rm -f listing
exit 0
"""
#: Such an object holds no code yet: the linker will compile it.
_LINKED_LATER = b".gnu.lto_"


def with_listing(command: Sequence[str], file: str, work: Path) -> tuple[str, ...]:
    """The command that compiles `file` in the folder `work`, and leaves a text there for `listed_traits`."""
    if is_cuda(file):
        if any("keep" in word for word in command):  # the kernel's own flags
            return tuple(command)
        (work / _KEPT).mkdir()
        return (*command, "--keep", "--keep-dir", _KEPT)
    program = _objdump()
    return tuple(command) if program is None else ("sh", "-uc", _SCRIPT, program, *command)


def listed_traits(file: str, work: Path, made: bytes) -> Traits | None:
    """The traits of the object `made` of `file`; None where there is no text."""
    if is_cuda(file):
        texts = [_text(path) for path in sorted((work / _KEPT).glob("*.ptx"))]  # one for each architecture
        return united(None if text is None else traits_of(ptx_traits(text)) for text in texts)
    listing = None if _LINKED_LATER in made else _text(work / _LISTING)
    return None if listing is None else x86_traits(listing)


@functools.cache
def _objdump() -> str | None:
    """The disassembler, which comes with the assembler; None on machines other than x86-64."""
    return shutil.which("objdump") if platform.machine() == "x86_64" else None


def _text(path: Path) -> str | None:
    """A text that a confined process left; None for a link, a folder, nothing, or a text that is too long."""
    if path.is_symlink() or not path.is_file() or path.stat().st_size > _MOST_BYTES:
        return None
    return path.read_text(errors="replace")
