"""The formats of an exported kernel, by name."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from kbevolve.archive.records import Kernel
from kbevolve.evolve.exports.flashinfer_bench import flashinfer_bench
from kbevolve.evolve.exports.gpumode import check_submission, gpumode
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
    #: Raises `UsageError` for a kernel that the receiver does not accept, whatever it measures.
    check: Callable[[Kernel], None] = lambda kernel: None
    #: Whether the output is a folder, and whether that is a Python package, whose name is imported.
    folder: bool = False
    package: bool = False
    #: Name of the file that holds ModelNew; "" where that is the output itself.
    kernel_file: str = ""
    #: What the output's name ends in; "" where the receiver does not care.
    ending: str = ""
    #: What the receiver calls a task, which `task` names; "" where the file names none.
    task: str = ""


#: Name -> format.
FORMATS = {
    "modelnew": KernelFormat(words="a self-contained ModelNew file for KernelBench", files=lambda found: found.text),
    "torch-op": KernelFormat(
        words="a Python package with a torch.library operator",
        files=torch_op,
        folder=True,
        package=True,
        kernel_file="kernel.py",
    ),
    "gpumode": KernelFormat(
        words="a submission to a leaderboard of GPU MODE",
        files=gpumode,
        check=check_submission,
        ending=".py",
        task="leaderboard",
    ),
    "flashinfer-bench": KernelFormat(
        words="a Solution of FlashInfer-Bench",
        files=flashinfer_bench,
        kernel_file="kernel.py",
        ending=".json",
        task="definition",
    ),
    "openevolve": KernelFormat(
        words="a task folder for OpenEvolve", files=openevolve, folder=True, kernel_file="initial_program.py"
    ),
}
