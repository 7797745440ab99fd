"""Archives are merged: everything once, whole, and as it was."""

import sqlite3
from pathlib import Path
from typing import Any

import pytest

from kbevolve.archive.conversations import Question, QuestionAnswer, QuestionStage, RequestPlace
from kbevolve.archive.merging import Merged
from kbevolve.archive.parts import changed
from kbevolve.archive.records import Birth, BirthState, Kernel, KnownDevice, Operator, StopReason
from kbevolve.archive.store import Archive
from kbevolve.configs.errors import ArchiveError
from tests.small_archive import Sample, confirmation

#: Columns that each archive counts by itself.
NUMBERS = ("number", "evaluation", "confirmation")


def content(path: Path) -> dict[str, list[tuple[Any, ...]]]:
    """Every table without the numbers of rows, in order."""
    file = sqlite3.connect(path)
    file.row_factory = sqlite3.Row
    names = [row[0] for row in file.execute("select name from sqlite_master where type = 'table' order by name")]
    found = {}
    for name in set(names) - {"migrations", "sqlite_sequence"}:
        rows = file.execute(f"select * from {name}").fetchall()
        found[name] = sorted((tuple(row[key] for key in row.keys() if key not in NUMBERS) for row in rows), key=repr)  # noqa: SIM118
    file.close()
    return found


@pytest.fixture
def full(make_archive: Any) -> Sample:
    """A run with every kind of fact."""
    sample: Sample = make_archive("full.db", confirmed=True)
    place = RequestPlace(generation=9, island=0, slot=0, number=1)
    with Archive(sample.path) as archive:
        archive.end_session(sample.run.id, archive.start_session(sample.run.id))
        archive.add_transfer(sample.run.id, "{}")
        archive.add_generation_end(sample.run.id, 3)
        archive.replies(sample.run).keep("digest", "reply")
        question = Question(run=sample.run.id, place=place, operator=Operator.MUTATE, stage=QuestionStage.CODE)
        archive.questions(sample.run).hand_out([question])
        archive.questions(sample.run).tell(place, QuestionAnswer(text="code", by="a person"))
        archive.add_device(KnownDevice(fingerprint=sample.run.device, type="cpu", description="a CPU"))
        again = changed(sample.evaluations[sample.best], device="cuda/elsewhere", speedup=9.0)
        archive.add_evaluation(again)
    return sample


def merged(target: Path, source: Path, runs: tuple[str, ...] | None = None) -> Merged:
    with Archive(target) as archive, Archive(source, read_only=True) as other:
        return archive.merge(other, runs)


def test_an_empty_archive_becomes_a_copy(full: Sample, tmp_path: Path) -> None:
    target = tmp_path / "all.db"
    added = merged(target, full.path)
    assert (added.runs, added.attempts) == (1, len(full.births))
    assert added.evaluations == len(full.evaluations) + 1
    assert content(target) == content(full.path)
    with Archive(target) as archive:
        assert archive.runs.births(full.run.id) == list(full.births)
        assert archive.check() == []
        assert archive.kernels.evaluations(full.best)[0] == full.evaluations[full.best]


def test_merging_again_adds_nothing(full: Sample, make_archive: Any) -> None:
    target = make_archive("all.db", run_id="other-run", seed=1).path
    assert merged(target, full.path)
    before = content(target)
    assert not merged(target, full.path)
    assert content(target) == before


def test_the_same_kernel_is_there_once_and_every_evaluation_is_kept(make_archive: Any) -> None:
    target, source = make_archive("a.db"), make_archive("b.db", run_id="second")
    added = merged(target.path, source.path)
    assert (added.runs, added.attempts, added.kernels) == (1, len(source.births), 0)
    assert added.evaluations == len(source.evaluations)
    with Archive(target.path) as archive:
        both = archive.kernels.evaluations(target.best)
        assert both == [target.evaluations[target.best], source.evaluations[target.best]]
        assert archive.runs.get().id == "second"


def test_a_later_copy_of_a_run_adds_what_is_new(full: Sample, tmp_path: Path) -> None:
    target = tmp_path / "all.db"
    merged(target, full.path)
    kernel = Kernel.from_source("late = 1\n")
    birth = Birth(
        run=full.run.id, generation=9, island=0, slot=0, operator=Operator.TUNE, state=BirthState.CREATED,
        parents=(full.best,), kernel=kernel.id,
    )  # fmt: skip
    with Archive(full.path) as archive:
        archive.add_birth(birth, kernel=kernel)
        archive.add_evaluation(changed(full.evaluations[full.best], kernel=kernel.id))
        archive.add_contest([confirmation(full.run.id, kernel.id, generation=9)])
        archive.add_stop(full.run.id, StopReason.INTERRUPTED)
    earlier = content(target)
    assert merged(target, full.path) == Merged(attempts=1, kernels=1, evaluations=1, confirmations=1)
    assert content(target) == content(full.path) != earlier
    assert not merged(full.path, target)


def test_a_run_that_went_on_in_both_is_refused(full: Sample, tmp_path: Path) -> None:
    target = tmp_path / "all.db"
    merged(target, full.path)
    for path in (target, full.path):
        birth = Birth(
            run=full.run.id, generation=9, island=0, slot=0, operator=Operator.TUNE, state=BirthState.NO_CODE,
            note=path.name,
        )  # fmt: skip
        with Archive(path) as archive:
            archive.add_birth(birth)
    before = content(target)
    with pytest.raises(ArchiveError, match=r"went on in .*all.db and in .*full.db separately.*rm-run"):
        merged(target, full.path)
    assert content(target) == before


def test_one_run_takes_all_that_it_needs_and_nothing_else(make_archive: Any, tmp_path: Path) -> None:
    first = make_archive("two.db", seed=1, run_id="first", device="cpu/other", problem_name="L1/other")
    second = make_archive("two.db", seed=2, run_id="second")
    with Archive(first.path) as archive:
        lender = changed(second.evaluations[second.best], kernel=first.best, device="cpu/x")
        archive.add_evaluation(lender)
        archive.add_evaluation(changed(lender, kernel=second.best, identical_to=first.best))
    target = tmp_path / "one.db"
    assert merged(target, first.path, ("second",)).runs == 1
    with Archive(target) as archive:
        assert [one.run.id for one in archive.runs.summaries()] == ["second"]
        assert archive.runs.births("second") == list(second.births)
        assert archive.check() == []
        assert set(archive.kernels.ids()) == {first.best, *(one.kernel for one in second.births if one.kernel)}
        with Archive(first.path) as both:
            assert archive.runs.summary(second.run) == both.runs.summary(second.run)
    assert len(content(target)["problems"]) == 1


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            "insert into kernels values ('0000000000000000', 'TORCH', 'y = 2')",
            "'0000000000000000' does not give this id",
        ),
        (
            "insert into births (run, generation, island, slot, operator, state, parents, kernel, note, model,"
            " prompt_tokens, completion_tokens, seconds, at)"
            " select id, 99, 0, 0, 'TUNE', 'CREATED', '[]', 'gone', '', '', 0, 0, 0, '' from runs",
            "names another that is missing",
        ),
    ],
)
def test_an_altered_archive_is_refused_whole(full: Sample, tmp_path: Path, change: str, message: str) -> None:
    file = sqlite3.connect(full.path)
    file.execute(change)
    file.commit()
    file.close()
    with pytest.raises(ArchiveError, match=message):
        merged(tmp_path / "all.db", full.path)
    assert not any(content(tmp_path / "all.db").values())
