"""The kernels of a run that wait for a verdict, as a folder that `kbevolve evaluate --batch` takes.

The folder holds all that a machine without the archive needs: the kernels, the problem's text as the run has it, and
the settings by which the run judges.
"""

import json
import os
from dataclasses import dataclass
from pathlib import Path

import yaml

from kbevolve.archive.records import Birth, BirthState, Kernel, Run
from kbevolve.archive.store import Archive
from kbevolve.configs.errors import ArchiveError, UsageError

#: What lies beside the kernels.
PROBLEM, SETTINGS = "problem.py", "settings.yaml"


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """A kernel without a verdict, and its first birth in the run."""

    birth: Birth
    kernel: Kernel

    @property
    def file(self) -> str:
        """Its name in a folder; in the order of the names, earlier generations come first."""
        birth = self.birth
        return f"g{birth.generation:04}-i{birth.island:02}-s{birth.slot}-{self.kernel.id}.py"


def waiting(archive: Archive, run: Run) -> list[Waiting]:
    """The kernels of a run that have no verdict under its conditions, each once, in the order of their births."""
    kernels, judged = archive.kernels(run.id), archive.evaluations(run.id)
    first: dict[str, Birth] = {}
    for birth in archive.births(run.id, texts=False):
        if birth.kernel is not None and birth.state is not BirthState.NEAR_DUPLICATE and birth.kernel not in judged:
            first.setdefault(birth.kernel, birth)
    return [Waiting(birth=birth, kernel=kernels[kernel_id]) for kernel_id, birth in first.items()]


def batch_words(folder: Path) -> str:
    """The command that judges such a folder."""
    problem, settings = folder / PROBLEM, folder / SETTINGS
    return f"kbevolve evaluate --batch {folder} --problem {problem} --config {settings} --out results.jsonl"


def write_births(archive: Archive, run: Run, folder: Path) -> list[Waiting]:
    """Write the waiting kernels of a run, its problem and its settings; nothing when none waits.

    Raises:
        UsageError: the folder holds something already, or cannot be written.
    """
    found = waiting(archive, run)
    if not found:
        return []
    problem, settings = archive.problem(run.problem), json.loads(run.settings).get("evaluation", {})
    texts = {one.file: one.kernel.source for one in found} | {
        PROBLEM: problem.source,
        SETTINGS: f"# How run {run.id} judges.\n" + yaml.safe_dump({"evaluation": settings}, sort_keys=False),
    }
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if any(folder.iterdir()):
            raise UsageError(f"{folder} is not empty, and kernels of two exports must not mix; name a new folder")
        for name, text in texts.items():
            (folder / name).write_text(text, encoding="utf-8", newline="\n")
    except OSError as error:
        reason = os.strerror(error.errno or 0)
        raise ArchiveError(f"{folder}: {reason}; name a folder where you may write: --births DIR") from None
    return found
