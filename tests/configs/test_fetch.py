"""KernelBench is fetched whole or not at all: from a repository at its commit, or from a data set."""

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kbevolve.configs.catalog import find_problem, kernelbench_names
from kbevolve.configs.errors import UsageError
from kbevolve.configs.fetch import COMMIT, fetch_dataset, fetch_repository

TINY = "class Model: ...\ndef get_inputs(): ...\ndef get_init_inputs(): ...\n"


def git(folder: Path, *words: str) -> str:
    author = ("-c", "user.name=A", "-c", "user.email=a@example.org")
    done = subprocess.run(["git", *author, *words], cwd=folder, check=True, capture_output=True, text=True)
    return done.stdout.strip()


@pytest.fixture
def bare(tmp_path: Path) -> tuple[str, str]:
    """The address of a bare repository of two commits, and the first one."""
    work = tmp_path / "work"
    (work / "KernelBench" / "level1").mkdir(parents=True)
    (work / "KernelBench" / "level1" / "19_ReLU.py").write_text(TINY)
    git(work, "init", "--quiet")
    git(work, "add", ".")
    git(work, "commit", "--quiet", "-m", "one problem")
    first = git(work, "rev-parse", "HEAD")
    (work / "KernelBench" / "level1" / "20_Tanh.py").write_text(TINY)
    git(work, "add", ".")
    git(work, "commit", "--quiet", "-m", "another")
    git(tmp_path, "clone", "--quiet", "--bare", "work", "bare")
    return f"file://{tmp_path / 'bare'}", first


def test_the_commit_that_was_asked_for_is_checked_out(bare: tuple[str, str], tmp_path: Path) -> None:
    repository, first = bare
    folder = tmp_path / "new" / "kernelbench"
    fetch_repository(folder, repository=repository, commit=first)
    assert kernelbench_names(folder) == ["kernelbench:1/19"], "the problem of the second commit is not there"
    assert find_problem("kernelbench:1/19", kernelbench=folder).source == TINY


@pytest.mark.parametrize("what", ["commit", "repository"])
def test_what_cannot_be_fetched_leaves_nothing(bare: tuple[str, str], tmp_path: Path, what: str) -> None:
    repository = bare[0] if what == "commit" else f"file://{tmp_path}/nowhere"
    with pytest.raises(UsageError, match=r"cannot fetch file:.* name a checkout with --kernelbench DIR"):
        fetch_repository(tmp_path / "new" / "kernelbench", repository=repository, commit=COMMIT)
    assert not list((tmp_path / "new").iterdir())


def test_without_git_another_way_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UsageError, match="--huggingface"):
        fetch_repository(tmp_path / "kernelbench")


def test_a_data_set_becomes_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def load(name: str) -> dict[str, Any]:
        assert name == "ScalingIntelligence/KernelBench"
        return {
            "level_1": [{"problem_id": 19, "name": "19_ReLU.py", "code": TINY}],
            "level_2": [{"problem_id": 7, "name": "7_a/b", "code": "# é"}, {"problem_id": 8, "name": "x", "code": ""}],
        }

    monkeypatch.setitem(sys.modules, "datasets", SimpleNamespace(load_dataset=load))
    fetch_dataset(tmp_path / "set")
    files = sorted(path.relative_to(tmp_path / "set").as_posix() for path in (tmp_path / "set").rglob("*.py"))
    assert files == ["level1/19_ReLU.py", "level2/7_a_b.py", "level2/8_x.py"]
    assert find_problem("kernelbench:ReLU", kernelbench=tmp_path / "set").source == TINY


def test_a_data_set_that_cannot_be_read_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def load(name: str) -> None:
        raise ConnectionError("no network\nat all")

    monkeypatch.setitem(sys.modules, "datasets", SimpleNamespace(load_dataset=load))
    with pytest.raises(UsageError, match="KernelBench cannot be read: no network at all"):
        fetch_dataset(tmp_path / "set")
    assert not (tmp_path / "set").exists()
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(UsageError, match=r"pip install 'kbevolve\[huggingface\]'"):
        fetch_dataset(tmp_path / "set")
