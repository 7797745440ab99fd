"""Examples for prompts: small problems, each with a kernel in several languages (`kbevolve.configs.examples`).

All are ours, short, right for every size, and without torch's headers, so that they compile in seconds.
"""

from dataclasses import dataclass
from functools import cache
from pathlib import Path

_FOLDER = Path(__file__).parent
#: In the order in which prompts show them.
NAMES = ("gelu", "matmul", "attention")


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    """A problem, and a kernel for it."""

    #: The first line of the problem's docstring, without the full stop.
    title: str
    problem: str
    kernel: str


@cache
def examples(backend: str) -> tuple[Example, ...]:
    """The examples in a language, a value of `Backend`; none where we have written none."""
    found = []
    for name in NAMES:
        file = _FOLDER / name / f"{backend}.py"
        if file.exists():
            problem = (_FOLDER / name / "problem.py").read_text(encoding="utf-8")
            title = problem.partition("\n")[0].strip('".')
            found.append(Example(title=title, problem=problem, kernel=file.read_text(encoding="utf-8")))
    return tuple(found)
