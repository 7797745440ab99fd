from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from kbevolve.archive.connection import Connection
from kbevolve.archive.outlines import OutlineEntry
from kbevolve.archive.records import Kernel, StopReason
from kbevolve.archive.store import Archive
from tests.small_archive import Sample


def test_an_outline_says_what_births_and_first_evaluations_say(small_archive: Sample) -> None:
    with Archive(small_archive.path, read_only=True) as archive:
        run = small_archive.run
        entries, ideas = archive.outline(run), archive.runs.ideas(run.id)
        births, evaluations = archive.runs.births(run.id, texts=False), archive.runs.evaluations(run.id)
    assert len(entries) == len(births)
    for entry, birth in zip(entries, births, strict=True):
        assert (entry.generation, entry.island, entry.slot) == (birth.generation, birth.island, birth.slot)
        assert (entry.operator, entry.state, entry.parents) == (birth.operator, birth.state, birth.parents)
        assert (entry.kernel, entry.idea, entry.note) == (birth.kernel, birth.idea or "", birth.note)
        idea, found = ideas.get(birth.idea or ""), evaluations.get(birth.kernel or "")
        assert (entry.title, entry.technique) == ((idea.title, idea.technique) if idea else ("", ""))
        assert entry.verdict is (found.verdict if found else None)
        timing = (found.timing.time_ms, found.timing.speedup, found.timing.speedup_low) if found else (None,) * 3
        assert (entry.time_ms, entry.speedup, entry.speedup_low) == timing


def test_an_outline_that_follows_a_run_says_what_one_read_anew_says(small_archive: Sample, tmp_path: Path) -> None:
    run, births, path = small_archive.run, small_archive.births, tmp_path / "followed.db"
    with Archive(small_archive.path) as source, Archive(path) as writer, Archive(path, read_only=True) as reader:
        writer.add_problem(small_archive.problem)
        writer.add_run(run)
        kernels, ideas = source.runs.kernels(run.id), source.runs.ideas(run.id)
        known: tuple[OutlineEntry, ...] = ()

        def follow() -> None:
            nonlocal known
            known = reader.outline(run, known)
            assert known == reader.outline(run)

        # Generations overlap, and a verdict arrives after later attempts.
        for place, birth in enumerate(sorted(births, key=lambda one: (one.generation // 2, one.island, one.slot))):
            kernel = birth.kernel or ""
            writer.add_birth(birth, kernel=kernels.get(kernel), idea=ideas.get(birth.idea or ""))
            if place % 3 == 0:
                follow()
            if place % 5 == 0 and kernel in small_archive.evaluations:
                continue  # judged below
            if kernel in small_archive.evaluations:
                writer.add_evaluation(small_archive.evaluations[kernel])
        for found in small_archive.evaluations.values():
            writer.add_evaluation(found)
            follow()
    assert len(known) == len(births)
    assert not [one for one in known if one.verdict is None and one.kernel in small_archive.evaluations]


def test_a_reader_of_an_outline_reads_only_what_is_new(small_archive: Sample) -> None:
    with Archive(small_archive.path, read_only=True) as archive:
        known = archive.outline(small_archive.run)
        marked = [one._replace(time_ms=-1.0) for one in known]
        again = archive.outline(small_archive.run, marked)
    newest = max(known, key=lambda one: one.number)
    waiting = {one for one in known if one.kernel is not None and one.verdict is None}
    assert {one for one in again if one.time_ms != -1.0} == waiting | {newest}


def test_an_outline_of_a_run_that_was_removed_is_read_anew(small_archive: Sample, tmp_path: Path) -> None:
    run = small_archive.run
    with Archive(small_archive.path) as archive, Archive(tmp_path / "other.db") as other:
        known = archive.outline(run)
        other.merge(archive)
        archive.remove_run(run)
        assert archive.outline(run, known) == ()
        archive.merge(other)
        changed = [one._replace(note="of another copy", kernel="another") for one in known]
        assert archive.outline(run, changed) == known


def test_the_version_changes_when_another_process_writes(small_archive: Sample) -> None:
    with Archive(small_archive.path, read_only=True) as reader, Archive(small_archive.path) as writer:
        before = reader.version()
        assert reader.version() == before
        writer.add_stop(small_archive.run.id, StopReason.INTERRUPTED)
        assert reader.version() != before


def test_the_search_finds_words_of_ideas_and_code_and_follows_the_archive(
    make_archive: Callable[..., Sample], tmp_path: Path
) -> None:
    sample = make_archive()
    with Archive(sample.path, read_only=True) as archive:
        index = archive.search_index()
        ideas = [hit for hit in index.find("registers block", limit=9) if hit.table == "ideas"]
        assert [hit.line for hit in ideas] == ["Keep a block of C in registers"]
        assert ideas[0].run == sample.run.id
        assert ideas[0].kernel in sample.evaluations
        code = index.find("BLOCK unro", limit=5)
        assert len([hit for hit in code if hit.table == "kernels"]) == 5
        assert all("block" in hit.line.lower() for hit in code if hit.table == "kernels")
        assert index.find("nowhere_to_be_found", limit=5) == ()
        assert index.find('" OR * (', limit=5) == ()
        make_archive(run_id="matmul-2", seed=7)
        assert {hit.run for hit in index.find("BLOCK", limit=500)} == {sample.run.id, "matmul-2"}


def test_a_search_writes_nothing_to_the_file(small_archive: Sample) -> None:
    before = small_archive.path.read_bytes()
    with Archive(small_archive.path, read_only=True) as archive:
        archive.search_index().find("block", limit=3)
    assert small_archive.path.read_bytes() == before
    connection = Connection(small_archive.path, create=False)
    assert not connection.rows("select name from sqlite_master where name like 'find_%'")
    connection.close()


def test_a_hit_in_a_long_line_begins_with_a_whole_word(small_archive: Sample) -> None:
    words = " ".join(f"word{number}" for number in range(40))
    kernel = Kernel.from_source(f"# {words} needle at the end\n")
    found = small_archive.evaluations[small_archive.best]
    with Archive(small_archive.path) as archive:
        archive.add_found([(small_archive.problem, kernel, replace(found, kernel=kernel.id))])
        (hit,) = archive.search_index().find("needle", limit=9)
    assert hit.line.startswith("… word29 word30")
    assert hit.line.endswith(" word39 needle at the end")
