"""Kernels that others wrote: which files of a folder are for which problem of a suite."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from kbevolve.archive.records import Kernel
from kbevolve.configs.catalog import KERNELBENCH
from kbevolve.configs.errors import UsageError
from kbevolve.configs.suites import SuiteProblem
from kbevolve.evolve.proposers.seeds.seeds import read_kernel

#: A file of KernelBench's folder ``runs/NAME``.
_KERNELBENCH_FILE = re.compile(r"level_(\d+)_problem_(\d+)_sample_(\d+)_kernel")
#: What follows the name of a problem in other files.
_SAMPLE = re.compile(r"(_sample_\d+)?(_kernel)?$")


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelFiles:
    """The kernel files of a folder."""

    #: Name of a problem -> its files, in the order of their samples.
    files: Mapping[str, Sequence[Path]]
    #: Files that are for no problem of the suite, or for several.
    others: Sequence[Path]


def find_kernel_files(folder: Path, problems: Sequence[SuiteProblem]) -> KernelFiles:
    """The kernel files of a folder and its folders.

    The file of a problem is ``level_L_problem_P_sample_S_kernel.py``, as KernelBench writes it, or has the problem's
    name, with or without ``_sample_S``: ``L1_matmul.py``, ``matmul.py``, ``19_ReLU_sample_0.py``; or it lies in a
    folder with the problem's name.

    Raises:
        UsageError: it is no folder, or no file is for a problem of the suite.
    """
    if not folder.is_dir():
        raise UsageError(f"{folder} is not a folder; --from wants a folder of ModelNew files (*.py)")
    sources = {one.problem.path.resolve() for one in problems if one.problem}
    found: dict[str, list[Path]] = {}
    others = []
    for path in sorted((path for path in folder.rglob("*.py") if path.resolve() not in sources), key=_in_order):
        inside = path.relative_to(folder)
        # L2/relu.py is for L2/relu, not for every problem that is called relu.
        fitting = [one for one in problems if _has_name_of(inside, one)] or [
            one for one in problems if _is_called_like(inside, one)
        ]
        if len(fitting) == 1:
            found.setdefault(fitting[0].name, []).append(path)
        else:
            others.append(path)
    if not found:
        example = f", e.g. {others[0].name}" if others else ""
        raise UsageError(
            f"{folder} has no kernel for a problem of the suite ({len(others)} other files{example}); name kernels "
            "level_L_problem_P_sample_S_kernel.py, as KernelBench does, or as their problem: L1_matmul.py"
        )
    return KernelFiles(files=found, others=others)


def read_kernels(paths: Iterable[Path]) -> tuple[dict[str, Kernel], list[str]]:
    """File -> kernel, and why other files cannot be read."""
    kernels: dict[str, Kernel] = {}
    unreadable = []
    for path in paths:
        try:
            kernels[str(path)] = read_kernel(path)
        except UsageError as error:
            unreadable.append(str(error))
    return kernels, unreadable


def file_name(problem: SuiteProblem) -> str:
    """The name that `find_kernel_files` and KernelBench's scripts find."""
    if problem.number is not None and problem.level.isdigit():
        return f"level_{problem.level}_problem_{problem.number}_sample_0_kernel.py"
    return f"L{problem.level}_{problem.title}.py" if problem.level.isdigit() else f"{problem.title}.py"


def _has_name_of(inside: Path, problem: SuiteProblem) -> bool:
    """Whether the path inside the folder is the problem's whole name."""
    if named := _KERNELBENCH_FILE.fullmatch(inside.stem):
        level, number = str(int(named[1])), int(named[2])
        # A folder without levels has one: any.
        return problem.number == number and (problem.level == level or not problem.level.isdigit())
    return _SAMPLE.sub("", inside.with_suffix("").as_posix()).lower() in _names(problem)


def _is_called_like(inside: Path, problem: SuiteProblem) -> bool:
    """Whether the file, or a folder that it is in, has the problem's name."""
    parents = (*inside.parent.parts, inside.parent.as_posix())
    return any(name.lower() in _names(problem) for name in (_SAMPLE.sub("", inside.stem), *parents))


def _names(problem: SuiteProblem) -> set[str]:
    title = problem.title.lower()
    names = {title, problem.name.removeprefix(KERNELBENCH).removesuffix(".py").lower()}
    names |= {f"{problem.number}_{title}"} if problem.number is not None else set()
    return names | {f"l{problem.level}/{title}", f"l{problem.level}_{title}"}


def _in_order(path: Path) -> list[tuple[int, str]]:
    """Numbers by value: sample 2 precedes sample 10."""
    return [(int(part), "") if part.isdigit() else (0, part) for part in re.split(r"(\d+)", str(path))]
