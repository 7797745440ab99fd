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
from kbevolve.evaluators.builds.sandboxed_compiler import made, short_lines
from kbevolve.evaluators.builds.traits import Traits, traits_of, united
from kbevolve.evaluators.worker.ptx import ptx_traits

#: Where nvcc keeps its intermediate files, and the file of the disassembly.
_KEPT = "kept"
_LISTING = "listing"
#: Most bytes of a text that is read. Kernels have up to two megabytes; to search this many takes most of a second.
_MOST_BYTES = 16 << 20
#: The exit code is the compiler's. A later failure only leaves no listing. The object is linked first, because
#: objdump's time is quadratic in sections: for a pybind module without -O 21 s before and 0.2 s after. `timeout` runs
#: in the foreground; otherwise it kills the whole group.
_SCRIPT = """"$@" || exit
cd ../out
{
  ld -shared --noinhibit-exec --defsym=__dso_handle=0 -o linked object.o &&
    timeout --foreground 3 "$0" -d --no-show-raw-insn -j .text linked > listing
} > messages 2>&1 || rm -f listing
exit 0
"""
#: Such an object holds no code yet: the linker will compile it.
LINKED_LATER = b".gnu.lto_"


def with_listing(command: Sequence[str], file: str, directory: Path) -> tuple[str, ...]:
    """The command that compiles `file` in a build directory, and leaves a text there for `listed_traits`."""
    if is_cuda(file):
        (directory / "out" / _KEPT).mkdir()
        return (*command, "--keep", "--keep-dir", f"../out/{_KEPT}")
    program = _objdump()
    return tuple(command) if program is None else ("sh", "-uc", _SCRIPT, program, *command)


def listed_traits(file: str, directory: Path, product: bytes) -> Traits | None:
    """The traits of the object `product` of `file`; None where there is no text."""
    if is_cuda(file):
        names = [path.name for path in sorted((directory / "out" / _KEPT).glob("*.ptx"))]  # one for each architecture
        texts = [_text(directory, f"{_KEPT}/{name}") for name in names]
        return united(None if text is None else traits_of(ptx_traits(text)) for text in texts)
    listing = None if LINKED_LATER in product else _text(directory, _LISTING)
    return None if listing is None else x86_traits(listing)


@functools.cache
def _objdump() -> str | None:
    """The disassembler, which comes with the assembler; None on machines other than x86-64."""
    return shutil.which("objdump") if platform.machine() == "x86_64" else None


def _text(directory: Path, name: str) -> str | None:
    """A text that a confined process left; None for a link, a folder, nothing, or a text that is too long."""
    text = made(directory, name, most_bytes=_MOST_BYTES)
    return None if text is None else short_lines(text.decode(errors="replace"))
