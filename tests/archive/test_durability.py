"""Nothing that was finished is lost: killed writers, full disks, files that cannot be opened or written."""

import os
import signal
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kbevolve.archive import connection as connection_module
from kbevolve.archive.records import Birth, BirthState, Kernel, Operator, Run
from kbevolve.archive.store import Archive
from kbevolve.configs.errors import ArchiveError
from kbevolve.configs.problem import Problem

#: Writes births and evaluations into a run, and says so after each; argv: path, run, first, count, limit of file sizes.
WRITER = """
import dataclasses, resource, sys
from pathlib import Path
from kbevolve.archive.records import *
from kbevolve.archive.store import Archive
from kbevolve.configs.problem import Problem

path, run_id, first, count, limit = sys.argv[1], sys.argv[2], *map(int, sys.argv[3:6])
problem = Problem(name="p", source="p", path=Path("p.py"), cpu_sizes={}, summary="")
run = Run(id=run_id, problem_name="p", problem=problem.id, device="d", seed=0, settings="{}")
with Archive(path) as archive:
    archive.add_problem(problem)
    if first == 0:
        archive.add_run(run)
    if limit:
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
    for number in range(first, first + count):
        kernel = Kernel.from_source(f"x = '{run_id} {number}'")
        archive.add_birth(
            Birth(run=run_id, generation=number, island=0, slot=0, operator=Operator.TUNE, state=BirthState.CREATED,
                  kernel=kernel.id, prompt=f"{number} " * 2000),
            kernel=kernel,
        )
        print("birth", number, flush=True)
        block = Measurement(role="child", round=0, times_ms=(1.0,) * 100)
        archive.add_evaluation(
            Evaluation(kernel=kernel.id, problem=problem.id, device="d", precision="fp32", verdict=Verdict.CORRECT,
                       timing=Timing(speedup=1.0, speedup_low=1.0), blocks=(block,) * 20)
        )
        print("evaluation", number, flush=True)
"""


def start_writer(
    path: Path, run_id: str, *, first: int = 0, count: int = 10**9, limit: int = 0
) -> subprocess.Popen[str]:
    words = [sys.executable, "-c", WRITER, path, run_id, str(first), str(count), str(limit)]
    return subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def assert_sound(path: Path) -> None:
    with sqlite3.connect(path) as connection:
        assert connection.execute("pragma integrity_check").fetchone() == ("ok",)
        assert connection.execute("pragma foreign_key_check").fetchall() == []
        blocks = connection.execute("select count(*) from blocks").fetchone()[0]
        assert blocks == 20 * connection.execute("select count(*) from evaluations").fetchone()[0]
    connection.close()


def test_kill_9_loses_nothing_that_was_acknowledged(tmp_path: Path) -> None:
    path = tmp_path / "kbevolve.db"
    born: set[int] = set()
    judged: set[int] = set()
    for lines in (23, 40, 61):  # killed after a birth, an evaluation, and in the middle of either
        writer = start_writer(path, "run", first=max(born, default=-1) + 1)
        assert writer.stdout is not None
        acknowledged = [writer.stdout.readline().split() for _ in range(lines)]
        writer.send_signal(signal.SIGKILL)
        rest = writer.stdout.read()  # not `communicate`, which would miss what `readline` has read ahead
        writer.communicate(timeout=30)
        # A last line may have been cut; what it would have said is then not acknowledged.
        acknowledged += [line.split() for line in rest.split("\n")[:-1]]
        assert writer.returncode == -signal.SIGKILL
        born |= {int(number) for what, number in acknowledged if what == "birth"}
        judged |= {int(number) for what, number in acknowledged if what == "evaluation"}
        with Archive(path, create=False) as archive:
            births = archive.runs.births("run")
            found = {birth.generation for birth in births}
            evaluations = archive.runs.evaluations("run")
        assert born <= found
        assert judged <= {birth.generation for birth in births if birth.kernel in evaluations}
        assert len(found - born) <= 1  # at most the one whose acknowledgement was on its way
        assert all(birth.prompt.startswith(f"{birth.generation} ") for birth in births)
        born = found
        assert_sound(path)


def test_two_runs_may_write_while_others_read(tmp_path: Path) -> None:
    path = tmp_path / "kbevolve.db"
    Archive(path).close()
    writers = [start_writer(path, run_id, count=60) for run_id in ("one", "two")]
    seen = 0
    with Archive(path, create=False) as reader:
        while any(writer.poll() is None for writer in writers):
            counts = [summary.births for summary in reader.runs.summaries()]
            assert sum(counts) >= seen
            seen = sum(counts)
        assert {summary.run.id: summary.evaluated for summary in reader.runs.summaries()} == {"one": 60, "two": 60}
    for writer in writers:
        _, errors = writer.communicate(timeout=60)
        assert (writer.returncode, errors) == (0, "")
    assert_sound(path)


