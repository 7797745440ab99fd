import os
import shutil
import sqlite3
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from kbevolve.archive import schema
from kbevolve.archive.records import StopReason
from kbevolve.archive.store import Archive
from kbevolve.configs.errors import ArchiveError
from tests.small_archive import Sample


def test_nothing_can_be_written(small_archive: Sample) -> None:
    with (
        Archive(small_archive.path, read_only=True) as archive,
        pytest.raises(ArchiveError, match="may not be written"),
    ):
        archive.add_stop(small_archive.run.id, StopReason.INTERRUPTED)


def test_a_missing_file_is_not_made(tmp_path: Path) -> None:
    with pytest.raises(ArchiveError, match="no archive at"):
        Archive(tmp_path / "none.db", read_only=True)
    assert not list(tmp_path.iterdir())


@pytest.fixture
def forbidden(small_archive: Sample) -> Iterator[Path]:
    """A copy in a directory that may not be written to, for a user without rights."""
    folder = Path(tempfile.mkdtemp(dir="/tmp"))
    shutil.copy(small_archive.path, folder / "kbevolve.db")
    (folder / "kbevolve.db").chmod(0o444)
    folder.chmod(0o555)
    root = os.geteuid() == 0
    if root:
        os.seteuid(65534)
    yield folder / "kbevolve.db"
    if root:
        os.seteuid(0)
    folder.chmod(0o755)
    shutil.rmtree(folder)


def test_an_archive_is_read_where_nothing_may_be_written(forbidden: Path) -> None:
    with pytest.raises(OSError, match="denied"):
        (forbidden.parent / "probe").touch()
    with Archive(forbidden, read_only=True) as archive:
        assert archive.runs.summary(archive.runs.get()).evaluated > 20


def test_an_older_format_is_migrated_in_memory(small_archive: Sample, monkeypatch: pytest.MonkeyPatch) -> None:
    before = small_archive.path.read_bytes()
    monkeypatch.setattr(schema, "MIGRATIONS", (*schema.MIGRATIONS, lambda db: db.execute("create table newer (one)")))
    with Archive(small_archive.path, read_only=True) as archive:
        assert archive.runs.get().id == small_archive.run.id
        assert archive.outline(small_archive.run)
    assert small_archive.path.read_bytes() == before


def test_text_that_is_not_utf8_is_read(small_archive: Sample) -> None:
    other = sqlite3.connect(small_archive.path)
    other.execute("insert into kernels values ('broken', 'TORCH', cast(x'64ff00fe' as text))")
    other.execute("insert into kernels values ('bytes', 'TORCH', x'64ff00fe')")
    other.commit()
    other.close()
    with Archive(small_archive.path, read_only=True) as archive:
        assert archive.kernels.get("broken").source == archive.kernels.get("bytes").source == "d\ufffd\x00\ufffd"
