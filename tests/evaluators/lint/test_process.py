"""The lint in a process of its own: whatever a file does to it, the next one is read."""

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from kbevolve.configs.syntax import MOST_SOURCE
from kbevolve.evaluators.lint import LintReport, lint, process
from kbevolve.evaluators.lint.process import LintProcess
from tests.evaluators.lint.programs import TRITON, model

HONEST = model(top=TRITON, forward="copy_kernel[(1,)](x, y, 3, BLOCK=4)\nreturn torch.relu(y)")
#: Takes some seconds and 300 MB.
LARGE = "x = (" + "1," * 160_000 + ")"


@pytest.fixture(scope="module")
def reader() -> Iterator[LintProcess]:
    found = LintProcess()
    yield found
    found.close()


def test_it_reports_what_the_lint_reports(reader: LintProcess) -> None:
    assert reader.lint(HONEST) == lint(HONEST)
    for policy in ("partial", "none"):
        assert reader.lint(HONEST, allow_library=policy) == lint(HONEST, allow_library=policy)  # type: ignore[arg-type]
    computed = model(top="exec(str(3))")
    assert "cannot be read" in reader.lint(computed).refusal
    assert reader.lint(computed, allow_unreadable=True) == lint(computed, allow_unreadable=True)
    assert "reference-copied" in reader.lint(HONEST, reference_source=HONEST).tags


@pytest.mark.parametrize(
    ("source", "refusal"),
    [
        ("def f(:", "not Python: line 1: invalid syntax: `def f(:`"),
        ("x = 1\0", "not Python: "),
        ("x = " + "9" * 5000, "not Python: line 1: Exceeds the limit"),
        ("\ud800 = 1", "not Python: 'utf-8' codec can't encode"),
        ("x = " + "(" * 500, "not Python: line 1: too many nested parentheses"),
        ("x" * (MOST_SOURCE + 1), "not accepted: the file cannot be read: it has 1000001 characters"),
        ("x = " + "-" * 50_000 + "1", "not accepted: the file cannot be read: it"),
        ("x = a" + ".b" * 50_000, "not accepted: the file cannot be read: it"),
        ("if a: pass\n" + "elif a: pass\n" * 50_000, "not accepted: the file cannot be read: it"),
    ],
    ids=range(9),
)
def test_what_cannot_be_read_is_refused(reader: LintProcess, source: str, refusal: str) -> None:
    assert reader.lint(source).refusal.startswith(refusal)
    assert reader.lint(HONEST) == lint(HONEST)


@pytest.mark.slow
def test_files_beyond_a_limit_are_refused_and_the_next_is_read(
    reader: LintProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    start = process._start

    def patient() -> "subprocess.Popen[bytes]":
        monkeypatch.setattr(process, "_WALL_SECONDS", 60.0)  # imports take their time
        return start()

    monkeypatch.setattr(process, "_start", patient)
    monkeypatch.setattr(process, "_WALL_SECONDS", 0.5)
    os.kill(_pid(reader), signal.SIGSTOP)
    # It is killed after half a second, and a new process reads the file.
    assert reader.lint(HONEST) == lint(HONEST)
    monkeypatch.setattr(process, "_start", start)
    monkeypatch.setattr(process, "_WALL_SECONDS", 0.5)
    assert reader.lint(LARGE).refusal.startswith("not accepted: the file cannot be read: it takes more than 10 s")
    monkeypatch.undo()
    assert reader.lint(HONEST) == lint(HONEST)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV, signal.SIGTERM])
def test_a_process_that_was_ended_is_started_again(reader: LintProcess, number: int) -> None:
    os.kill(_pid(reader), number)
    time.sleep(0.1)
    assert reader.lint(HONEST) == lint(HONEST)


@pytest.mark.slow
def test_what_one_file_leaves_in_memory_does_not_refuse_the_next(reader: LintProcess) -> None:
    assert reader.lint(LARGE) == LintReport(tags=("library-only",), refusal="")
    names = "\n".join(f"torch.{'a' * 9000}{number}()" for number in range(100))
    for number in range(12):  # 900 kB of names each, which caches would keep
        reader.lint(names.replace("aa()", f"aa{number}()").replace("torch.a", f"torch.b{number}"))
    assert reader.lint(HONEST) == lint(HONEST)


def test_it_ends_with_its_judge_and_when_it_is_closed() -> None:
    found = LintProcess()
    found.lint(HONEST)
    pid = _pid(found)
    assert found._process is not None
    assert found._process.stdin is not None
    found._process.stdin.close()  # as the system does when the judge is dead
    assert found._process.wait(5) == 0
    found.close()
    found.close()
    assert not Path(f"/proc/{pid}").exists()


def _pid(reader: LintProcess) -> int:
    assert reader._process is not None
    return reader._process.pid
