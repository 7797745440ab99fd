"""ptxas' report about each kernel: registers, spills, shared memory."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from kbevolve.archive.records import Launch, Profile
from kbevolve.evaluators.sandbox.build_protocol import BuildReply

_LINE = re.compile(r"^ptxas info\s*:.*\n?|^\s+\d+ bytes stack frame.*\n?", re.MULTILINE)
_ENTRY = re.compile(r"Compiling entry function '(?P<name>[^']+)'")
_USED = re.compile(r"Used (?P<registers>\d+) registers(?:.*?(?P<shared>\d+) bytes smem)?")
_STACK = re.compile(r"(?P<stack>\d+) bytes stack frame, (?P<stores>\d+) bytes spill stores, (?P<loads>\d+) bytes spill")
#: Most kernels of which it is kept; a file of templates can hold thousands.
_MOST_KERNELS = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelResources:
    """One kernel, as compiled for one architecture."""

    #: Mangled.
    name: str
    #: Registers a thread.
    registers: int
    #: Bytes a thread: its stack, and what was spilled into and read back from it.
    stack: int = 0
    spill_stores: int = 0
    spill_loads: int = 0
    #: Bytes a block, without dynamic shared memory.
    shared_memory: int = 0


def kernels_of(records: Iterable[Mapping[str, Any]]) -> tuple[KernelResources, ...]:
    """The kernels with these plain fields."""
    return tuple(KernelResources(**record) for record in records)


def read_ptxas(log: str) -> tuple[KernelResources, ...]:
    """The kernels in the output of a compiler with ``-Xptxas -v``."""
    found: list[KernelResources] = []
    name, stack = "", (0, 0, 0)
    for line in log.splitlines():
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


def merged(parts: Sequence[Sequence[KernelResources]]) -> tuple[KernelResources, ...]:
    """The kernels of all sources of an extension."""
    return tuple(kernel for part in parts for kernel in part)[:_MOST_KERNELS]


def resources_of(replies: Iterable[BuildReply]) -> tuple[KernelResources, ...]:
    """The kernels of all that was built for a worker, `Worker.built`."""
    built = [reply.message["built"]["resources"] for reply in replies if "built" in reply.message]
    return merged([kernels_of(records) for records in built])


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
