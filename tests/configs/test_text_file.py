"""A file that cannot be read as UTF-8 text is refused in one line that says what the option wants."""

import os
from pathlib import Path

import pytest

from kbevolve.configs.errors import ProblemError, UsageError
from kbevolve.configs.text_file import read_text

WANTS = {"option": "--start", "wants": "file with class ModelNew"}


def test_a_text_is_read_whole(tmp_path: Path) -> None:
    (file := tmp_path / "x.py").write_bytes("é = 1\r\n".encode())
    assert read_text(file, **WANTS) == "é = 1\n"


@pytest.mark.parametrize(
    ("content", "byte", "position"), [(b"abc\xff", "ff", 3), (b"\x80", "80", 0), (b"a\xc3", "c3", 1)]
)
def test_a_byte_that_is_not_utf8_is_named(tmp_path: Path, content: bytes, byte: str, position: int) -> None:
    (file := tmp_path / "x.py").write_bytes(content)
    with pytest.raises(UsageError) as refused:
        read_text(file, **WANTS)
    assert str(refused.value) == (
        f"{file}: byte 0x{byte} at position {position} is not UTF-8; --start wants a UTF-8 file with class ModelNew"
    )


def test_missing_files_and_directories_are_refused(tmp_path: Path) -> None:
    for path, reason in ((tmp_path / "none.py", "No such file or directory"), (tmp_path, "Is a directory")):
        with pytest.raises(ProblemError, match=f"{reason}; --start wants a file with class ModelNew"):
            read_text(path, **WANTS, error=ProblemError)


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads every file")
def test_a_file_without_permission_is_refused(tmp_path: Path) -> None:
    (file := tmp_path / "x.py").touch(mode=0o000)
    with pytest.raises(UsageError, match="Permission denied"):
        read_text(file, **WANTS)
