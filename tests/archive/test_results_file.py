"""A results file holds whole lines after any kill, and a file of another kind is not touched."""

import os
from pathlib import Path

import pytest

from kbevolve.archive.batch_results import ResultsFile, read_results, to_line
from kbevolve.configs.errors import ArchiveError, UsageError
from tests.archive.test_batch_results import failed, finding

FIRST, SECOND = finding(), failed(UNROLL=2)
LINE = f"{to_line(FIRST)}\n".encode()


def test_a_line_is_on_the_disk_before_the_next_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, synced = tmp_path / "out.jsonl", []
    whole = os.fsync
    monkeypatch.setattr(os, "fsync", lambda file: (synced.append(path.read_bytes()), whole(file))[1])
    with ResultsFile(path) as file:
        file.append(FIRST)
        assert synced[-1] == LINE
        file.append(SECOND)
        assert file.known == {FIRST.conditions: FIRST, SECOND.conditions: SECOND}
    with ResultsFile(path) as file:
        assert file.known == {FIRST.conditions: FIRST, SECOND.conditions: SECOND}
        assert not file.repaired


@pytest.mark.parametrize("cut", [1, 5, len('{"format": '), 60, 61, len(LINE) - 1])
@pytest.mark.parametrize("zeros", [0, 7])
def test_a_line_that_was_cut_short_is_taken_off(tmp_path: Path, cut: int, zeros: int) -> None:
    path = tmp_path / "out.jsonl"
    path.write_bytes(f"{to_line(SECOND)}\n".encode() + LINE[:cut] + b"\0" * zeros)
    with ResultsFile(path) as file:
        assert file.repaired
        assert set(file.known) == {SECOND.conditions}
        file.append(FIRST)
    read = read_results(path.read_bytes())
    assert [one for _, one in read.results] == [SECOND, FIRST]
    assert (read.bad, read.torn) == ((), b"")


@pytest.mark.parametrize("content", [b"my notes", b"my notes\n", b"{}\n" + LINE, LINE + b"{}", b"import torch\n"])
def test_a_file_of_something_else_is_left_alone(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "notes.txt"
    path.write_bytes(content)
    with pytest.raises(UsageError, match="only results are added to results"):
        ResultsFile(path)
    assert path.read_bytes() == content


def test_two_do_not_write_one_file(tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    with ResultsFile(path), pytest.raises(UsageError, match=r"another process is writing .*out\.jsonl"):
        ResultsFile(path)
    ResultsFile(path).__exit__(None, None, None)


def test_a_place_that_cannot_be_is_said(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="No such file or directory; --out wants a file"):
        ResultsFile(tmp_path / "none" / "out.jsonl")


def test_a_full_disk_keeps_whole_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "out.jsonl"
    whole = os.write

    def nearly_full(file: int, data: bytes) -> int:
        if len(data) < 100:
            raise OSError(28, "No space left on device")
        return whole(file, data[:-50])

    with ResultsFile(path) as file:
        file.append(FIRST)
        with monkeypatch.context() as patch:
            patch.setattr(os, "write", nearly_full)
            with pytest.raises(ArchiveError, match="No space left on device; make room and give the same command"):
                file.append(SECOND)
        assert path.read_bytes() == LINE
