"""The formats of an exported kernel, by name."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from kbevolve.evolve.exports.measured import MeasuredKernel
from kbevolve.evolve.exports.openevolve import openevolve
from kbevolve.evolve.exports.torch_op import torch_op


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelFormat:
    """How a kernel becomes files."""

    #: One line for people.
    words: str
    #: The text of the file; or file name -> text, of a folder.
    files: Callable[[MeasuredKernel], str | Mapping[str, str]]
    #: Name of the file that holds ModelNew, of a folder; "" for formats of one file.
    kernel_file: str = ""


#: Name -> format.
FORMATS = {
    "modelnew": KernelFormat(words="a self-contained ModelNew file for KernelBench", files=lambda found: found.text),
    "torch-op": KernelFormat(
        words="a Python package with a torch.library operator", files=torch_op, kernel_file="kernel.py"
    ),
    "openevolve": KernelFormat(
        words="a task folder for OpenEvolve", files=openevolve, kernel_file="initial_program.py"
    ),
}
