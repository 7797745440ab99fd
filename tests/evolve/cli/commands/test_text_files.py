"""Every option that names a text file gives the same one-line error for bytes that are not UTF-8."""

from pathlib import Path
from typing import Any

import pytest

#: A Latin-1 "é" in a comment, where every format allows one.
BYTES = b"# caf\xe9\n"

PRICED = ("run", "--problem", "L1/matmul", "--max-dollars", "1", "--model", "m", "--api-base", "http://127.0.0.1:9/v1")


@pytest.fixture(autouse=True)
def files(small_archive: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("KBEVOLVE_ARCHIVE", str(small_archive.path))
    (tmp_path / "bad.py").write_bytes(BYTES)
    (tmp_path / "good.py").write_text("class ModelNew: ...\n")


@pytest.mark.parametrize(
    ("words", "option"),
    [
        (("run", "--problem", "L1/matmul", "--start", "FILE"), "--start"),
        (("run", "--problem", "L1/matmul", "--config", "FILE"), "--config"),
        (("run", "--problem", "FILE"), "--problem"),
        ((*PRICED, "--set", "budget.prices=FILE"), "budget.prices"),
        (("ask", "--problem", "L1/matmul", "--start", "FILE"), "--start"),
        (("ask", "--problem", "FILE"), "--problem"),
        (("compare", "--problem", "FILE", "--max-evaluations", "10"), "--problem"),
        (("evaluate", "FILE", "--problem", "L1/matmul"), "FILE"),
        (("evaluate", "good.py", "--problem", "FILE"), "--problem"),
        (("evaluate", "good.py", "--problem", "L1/matmul", "--config", "FILE"), "--config"),
        (("profile", "FILE", "--problem", "L1/matmul"), "FILE"),
        (("profile", "good.py", "--problem", "FILE"), "--problem"),
        (("problems", "show", "FILE"), "--problem"),
        (("problems", "check", "FILE"), "--problem"),
        (("doctor", "--config", "FILE"), "--config"),
        (("bench-search", "--landscape", "FILE"), "--landscape"),
        (("tell", "--question", "g1/i0/s0/q1", "--code", "FILE"), "--code"),
        (("tell", "--question", "g1/i0/s0/q1", "--reply", "FILE"), "--reply"),
        (("tell", "--answers", "FILE"), "--answers"),
    ],
)  # fmt: skip
def test_a_file_that_is_not_utf_8_is_one_line(kbevolve: Any, words: tuple[str, ...], option: str) -> None:
    outcome = kbevolve(*(word.replace("FILE", "bad.py") for word in words))
    assert outcome.code == 2, (outcome.out, outcome.err)
    (line,) = outcome.err.splitlines()
    assert line.startswith(f"kbevolve: bad.py: byte 0xe9 at position 5 is not UTF-8; {option} wants a UTF-8 "), line
    assert outcome.out == ""


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (("import", "bad.py"), 1, "kbevolve: bad.py, line 1: not text in UTF-8"),
        (
            ("run", "--problem", "L1/matmul", "--replay", "bad.py"),
            2,
            "kbevolve: bad.py, line 1, is no line of a recording",
        ),
    ],
)
def test_a_file_of_lines_names_the_line(kbevolve: Any, words: tuple[str, ...], code: int, message: str) -> None:
    outcome = kbevolve(*words)
    assert outcome.code == code
    (line,) = outcome.err.splitlines()
    assert line.startswith(message)
