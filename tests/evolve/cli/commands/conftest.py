"""Fixtures of the tests of `kbevolve export`: the command on the small archive, with a judge that gives one answer."""

from pathlib import Path
from typing import Any

import pytest

from tests.evolve.cli.commands.scripted_judge import ScriptedJudge, use


@pytest.fixture
def judge(monkeypatch: pytest.MonkeyPatch, small_archive: Any) -> ScriptedJudge:
    return use(ScriptedJudge(), monkeypatch, small_archive.run.device)


@pytest.fixture
def export(kbevolve: Any, small_archive: Any, tmp_path: Path) -> Any:
    def call(*words: str) -> Any:
        named = () if "--problem" in words else ("--problem", "L1/matmul")
        return kbevolve("export", *named, "-o", tmp_path / "best.py", "--archive", small_archive.path, *words)

    return call
