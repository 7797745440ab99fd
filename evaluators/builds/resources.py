"""ptxas' report about each kernel: registers, spills, shared memory."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace

from kbevolve.archive.records import Launch, Profile
from kbevolve.evaluators.builds.sandboxed_compiler import short_lines
from kbevolve.evaluators.sandbox.build_protocol import KernelResources

_LINE = re.compile(r"^ptxas info[ \t]*:.*\n?|^[ \t]+\d+ bytes stack frame.*\n?", re.MULTILINE)
_ENTRY = re.compile(r"Compiling entry function '(?P<name>[^']+)'")
_USED = re.compile(r"Used (?P<registers>\d{1,9}) registers(?:.*?\b(?P<shared>\d{1,9}) bytes smem)?")
_STACK = re.compile(
    r"\b(?P<stack>\d{1,9}) bytes stack frame, (?P<stores>\d{1,9}) bytes spill stores, (?P<loads>\d{1,9}) bytes spill"
)
#: Most kernels of which it is kept; a file of templates can hold thousands.
_MOST_KERNELS = 64


def read_ptxas(log: str) -> tuple[KernelResources, ...]:
    """The kernels in the output of a compiler with ``-Xptxas -v``."""
    found: list[KernelResources] = []
    name, stack = "", (0, 0, 0)
    for line in short_lines(log).split("\n"):
        if entry := _ENTRY.search(line):
            name, stack = entry["name"], (0, 0, 0)
        elif measured := _STACK.search(line):
            stack = (int(measured["stack"]), int(measured["stores"]), int(measured["loads"]))
        elif name and (used := _USED.search(line)):
            found.append(
                KernelResources(
                    name=name,
                    registers=int(used["registers"]),
                    stack=stack[0],
                    spill_stores=stack[1],
                    spill_loads=stack[2],
                    shared_memory=int(used["shared"] or 0),
                )
            )
            name = ""
    return tuple(found[:_MOST_KERNELS])


def without_ptxas(log: str) -> str:
    """The log without those lines, as it would be without ``-Xptxas -v``."""
    return _LINE.sub("", log)


def merged(parts: Iterable[Sequence[KernelResources]]) -> tuple[KernelResources, ...]:
    """The kernels of several sources, or of several extensions."""
    return tuple(kernel for part in parts for kernel in part)[:_MOST_KERNELS]


def completed(profile: Profile, resources: Sequence[KernelResources]) -> Profile:
    """The profile with the compiler's facts about each launch's kernel, which no candidate can change."""
    return replace(profile, launches=tuple(_completed(launch, resources) for launch in profile.launches))


def _completed(launch: Launch, resources: Sequence[KernelResources]) -> Launch:
    own = [] if launch.library else [kernel for kernel in resources if _means(kernel.name, launch.name)]
    own = [kernel for kernel in own if launch.registers in (None, kernel.registers)] or own
    if not own:
        return launch
    # Instances of one template share a name. Where registers do not distinguish them, the worst is reported.
    worst = max(own, key=lambda kernel: (kernel.spill_stores + kernel.spill_loads, kernel.registers))
    registers = worst.registers if launch.registers is None else launch.registers
    return replace(launch, registers=registers, spilled=worst.spill_stores)


def _means(mangled: str, name: str) -> bool:
    """Whether a symbol is the kernel with this shortened name: it contains the last part of it after its length."""
    last = name.split("::")[-1]
    return mangled == last or f"{len(last)}{last}" in mangled
