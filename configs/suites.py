"""Suites of problems for a benchmark: the built-in one, KernelBench, or any folder of problem files."""

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from random import Random

from kbevolve.configs.catalog import KERNELBENCH, builtin_names, find_problem, kernelbench_files, read_problem, title_of
from kbevolve.configs.errors import ProblemError, UsageError, nearest
from kbevolve.configs.problem import Problem

BUILTIN = "builtin"
SUITE_NAMES = (BUILTIN, KERNELBENCH.removesuffix(":"))
#: Folders that are levels: ``level1``, ``L1``.
_LEVEL = re.compile(r"(?:level|L)(\d+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class SuiteProblem:
    """One problem of a suite."""

    #: What `--problem` takes.
    name: str
    #: "1", "2", …; the name of its folder, if that is no level.
    level: str
    #: Number within the level, where the file has one: 19 for ``19_ReLU.py``.
    number: int | None
    #: "ReLU" for ``19_ReLU.py``.
    title: str
    #: None when the file is not in KernelBench's format, and then why.
    problem: Problem | None
    error: str = ""


def suite_problems(suite: str, *, kernelbench: Path | None = None) -> list[SuiteProblem]:
    """The problems of a suite, in order.

    Args:
        suite: "builtin", "kernelbench", or a folder. Each of its ``*.py`` files is a problem, except those that begin
            with ``_``. Its level is that of its folder ``level1``, ``level2``, …, or else its folder's name.
        kernelbench: the checkout.

    Raises:
        UsageError: there is no such suite, or it is empty.
    """
    if suite == BUILTIN:
        return [_entry(name, find_problem(name).path) for name in builtin_names()]
    if suite == KERNELBENCH.removesuffix(":"):
        if kernelbench is None:
            find_problem(f"{KERNELBENCH}1/1")  # says what to do
            raise AssertionError("there is no checkout")
        return [_entry(f"{KERNELBENCH}{number}", path) for number, path in kernelbench_files(kernelbench).items()]
    folder = Path(suite).expanduser()
    if not folder.is_dir():
        raise UsageError(f"no suite {suite!r}: neither a folder nor one of {', '.join(SUITE_NAMES)}")
    files = [path for path in folder.rglob("*.py") if not path.name.startswith("_")]
    if not files:
        raise UsageError(f"{folder} has no problems (*.py); a problem defines class Model, get_inputs, get_init_inputs")
    found = [_entry(str(path), path) for path in files]
    return sorted(found, key=lambda one: (one.level, one.number or 0, one.name))


def chosen(
    problems: Sequence[SuiteProblem],
    *,
    patterns: Collection[str] = (),
    levels: Collection[str] = (),
    limit: int = 0,
    draw: int | None = None,
) -> list[SuiteProblem]:
    """Some problems of a suite, in its order.

    Args:
        problems: all of them.
        patterns: of which a problem matches one: a number (``19``, ``1/19``), a range (``1/1-20``), a name
            (``L1/matmul``, ``ReLU``), a pattern (``L1/*``, ``*conv*``), or a part of a name where none has it as name.
        levels: of which a problem has one.
        limit: so many of them, from the first one on; 0 for all.
        draw: seed by which they are drawn instead, as large a share of each level as of the others.

    Raises:
        UsageError: a pattern or a level matches nothing.
    """
    unknown = [level for level in levels if level not in {one.level for one in problems}]
    if unknown:
        there = ", ".join(dict.fromkeys(one.level for one in problems))
        raise UsageError(f"no problems of level {unknown[0]}; the levels are {there}")
    left = [one for one in problems if not levels or one.level in levels]
    matched: set[str] = set()
    for pattern in patterns:
        found = _matching(left, pattern)
        if not found:
            names = [name for one in left for name in (one.name, one.title)]
            raise UsageError(f"no problem matches {pattern!r}. {nearest(pattern, names)}")
        matched |= {one.name for one in found}
    left = [one for one in left if not patterns or one.name in matched]
    if draw is not None:
        drawn = _drawn(left, min(limit, len(left)), Random(draw))
        return [one for one in left if one.name in drawn]
    return left[:limit] if limit else left


def _drawn(problems: Sequence[SuiteProblem], count: int, random: Random) -> set[str]:
    """The names of so many problems; each level has its share, rounded, and what is left goes to the largest rests."""
    names = {level: [one.name for one in problems if one.level == level] for level in {one.level for one in problems}}
    shares = {level: count * len(own) / len(problems) for level, own in sorted(names.items())}
    sizes = {level: int(share) for level, share in shares.items()}
    by_rest = sorted(shares, key=lambda level: sizes[level] - shares[level])
    for level in by_rest[: count - sum(sizes.values())]:
        sizes[level] += 1
    return {name for level, size in sizes.items() for name in random.sample(names[level], size)}


def _matching(problems: Sequence[SuiteProblem], pattern: str) -> list[SuiteProblem]:
    wanted = pattern.removeprefix(KERNELBENCH).lower()
    numbers = re.fullmatch(r"(?:(.+)/)?(\d+)(?:-(\d+))?", wanted)
    if numbers and any(one.number is not None for one in problems):
        level, first, last = numbers[1], int(numbers[2]), int(numbers[3] or numbers[2])
        return [
            one for one in problems
            if one.number is not None and first <= one.number <= last and level in (None, one.level.lower())
        ]  # fmt: skip
    exact = [one for one in problems if wanted in _names(one)]
    if exact:
        return exact
    if any(mark in wanted for mark in "*?["):
        return [one for one in problems if any(fnmatchcase(name, wanted) for name in _names(one))]
    return [one for one in problems if wanted in one.title.lower()]


def _names(one: SuiteProblem) -> tuple[str, ...]:
    name, title = one.name.removeprefix(KERNELBENCH).lower(), one.title.lower()
    return name, title, f"{one.level}/{title}", Path(name).name, Path(name).stem, f"{one.number}_{title}"


def _entry(name: str, path: Path) -> SuiteProblem:
    level, number = _LEVEL.fullmatch(path.parent.name), re.match(r"(\d+)_", path.name)
    problem, error = None, ""
    try:
        problem = read_problem(path, name)
    except ProblemError as failure:
        error = str(failure)
    return SuiteProblem(
        name=name,
        level=level[1] if level else path.resolve().parent.name,
        number=int(number[1]) if number else None,
        title=title_of(path),
        problem=problem,
        error=error,
    )
