"""Fetches KernelBench: its repository at one commit, or its data set from Hugging Face.

The commit is the one that the list of flaws is about (`flaws.yaml`), so that two users judge the same problems.
"""

import os
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path

from kbevolve.configs.cache_directory import default_directory
from kbevolve.configs.errors import UsageError

REPOSITORY = "https://github.com/ScalingIntelligence/KernelBench"
COMMIT = "423217d9fda91e0c2d67e4a43bf62f96f6d104f1"
#: The data set on Hugging Face: a split ``level_N`` a level, rows with ``problem_id``, ``name`` and ``code``.
DATASET = "ScalingIntelligence/KernelBench"


def fetched_folder() -> Path:
    """Where a fetched KernelBench is, or would be."""
    return default_directory() / "kernelbench"


def fetch_repository(folder: Path, *, repository: str = REPOSITORY, commit: str = COMMIT) -> None:
    """Check one commit out into a folder that does not exist yet, without the history; whole or not at all.

    Raises:
        UsageError: git is missing, or the repository cannot be reached, or does not have the commit.
    """
    with _draft(folder) as draft:
        for words in (
            ["init", "--quiet"],
            ["fetch", "--quiet", "--depth", "1", repository, commit],
            ["-c", "advice.detachedHead=false", "checkout", "--quiet", "FETCH_HEAD"],
        ):
            _git(draft, words, what=f"{repository} at {commit}")


def fetch_dataset(folder: Path, *, dataset: str = DATASET) -> None:
    """Write the problems of the data set as ``levelN/NUMBER_NAME.py`` into a folder that does not exist yet.

    Raises:
        UsageError: the package `datasets` is missing, or the data set cannot be read.
    """
    try:
        load = import_module("datasets").load_dataset
    except ImportError:
        raise UsageError(
            "Hugging Face data sets need the package datasets: pip install 'kbevolve[huggingface]'"
        ) from None
    with _draft(folder) as draft:
        try:
            splits = load(dataset)
        except Exception as error:  # of many libraries: no network, no such data set
            raise UsageError(f"{dataset} cannot be read: {' '.join(str(error).split())}") from None
        for split, rows in splits.items():
            level = draft / split.replace("_", "")
            level.mkdir()
            for row in rows:
                # Some versions have the whole file name, others the title alone.
                title = str(row["name"]).removesuffix(".py").removeprefix(f"{row['problem_id']}_").replace("/", "_")
                (level / f"{int(row['problem_id'])}_{title}.py").write_text(row["code"], encoding="utf-8")


@contextmanager
def _draft(folder: Path) -> Iterator[Path]:
    """A new folder that takes the place of `folder` at the end."""
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent, prefix=f".{folder.name}.") as around:
            draft = Path(around) / folder.name
            draft.mkdir()
            yield draft
            draft.rename(folder)
    except OSError as error:
        raise UsageError(f"{folder}: {error.strerror}; name another folder with --to DIR") from None


def _git(folder: Path, words: list[str], *, what: str) -> None:
    environment = {**os.environ, "GIT_TERMINAL_PROMPT": "0"}
    try:
        done = subprocess.run(["git", *words], cwd=folder, env=environment, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        raise UsageError("git is not installed; install it, or use --huggingface") from None
    if done.returncode:
        lines = done.stderr.strip().splitlines() or ["git failed"]
        raise UsageError(f"cannot fetch {what}: {lines[-1]}; without a network, name a checkout with --kernelbench DIR")
