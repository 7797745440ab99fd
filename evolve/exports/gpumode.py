"""`gpumode`: a submission to a leaderboard of GPU MODE, one file with `custom_kernel(data)`.

Source: github.com/gpu-mode/reference-kernels (the tasks), github.com/gpu-mode/kernelbot (directives and refusals).
"""

import symtable

from kbevolve.archive.records import Kernel
from kbevolve.configs.errors import UsageError
from kbevolve.evolve.exports.interface import interface_of
from kbevolve.evolve.exports.measured import MeasuredKernel

#: KernelBot accepts no file that has this word, in whatever letters and place.
_REFUSED = "stream"
#: The names of the template. The kernel looks its own names up when it runs, and would find these.
_OURS = {"custom_kernel", "_ARGUMENTS", "_WEIGHTS", "_kernel_on", "_call"}


def check_submission(kernel: Kernel) -> None:
    """Check that a leaderboard accepts the kernel's text.

    Raises:
        UsageError: it does not, or the kernel has names of the submission.
    """
    for number, line in enumerate(kernel.source.split("\n"), 1):
        if _REFUSED in line.lower():
            raise _refusal(kernel, f'KernelBot accepts no file with the word "{_REFUSED}", and line {number} has it')
    taken = _OURS.intersection(symtable.symtable(kernel.source, "kernel", "exec").get_identifiers())
    if taken:
        raise _refusal(kernel, f"it has a {min(taken)} of its own, which the submission defines")


def gpumode(found: MeasuredKernel) -> str:
    """The submission.

    Raises:
        UsageError: `interface_of` refuses the kernel.
    """
    header = "\n".join(line for line in found.header.split("\n") if _REFUSED not in line.lower())
    text = header + found.text[len(found.header) :]
    return found.fill("gpumode.py.jinja", interface=interface_of(found), text=text)


def _refusal(kernel: Kernel, why: str) -> UsageError:
    return UsageError(
        f"kernel {kernel.id} cannot be a submission as it is: {why}; export it as modelnew and change that, "
        "or name another with --kernel"
    )
