"""Known flaws of KernelBench's problems; the list is `flaws.yaml`."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from kbevolve.configs.catalog import KERNELBENCH
from kbevolve.configs.problem import Problem

_FILE = Path(__file__).with_name("flaws.yaml")
_FILLS = {"zeros": "zeros", "constant": "one constant", "template": "one remembered answer"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Flaw:
    """One flaw of one problem."""

    #: Level and number in KernelBench, e.g. "1/23".
    problem: str
    #: One of the kinds in the file, e.g. "degenerate".
    kind: str
    #: An output that passes without reading the input ("zeros", …); "" for other kinds.
    fill: str = ""
    #: The reason, which continues a line after a colon; "" when unknown.
    why: str = ""

    @property
    def words(self) -> str:
        """One line, e.g. ``degenerate: zeros pass: a softmax over …``"""
        parts = [self.kind, f"{self.fill} pass{'' if self.fill == 'zeros' else 'es'}" if self.fill else "", self.why]
        return ": ".join(part for part in parts if part)


def known_flaws(problem: Problem) -> tuple[Flaw, ...]:
    """Flaws of a problem that is named ``kernelbench:LEVEL/NUMBER``, or whose file lies in a checkout's level folder.

    The list is of one state of KernelBench; a problem that was repaired since is still named.
    """
    number = _number(problem)
    return all_flaws().get(number, ()) if number else ()


@cache
def all_flaws() -> Mapping[str, tuple[Flaw, ...]]:
    """All flaws by level and number. Tests hold the file well-formed; it is not checked again."""
    tree: dict[str, Any] = yaml.safe_load(_FILE.read_text(encoding="utf-8"))
    found: dict[str, tuple[Flaw, ...]] = {}
    for kind, problems in tree["flaws"].items():
        for problem, facts in problems.items():
            fill = _FILLS[facts["fill"]] if "fill" in facts else ""
            flaw = Flaw(problem=problem, kind=kind, fill=fill, why=facts.get("why", ""))
            found[problem] = (*found.get(problem, ()), flaw)
    return found


def _number(problem: Problem) -> str | None:
    if problem.name.startswith(KERNELBENCH):
        return problem.name.removeprefix(KERNELBENCH)
    level = re.fullmatch(r"level(\d+)", problem.path.parent.name)
    number = re.match(r"(\d+)_", problem.path.name)
    return f"{int(level[1])}/{int(number[1])}" if level and number else None
