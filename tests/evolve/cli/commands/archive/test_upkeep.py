"""`kbevolve archive best, search, check, rm-run, pack, merge, diff --json`, as a user types them."""

import json
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from kbevolve.archive.store import Archive
from kbevolve.evolve.runs.lock import run_lock
from tests.evolve.web.conftest import make_hostile


@pytest.fixture
def archive_of(kbevolve: Any) -> Any:
    """Call `kbevolve archive` on a file."""

    def call(path: Path, *words: object) -> Any:
        return kbevolve("archive", *words, "--archive", path)

    return call


def test_best_has_one_line_a_problem_and_device(archive_of: Any, make_archive: Any) -> None:
    champion = make_archive(confirmed=True)
    make_archive(run_id="slower", seed=3, generations=1)
    other = make_archive(run_id="elsewhere", seed=4, device="cpu/another")
    rows = json.loads(archive_of(champion.path, "best", "--json").out)
    assert [(row["device"], row["kernel"]) for row in rows] == [
        ("cpu/another", other.best),
        (champion.run.device, champion.best),
    ]
    assert [row["confirmed"] for row in rows] == [False, True]
    assert rows[1]["run"] == champion.run.id
    with Archive(champion.path) as archive:
        assert rows[1]["speedup"] == archive.runs.champion(champion.run.id).speedup  # type: ignore[union-attr]
    lines = archive_of(champion.path, "best").out.splitlines()
    assert len(lines) == 3
    assert "(confirmed)" in lines[2]
    of_run = archive_of(champion.path, "best", champion.run.id, "-n", 2)
    assert of_run.out == archive_of(champion.path, "ls", champion.run.id, "--best", "-n", 2).out
    assert champion.best in of_run.out.splitlines()[1]


def test_best_of_nothing_says_how_to_begin(archive_of: Any, tmp_path: Path) -> None:
    Archive(tmp_path / "empty.db").close()
    outcome = archive_of(tmp_path / "empty.db", "best")
    assert outcome.code == 1
    assert "start a run: kbevolve run" in outcome.err
    assert json.loads(archive_of(tmp_path / "empty.db", "best", "--json").out) == []


def test_search_finds_ideas_and_sources(archive_of: Any, small_archive: Any) -> None:
    path = small_archive.path
    lines = archive_of(path, "search", "keep", "regist").out.splitlines()
    assert lines[1].startswith("idea ")
    assert "Keep a block of C in registers" in lines[1]
    hits = json.loads(archive_of(path, "search", "BLOCK", "-n", 3, "--json").out)
    assert [hit["table"] for hit in hits] == ["ideas", "kernels", "kernels", "kernels"]
    assert "block" in hits[1]["line"]
    assert all(hit["run"] == small_archive.run.id for hit in hits)
    none = archive_of(path, "search", "warp_specialised")
    assert (none.code, none.out) == (0, "")
    assert "No idea and no kernel has all of: warp_specialised" in none.err
    assert json.loads(archive_of(path, "search", "warp_specialised", "--json").out) == []


def test_diff_is_an_object_for_scripts(archive_of: Any, small_archive: Any) -> None:
    birth = next(birth for birth in small_archive.births if birth.generation == 1 and birth.kernel)
    found = json.loads(archive_of(small_archive.path, "diff", birth.kernel, "--json").out)
    assert (found["older"]["kernel"], found["newer"]["kernel"]) == (birth.parents[0], birth.kernel)
    assert found["newer"]["speedup"] == small_archive.evaluations[birth.kernel].timing.speedup
    assert found["diff"] + "\n" == archive_of(small_archive.path, "diff", birth.kernel).out


def test_check_has_an_exit_code_and_says_what_to_do(archive_of: Any, small_archive: Any) -> None:
    whole = archive_of(small_archive.path, "check")
    assert whole.code == 0
    assert whole.out == f"{small_archive.path} is whole: 1 run, {len(small_archive.births)} attempts.\n"
    with sqlite3.connect(small_archive.path) as file:
        file.execute("insert into kernels values ('abc', 'TORCH', 'x = 1')")
    file.close()
    broken = archive_of(small_archive.path, "check")
    assert broken.code == 1
    assert "Kernels whose source does not give their id: 1 (abc)" in broken.out
    assert "What to do: " in broken.out
    found = archive_of(small_archive.path, "check", "--json")
    assert found.code == 1
    assert json.loads(found.out)["whole"] is False


