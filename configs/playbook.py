"""The playbook: optimisation ideas in words, and the closed list of techniques that classifies every idea."""

import difflib
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

import yaml

#: The technique of an idea that fits no other.
OTHER = "other"

#: The technique of a kernel made from two.
RECOMBINE = "recombine"

#: Least similarity of a given technique to a known one. At 0.6, "vectorization" is "vectorize" and
#: "tensor core" is "tensor-cores"; at lower values "caching" is "tuning".
LIKENESS = 0.6

#: Fields that are lists in the file, in any order.
_SETS = ("devices", "backends", "operations", "beside", "needs")


@dataclass(frozen=True, slots=True, kw_only=True)
class PlaybookIdea:
    """One optimisation in words."""

    title: str
    #: Why it is faster.
    mechanism: str
    #: One of `Playbook.techniques`.
    technique: str
    #: What it attacks, e.g. "memory bandwidth".
    bottleneck: str
    #: Where it applies: "cpu", "cuda".
    devices: frozenset[str]
    #: What it can be written in: "cpp", "triton", "cuda".
    backends: frozenset[str]
    #: Kinds of operation it helps, of `Playbook.operations`; {"any"} for all.
    operations: frozenset[str]
    #: Kinds of which the problem must have one, too, e.g. the operation to fuse with; empty for none.
    beside: frozenset[str] = frozenset()
    #: Usual speedup over a kernel that lacks it, from and to.
    gain: tuple[float, float]
    #: Words that the device line must hold, e.g. "sm_80"; empty for every device.
    needs: frozenset[str] = frozenset()

    def runs_on(self, device_type: str, device: str) -> bool:
        """Whether it can work on a ``"cpu"`` or ``"cuda"`` device that describes itself as `device`."""
        return device_type in self.devices and all(_has(device, need) for need in self.needs)

    def helps(self, operations: Collection[str]) -> bool:
        """Whether it is meant for a problem with these kinds of operation."""
        meant = "any" in self.operations or not self.operations.isdisjoint(operations)
        return meant and (not self.beside or not self.beside.isdisjoint(operations))


@dataclass(frozen=True, slots=True, kw_only=True)
class Playbook:
    """All ideas, techniques and kinds of operation."""

    #: Slug -> meaning, in the order of the file.
    techniques: Mapping[str, str]
    #: Kind of operation -> patterns that show it in a problem's source.
    operations: Mapping[str, tuple[re.Pattern[str], ...]]
    ideas: tuple[PlaybookIdea, ...]

    def technique(self, name: str) -> str:
        """The technique that `name` means: itself, the nearest one, or "other"."""
        slug = re.sub(r"[\s_/]+", "-", name.strip().lower())
        if slug in self.techniques:
            return slug
        close = difflib.get_close_matches(slug, self.techniques, n=1, cutoff=LIKENESS)
        return close[0] if close else OTHER

    def operations_in(self, source: str) -> tuple[str, ...]:
        """Kinds of operation that a problem's source shows; empty when it shows none that is known."""
        return tuple(
            name for name, marks in self.operations.items() if any(mark.search(source) is not None for mark in marks)
        )

    def ideas_for(self, source: str, *, device_type: str, device: str) -> tuple[PlaybookIdea, ...]:
        """Ideas that may help a problem (its source) on a device, in the order of the file.

        A problem of no known kind gets every idea that the device can carry out.
        """
        operations = self.operations_in(source) or tuple(self.operations)
        return tuple(idea for idea in self.ideas if idea.runs_on(device_type, device) and idea.helps(operations))


@cache
def load_playbook() -> Playbook:
    """The playbook of kbevolve. Tests hold its file consistent; it is not checked again."""
    tree = yaml.safe_load(files(__package__).joinpath("playbook.yaml").read_text(encoding="utf-8"))
    operations = {name: tuple(map(re.compile, marks)) for name, marks in tree["operations"].items()}
    return Playbook(techniques=tree["techniques"], operations=operations, ideas=tuple(map(_idea, tree["ideas"])))


def _idea(entry: Mapping[str, Any]) -> PlaybookIdea:
    low, high = entry["gain"]
    sets = {name: frozenset(value) for name, value in entry.items() if name in _SETS}
    return PlaybookIdea(**{**entry, **sets, "mechanism": " ".join(entry["mechanism"].split()), "gain": (low, high)})


def _has(device: str, need: str) -> bool:
    """Whether a device line holds a need. ``sm_80`` is met by every later architecture, ``sm_90a`` by 9.0 alone:
    the next architecture drops features with an ``a``."""
    wanted = re.fullmatch(r"sm_(\d+)(a?)", need)
    if wanted is None:
        return need.lower() in device.lower()
    found = re.search(r"sm_(\d+)", device)
    if found is None:
        return False
    return int(found[1]) == int(wanted[1]) if wanted[2] else int(found[1]) >= int(wanted[1])
