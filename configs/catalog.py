"""Finding problems: the built-in suite, any file in KernelBench's format, a checkout of KernelBench.

Everything here lists and reads files; nothing imports torch or runs a problem.
"""

import re
from collections.abc import Iterable
from pathlib import Path

from kbevolve.configs.errors import ProblemError, nearest
from kbevolve.configs.problem import Problem, parse_problem
from kbevolve.configs.text_file import read_text

#: What the name of a problem from a checkout begins with.
KERNELBENCH = "kernelbench:"

_BUILTIN = Path(__file__).parent / "problems"


def builtin_names() -> list[str]:
    """Problems that come with kbevolve, e.g. ``L1/matmul``, sorted."""
    return sorted(path.relative_to(_BUILTIN).with_suffix("").as_posix() for path in _BUILTIN.glob("*/[!_]*.py"))


def kernelbench_names(checkout: Path) -> list[str]:
    """Problems of a KernelBench checkout, e.g. ``kernelbench:1/19``, by level and number.

    Raises:
        ProblemError: there is no such folder.
    """
    return [f"{KERNELBENCH}{number}" for number in kernelbench_files(checkout)]


def find_problem(name: str, *, kernelbench: Path | None = None) -> Problem:
    """Read a problem.

    Args:
        name: a built-in problem (``L1/matmul``), a path to a ``.py`` file, or ``kernelbench:LEVEL/NUMBER``, where the
            problem's name may take the place of the number (``kernelbench:1/ReLU``) or of both (``kernelbench:ReLU``).
        kernelbench: a checkout of KernelBench: its root, the folder of ``level1``, ``level2``, …, or the parent.

    Raises:
        ProblemError: there is no such problem, or it is not in KernelBench's format.
    """
    if name.startswith(KERNELBENCH):
        number, path = _find_in_checkout(name, kernelbench)
        return read_problem(path, f"{KERNELBENCH}{number}")
    if name in builtin_names():
        return read_problem(_BUILTIN / f"{name}.py", name)
    path = Path(name).expanduser()
    if path.suffix == ".py":
        if path.is_file():
            return read_problem(path, name)
        if path.with_suffix("").as_posix() not in builtin_names():
            raise ProblemError(f"no file {path}. {_files_near(path)}")
    raise ProblemError(
        f"no problem {name!r}: neither built in nor a .py file. {_nearest(name, builtin_names())} "
        "All of them: `kbevolve problems ls`."
    )


def read_problem(path: Path, name: str) -> Problem:
    """The problem in a file, under this name.

    Raises:
        ProblemError: the file cannot be read, or is not in KernelBench's format.
    """
    source = read_text(path, option="--problem", wants="Python file", error=ProblemError)
    return parse_problem(source, name=name, path=path)


def _find_in_checkout(name: str, checkout: Path | None) -> tuple[str, Path]:
    """Level and number, and the file."""
    wanted = name.removeprefix(KERNELBENCH)
    if checkout is None:
        raise ProblemError(
            f"{name} is in a checkout of KernelBench: `kbevolve problems fetch kernelbench` makes one; or name yours "
            "with --kernelbench DIR or KERNELBENCH"
        )
    files = kernelbench_files(checkout)
    level, _, title = wanted.lower().rpartition("/")
    named = [
        number
        for number, path in files.items()
        if wanted == number
        or (level in ("", number.partition("/")[0]) and title in (path.stem.lower(), title_of(path).lower()))
    ]
    if len(named) == 1:
        return named[0], files[named[0]]
    if named:
        raise ProblemError(f"{name}: there are several; write one of {', '.join(KERNELBENCH + one for one in named)}")
    titles = {f"{KERNELBENCH}{key} ({title_of(path)})" for key, path in files.items()}
    part = wanted if wanted[-1:].isdigit() else wanted.rpartition("/")[2]
    raise ProblemError(
        f"{name}: not in {checkout}; write {KERNELBENCH}LEVEL/NUMBER, e.g. {KERNELBENCH}1/19. {_nearest(part, titles)} "
        "All of them: `kbevolve problems ls --kernelbench DIR`."
    )


def title_of(path: Path) -> str:
    """``ReLU`` for ``19_ReLU.py``, ``matmul`` for ``matmul.py``."""
    return re.sub(r"^\d+_", "", path.stem).strip("_")


def kernelbench_files(checkout: Path) -> dict[str, Path]:
    """``"1/19"`` -> ``…/level1/19_ReLU.py``, by level and number.

    Raises:
        ProblemError: there is no such folder.
    """
    found = {}
    # The suite is a folder with the name of its repository: users name either of them, or the parent.
    for root in (checkout, checkout / "KernelBench", checkout / "KernelBench" / "KernelBench"):
        for path in root.glob("level*/*.py"):
            level, number = re.fullmatch(r"level(\d+)", path.parent.name), re.match(r"(\d+)_", path.name)
            if level and number:
                found[int(level[1]), int(number[1])] = path
        if found:
            return {f"{level}/{number}": found[level, number] for level, number in sorted(found)}
    raise ProblemError(
        f"{checkout} is no checkout of KernelBench: no level1/NUMBER_NAME.py in it or in its folder KernelBench"
    )


def _files_near(path: Path) -> str:
    folder = path.parent
    if not folder.is_dir():
        return f"There is no folder {folder} either."
    names = [entry.name for entry in folder.glob("*.py")]
    return f"Looked for .py files in {folder.resolve()}. {nearest(path.name, names)}"


def _nearest(name: str, known: Iterable[str]) -> str:
    """As `nearest`, but whatever the case, and a part of a name is enough: ``sum`` finds ``L1/sum_reduce``."""
    names = sorted(known)
    part = name.removesuffix(".py").lower()
    near = [candidate for candidate in names if part and part in candidate.lower()]
    return f"Nearest: {', '.join(near[:3])}." if near else nearest(name, names)
