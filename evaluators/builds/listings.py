"""Has a compiler leave behind what its code can be read from, and reads it: PTX from nvcc, a disassembly from C++.

nvcc writes PTX anyway and only has to keep it, which costs nothing. The disassembler of the CUDA toolkit takes 0.4 s to
start, for each of the two parts of a library, and its output leaves open what PTX says (`evaluators.worker.ptx`).
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

#: Where nvcc keeps what it writes on its way, and where the disassembly goes: beside the object.
_KEPT = "kept"
_LISTING = "listing"
#: Bytes that are read of either. Those of kernels have up to two megabytes; to search so many takes most of a second.
_MOST_BYTES = 16 << 20
#: The compiler's own exit code is the command's. Whatever follows is no failure: no listing is left then. Linked first,
#: since objdump's time is quadratic in sections: of a pybind module without -O 21 s before, and 0.2 s so. `timeout` in
#: the foreground, or else it ends the whole group.
_SCRIPT = """"$@" || exit
{
  ld -shared --noinhibit-exec --defsym=__dso_handle=0 -o linked object.o &&
    timeout --foreground 3 "$0" -d --no-show-raw-insn -j .text linked > listing
} > messages 2>&1 || rm -f listing
exit 0
"""
#: Such an object holds what the linker will compile, and no code yet.
_LINKED_LATER = b".gnu.lto_"


def with_listing(command: Sequence[str], file: str, work: Path) -> tuple[str, ...]:
    """The command that compiles `file` in the folder `work`, and leaves something there for `listed_traits`."""
    if is_cuda(file):
        if any("keep" in word for word in command):  # the kernel's own flags
            return tuple(command)
        (work / _KEPT).mkdir()
        return (*command, "--keep", "--keep-dir", _KEPT)
    program = _objdump()
    return tuple(command) if program is None else ("sh", "-uc", _SCRIPT, program, *command)


def listed_traits(file: str, work: Path, made: bytes) -> Traits | None:
    """What shows in the object `made` of `file`; None where nothing could be looked into."""
    if is_cuda(file):
        texts = [_text(path) for path in sorted((work / _KEPT).glob("*.ptx"))]  # one for each architecture
        return united(None if text is None else traits_of(ptx_traits(text)) for text in texts)
    listing = None if _LINKED_LATER in made else _text(work / _LISTING)
    return None if listing is None else x86_traits(listing)


@functools.cache
def _objdump() -> str | None:
    """The disassembler, which comes with the assembler; None on a machine whose instructions nobody here can read."""
    return shutil.which("objdump") if platform.machine() == "x86_64" else None


def _text(path: Path) -> str | None:
    """A text that a confined process left; None for a link, a folder, nothing, or more than is read."""
    if path.is_symlink() or not path.is_file() or path.stat().st_size > _MOST_BYTES:
        return None
    return path.read_text(errors="replace")
