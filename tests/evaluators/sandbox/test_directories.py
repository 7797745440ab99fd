import os
from pathlib import Path

import pytest

from kbevolve.evaluators.sandbox import directories


def test_directories_of_dead_judges_are_swept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    dead, alive = tmp_path / "kbevolve-worker-999999999-x", tmp_path / f"kbevolve-worker-{os.getpid()}-y"
    for directory in (dead, alive):
        (directory / "work").mkdir(parents=True)
    directories.sweep()
    assert not dead.exists()
    assert alive.exists()