def test_rm_run_asks_first(archive_of: Any, small_archive: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    path, run = small_archive.path, small_archive.run.id
    unasked = archive_of(path, "rm-run", "latest")
    assert unasked.code == 2
    assert f"removes {run} for good and asks first; in a script, answer with --yes" in unasked.err
    for answer, code, left in (("n\n", 1, 1), ("y\n", 0, 0)):
        monkeypatch.setattr(sys, "stdin", _Terminal(answer))
        outcome = archive_of(path, "rm-run", "latest")
        assert outcome.code == code
        assert f"Remove run {run} (L1/matmul, {len(small_archive.births)} attempts" in outcome.err
        assert len(json.loads(archive_of(path, "ls", "--json").out)) == left
    assert f"Removed run {run}: {len(small_archive.births)} attempts" in outcome.out


def test_rm_run_refuses_while_a_run_goes_on(archive_of: Any, small_archive: Any, make_archive: Any) -> None:
    script = (
        "import sys; from kbevolve.archive.store import Archive; from kbevolve.evolve.runs.lock import run_lock\n"
        "archive = Archive(sys.argv[1])\n"
        "with run_lock(archive, archive.runs.get()): print(flush=True); sys.stdin.read()"
    )
    words = [sys.executable, "-c", script, str(small_archive.path)]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        other.stdout.readline()
        refused = archive_of(small_archive.path, "rm-run", "latest", "--yes")
        make_archive(run_id="finished", seed=5)
        second = archive_of(small_archive.path, "rm-run", "finished", "--yes")
        other.communicate(b"")
    assert refused.code == 2
    assert "another process works on run" in refused.err
    assert second.code == 2
    assert f"process {other.pid} works on run {small_archive.run.id} of this archive" in second.err
    assert archive_of(small_archive.path, "rm-run", "finished", "--yes").code == 0
    removed = archive_of(small_archive.path, "rm-run", "latest", "--yes", "--json")
    assert json.loads(removed.out)["removed"]["attempts"] == len(small_archive.births)
    with Archive(small_archive.path) as archive, run_lock(archive, small_archive.run):
        assert archive.runs.summaries() == []


def test_pack_and_merge_carry_a_run(archive_of: Any, make_archive: Any, tmp_path: Path) -> None:
    one = make_archive(run_id="one", seed=1)
    two = make_archive(run_id="two", seed=2)
    packed = tmp_path / "packed.db"
    facts = json.loads(archive_of(one.path, "pack", "--run", "two", "-o", packed, "--json").out)
    assert (facts["runs"], facts["bytes"]) == (1, packed.stat().st_size)
    assert sorted(tmp_path.glob("*packed*")) == [packed], "nothing lies beside it"
    assert json.loads(archive_of(packed, "ls", "--json").out)[0]["run"]["id"] == "two"
    assert archive_of(one.path, "pack", "-o", packed).code == 2
    whole = archive_of(one.path, "pack", "-o", packed, "--force")
    assert whole.code == 0
    assert f"Wrote {packed}: 2 runs, " in whole.out
    assert archive_of(one.path, "pack", "-o", one.path, "--force").code == 2
    assert archive_of(one.path, "pack", "-o", tmp_path / "none" / "x.db").code == 2
    target = tmp_path / "all.db"
    merged = archive_of(target, "merge", packed, one.path)
    assert merged.out.splitlines()[0].startswith(f"{packed}: added 2 runs, ")
    assert merged.out.splitlines()[1] == f"{one.path}: nothing new."
    again = json.loads(archive_of(target, "merge", packed, "--json").out)
    assert set(again[0]["added"].values()) == {0}
    assert archive_of(target, "check").code == 0
    assert two.best in archive_of(target, "best", "two").out
    for words, message in (((target,), "is the archive itself"), ((tmp_path / "no.db",), "no archive at")):
        refused = archive_of(target, "merge", *words)
        assert refused.code in (1, 2)
        assert message in refused.err


def test_a_packed_archive_has_what_is_still_in_the_log(archive_of: Any, small_archive: Any, tmp_path: Path) -> None:
    with Archive(small_archive.path) as writer:
        started = writer.start_session(small_archive.run.id)
        log = Path(f"{small_archive.path}-wal").stat().st_size
        assert log > 0
        packed = tmp_path / "packed.db"
        facts = json.loads(archive_of(small_archive.path, "pack", "-o", packed, "--json").out)
        assert facts["bytes_before"] == small_archive.path.stat().st_size + log
    with sqlite3.connect(packed) as file:
        assert file.execute("select started_at from sessions").fetchall() == [(started,)]
    file.close()


def test_an_archive_is_packed_where_nothing_may_be_written(archive_of: Any, small_archive: Any, tmp_path: Path) -> None:
    small_archive.path.chmod(0o444)
    before = small_archive.path.read_bytes()
    assert archive_of(small_archive.path, "pack", "-o", tmp_path / "packed.db").code == 0
    assert small_archive.path.read_bytes() == before


def test_a_hostile_archive_is_checked_packed_and_tidied(archive_of: Any, small_archive: Any, tmp_path: Path) -> None:
    path = make_hostile(small_archive)
    checked = archive_of(path, "check")
    assert checked.code == 1
    for finding in ("does not give their id: 3 (broken, bytes", "no kernel of the archive: 3", "own ancestors: 2"):
        assert finding in checked.out
    assert archive_of(path, "pack", "-o", tmp_path / "packed.db").code == 0
    refused = archive_of(tmp_path / "all.db", "merge", tmp_path / "packed.db")
    assert refused.code == 1
    assert "does not give this id, so it was changed; nothing was copied" in refused.err
    assert archive_of(path, "search", "owned").code == 0
    assert archive_of(path, "rm-run", "latest", "--yes").code == 0
    assert archive_of(path, "check").code == 0


class _Terminal:
    """Standard input on which a person answers."""

    def __init__(self, answer: str) -> None:
        self._answer = answer

    def isatty(self) -> bool:
        return True

    def readline(self, *_: object) -> str:
        return self._answer