def test_a_disk_that_takes_no_more_is_one_line_and_the_archive_stays_whole(tmp_path: Path) -> None:
    path = tmp_path / "kbevolve.db"
    writer = start_writer(path, "run", limit=1_500_000)  # the kernel refuses to let any file grow beyond this
    out, errors = writer.communicate(timeout=60)
    assert writer.returncode == 1
    assert "ArchiveError" in errors
    assert "make room, then `kbevolve resume`" in errors
    born = [int(line.split()[1]) for line in out.splitlines() if line.startswith("birth")]
    assert len(born) > 5
    with Archive(path) as archive:
        assert [birth.generation for birth in archive.runs.births("run")] == born
    assert_sound(path)
    again = start_writer(path, "run", first=len(born), count=3)  # room was made: it goes on
    assert again.communicate(timeout=60)[1] == ""
    assert_sound(path)


def test_a_full_database_names_the_remedy(small_archive: Any) -> None:
    with Archive(small_archive.path) as archive:
        pages = archive._connection.rows("pragma page_count")[0][0]
        archive._connection.rows(f"pragma max_page_count = {pages}")
        kernel = Kernel.from_source("x = 1\n" * 10_000)
        birth = Birth(
            run=small_archive.run.id, generation=99, island=0, slot=0, operator=Operator.TUNE, state=BirthState.CREATED,
            kernel=kernel.id,
        )  # fmt: skip
        with pytest.raises(ArchiveError, match="the disk is full; make room, then `kbevolve resume`"):
            archive.add_birth(birth, kernel=kernel)
        assert archive.runs.births(small_archive.run.id) == list(small_archive.births)
        archive._connection.rows("pragma max_page_count = 1000000")
        archive.add_birth(birth, kernel=kernel)
        assert archive.runs.births(small_archive.run.id)[-1] == birth


def test_a_file_that_someone_holds_is_waited_for_and_then_named(
    small_archive: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(connection_module, "BUSY_SECONDS", 0.05)
    holder = sqlite3.connect(small_archive.path, isolation_level=None)
    holder.execute("begin immediate")
    with Archive(small_archive.path) as archive:
        assert archive.runs.get() == small_archive.run  # reading never waits
        run = Run(id="x", problem_name="p", problem=small_archive.problem.id, device="d", seed=0, settings="{}")
        with pytest.raises(ArchiveError, match="another process has held it"):
            archive.add_run(run)
        holder.execute("rollback")
        archive.add_run(run)
    holder.close()


def test_a_missing_file_is_made_only_when_it_is_to_be(tmp_path: Path) -> None:
    path = tmp_path / "none.db"
    with pytest.raises(ArchiveError, match=r"no archive at .*none\.db; `kbevolve run --problem L1/matmul` makes one"):
        Archive(path, create=False)
    assert not path.exists()
    Archive(path).close()
    assert path.exists()


@pytest.mark.parametrize("name", ["a b.db", "50%.db", "what?.db", "no#1.db", "ü.db"])
def test_any_file_name_will_do(tmp_path: Path, name: str) -> None:
    Archive(tmp_path / name).close()
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_what_is_no_archive_is_said_in_words(tmp_path: Path) -> None:
    text = tmp_path / "notes.txt"
    text.write_text("These are notes, not a database. " * 100)
    with pytest.raises(ArchiveError, match="not an SQLite file"):
        Archive(text)
    assert text.read_text().startswith("These are notes")
    with pytest.raises(ArchiveError, match=r"is a directory; --archive wants a file, e\.g\. .*kbevolve\.db"):
        Archive(tmp_path)
    with pytest.raises(ArchiveError, match=r"there is no directory .*; make it first: mkdir -p"):
        Archive(tmp_path / "no" / "kbevolve.db")
    with pytest.raises(ArchiveError, match="it cannot be opened for writing here; name a file in a directory"):
        Archive("/proc/kbevolve.db")


def test_a_damaged_file_names_the_remedy(small_archive: Any) -> None:
    content = bytearray(small_archive.path.read_bytes())
    content[4096:] = b"\xff" * (len(content) - 4096)
    small_archive.path.write_bytes(content)
    with (
        pytest.raises(ArchiveError, match=r"the file is damaged; save what can be read: .*\.recover"),
        Archive(small_archive.path) as archive,
    ):
        archive.runs.summaries()


@pytest.fixture
def public_directory() -> Iterator[Path]:
    """A directory that any user may enter; pytest's own are for their owner."""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        yield Path(name)


@pytest.mark.parametrize("forbidden", ["directory", "file"])
def test_what_may_not_be_written_names_the_remedy(public_directory: Path, forbidden: str) -> None:
    """Root may write anywhere, so the archive is used by a child process that gave its rights up."""
    path = public_directory / "kbevolve.db"
    problem = Problem(name="p", source="p", path=Path("p.py"), cpu_sizes={}, summary="")
    if forbidden == "file":
        Archive(path).close()
        path.chmod(0o444)
        public_directory.chmod(0o777)
    else:
        public_directory.chmod(0o555)

    def use() -> str:
        try:
            with Archive(path) as archive:
                archive.add_problem(problem)
        except ArchiveError as error:
            return str(error)
        return "written"

    message = in_unprivileged_child(use)
    assert str(path) in message
    assert "--archive" in message
    assert "may not be written" in message or "cannot be opened for writing" in message


def in_unprivileged_child(use: Any) -> str:
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            if os.geteuid() == 0:
                os.setuid(65534)
            os.write(writing, use().encode())
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as answer:
        text = answer.read()
    os.waitpid(child, 0)
    return text
