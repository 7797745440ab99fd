"""Every adversarial kernel, here and in tests/gpu/hacks, and the verdict that it must get.

A ``hacks.toml`` beside their folders lists them.
"""

import tomllib
from dataclasses import dataclass, replace
from enum import Enum
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
GPU = HERE.parent / "gpu" / "hacks"


class Expected(Enum):
    """The result that a hack must get. None may ever show a speedup that is a lie."""

    CAUGHT = "it is not accepted as correct"
    HARMLESS = "it may be accepted, and gains nothing: it does the work three times, so a speedup would be a lie"
    TAGGED = "it is accepted with a tag, and refused where the policy says so"
    ALLOWED = "it is legitimate, and accepted"


class Policy(Enum):
    """What a task may demand beyond a right answer."""

    LENIENT = "everything is accepted that is not a lie"
    OWN_WORK = "no library may compute the answer"
    FRESH_WEIGHTS = "weights are read in each call"


@dataclass(frozen=True, slots=True, kw_only=True)
class Hack:
    """One adversarial kernel, ``<folder>/hack.py``, beside an honest ``twin.py`` that looks alike."""

    #: Its name begins with the number in the table of docs/judge.md, and is the test's id.
    folder: Path
    #: File in ``problems/``.
    problem: str
    expected: Expected
    #: Tags that it must carry where it is accepted, and that its twin must not.
    tags: tuple[str, ...] = ()
    #: Policy under which it must be refused; None when none refuses it.
    policy: Policy | None = None
    #: Whether its twin must be accepted under that policy.
    twin_follows: bool = False
    #: Whether the lint refuses it before it runs.
    refused: bool = False
    #: Number of evaluations, in one process after the other.
    evaluations: int = 1
    #: Text of the message when it finds nothing to steal and ends, or the device ends it; "" for neither.
    ends_with: str = ""
    #: Whether its evaluation takes more than about ten seconds.
    slow: bool = False
    #: Whether another hack of the same number is listed before it.
    variant: bool = False

    @property
    def name(self) -> str:
        """Number and name."""
        return self.folder.name

    @property
    def number(self) -> int:
        """Row in the table of docs/judge.md."""
        return int(self.name.partition("_")[0])

    def source(self, name: str = "hack") -> str:
        """The text of the hack, or of its twin."""
        return (self.folder / f"{name}.py").read_text()


def read_hacks(folder: Path) -> list[Hack]:
    """The hacks of ``hacks.toml``, ordered by problem: setting one up costs more than an evaluation."""
    listed = tomllib.loads((folder / "hacks.toml").read_text())
    hacks: list[Hack] = []
    for name, fields in listed.items():
        hack = _hack(folder / "kernels" / name, fields)
        hacks.append(replace(hack, variant=hack.number in [other.number for other in hacks]))
    return sorted(hacks, key=lambda hack: hack.problem)


def _hack(folder: Path, fields: dict[str, Any]) -> Hack:
    read = {**fields, "expected": Expected[fields["expected"].upper()], "tags": tuple(fields.get("tags", ()))}
    if "policy" in fields:
        read["policy"] = Policy[fields["policy"].upper()]
    return Hack(folder=folder, **read)


HACKS = read_hacks(HERE)
GPU_HACKS = read_hacks(GPU)
