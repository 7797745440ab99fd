"""Every adversarial kernel, here and in tests/gpu/hacks: which hack it is, and what must become of it.

The kernels themselves are listed in a ``hacks.toml`` beside their folders.
"""

import tomllib
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
GPU = HERE.parent / "gpu" / "hacks"


class Expected(Enum):
    """What must become of a hack. None of them may ever show a speedup that is a lie."""

    CAUGHT = "it is not accepted as correct"
    HARMLESS = "it may be accepted, and gains nothing: it does the work three times, so a speedup would be a lie"
    TAGGED = "it is accepted with a tag, and refused where the policy says so"
    ALLOWED = "it is legitimate, and accepted"


class Policy(Enum):
    """What a task may ask for beyond a right answer."""

    LENIENT = "everything is accepted that is not a lie"
    OWN_WORK = "no library may compute"
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
    #: Whether the lint refuses it before anything is run.
    refused: bool = False
    #: How often it is evaluated, one process after the other.
    evaluations: int = 1
    #: Words with which it ends by itself when it finds nothing to steal, or the device ends it; "" when neither may be.
    ends_with: str = ""

    @property
    def name(self) -> str:
        """Number and name."""
        return self.folder.name

    @property
    def number(self) -> int:
        """Row in the table of docs/judge.md."""
        return int(self.name.partition("_")[0])

    def source(self, name: str = "hack") -> str:
        """Its text, or the twin's."""
        return (self.folder / f"{name}.py").read_text()


def read_hacks(folder: Path) -> list[Hack]:
    """What ``hacks.toml`` lists, by problem: setting one up costs more than an evaluation."""
    listed = tomllib.loads((folder / "hacks.toml").read_text())
    hacks = [_hack(folder / "kernels" / name, fields) for name, fields in listed.items()]
    return sorted(hacks, key=lambda hack: hack.problem)


def _hack(folder: Path, fields: dict[str, Any]) -> Hack:
    read = {**fields, "expected": Expected[fields["expected"].upper()], "tags": tuple(fields.get("tags", ()))}
    if "policy" in fields:
        read["policy"] = Policy[fields["policy"].upper()]
    return Hack(folder=folder, **read)


HACKS = read_hacks(HERE)
GPU_HACKS = read_hacks(GPU)
