from io import StringIO
from pathlib import Path
from typing import Any

import pytest

from kbevolve.evolve.cli.render import log_file
from kbevolve.evolve.cli.render.log_file import log_console
from kbevolve.evolve.cli.render.tables import say


def test_each_line_has_its_moment_and_no_style(monkeypatch: pytest.MonkeyPatch) -> None:
    moments = iter("abc")
    monkeypatch.setattr(log_file, "now", lambda: next(moments))
    written = StringIO()
    log = log_console(written)
    assert log is not None
    say(log, "one\ntwo", "bold red")
    log.print("thr", end="")
    log.print("ee")
    assert written.getvalue() == "a one\nb two\nc three\n"
    assert log_console(None) is None


def test_a_log_that_cannot_be_written_is_refused_first(
    tmp_path: Path, kbevolve: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    done = kbevolve("run", "L1/matmul", "--log-file", "nowhere/run.log")
    assert done.code == 2
    assert "nowhere/run.log" in done.err
    assert not (tmp_path / "kbevolve.db").exists()
