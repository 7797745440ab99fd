"""The kernels of a run that wait for a verdict, as a folder for `kbevolve evaluate --batch`.

The folder has all that a machine without the archive needs: the kernels, the problem, and how the run judges.
"""

import json
import os
import shlex
from pathlib import Path

import yaml

from kbevolve.archive.records import Birth, BirthState, Kernel, Run
from kbevolve.archive.store import Archive
from kbevolve.configs.errors import ArchiveError, UsageError

#: Files beside the kernels.
PROBLEM, SETTINGS = "problem.py", "settings.yaml"


def pending_kernels(archive: Archive, run: Run) -> list[tuple[Birth, Kernel]]:
    """The kernels of a run that have no verdict under its conditions, in order of creation; each with its attempt."""
    kernels, judged = archive.runs.kernels(run.id), archive.runs.evaluations(run.id)
    first: dict[str, Birth] = {}
    for birth in archive.runs.births(run.id, texts=False):
        if birth.kernel is not None and birth.state is not BirthState.NEAR_DUPLICATE and birth.kernel not in judged:
            first.setdefault(birth.kernel, birth)
    return [(birth, kernels[kernel_id]) for kernel_id, birth in first.items()]


def batch_command(folder: Path) -> str:
    """The command that judges such a folder."""
    problem, settings = folder / PROBLEM, folder / SETTINGS
    paths = (shlex.quote(str(path)) for path in (folder, problem, settings))
    return "kbevolve evaluate --batch {} --problem {} --config {} --out results.jsonl".format(*paths)


def write_pending(archive: Archive, run: Run, folder: Path) -> list[tuple[Birth, Kernel]]:
    """Write the pending kernels of a run, its problem and its settings; nothing when there is none.

    Raises:
        UsageError: the folder is not empty.
        ArchiveError: it cannot be written.
    """
    found = pending_kernels(archive, run)
    if not found:
        return []
    problem, settings = archive.problems.get(run.problem), json.loads(run.settings).get("evaluation", {})
    # Names sort by generation.
    texts = {
        f"g{birth.generation:04}-i{birth.island:02}-s{birth.slot}-{kernel.id}.py": kernel.source
        for birth, kernel in found
    } | {
        PROBLEM: problem.source,
        SETTINGS: f"# How run {run.id} judges.\n" + yaml.safe_dump({"evaluation": settings}, sort_keys=False),
    }
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if any(folder.iterdir()):
            raise UsageError(f"{folder} is not empty, and pending kernels of two runs must not mix; name a new folder")
        for name, text in texts.items():
            (folder / name).write_text(text, encoding="utf-8", newline="\n")
    except OSError as error:
        reason = os.strerror(error.errno or 0)
        raise ArchiveError(f"{folder}: {reason}; name a folder where you may write") from None
    return found
