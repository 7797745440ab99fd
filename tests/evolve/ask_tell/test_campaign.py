"""The campaign's archives, asked and told once more: what a model answered makes the same kernels of the same ideas."""

import sqlite3
import tarfile
from pathlib import Path

import pytest

from kbevolve.archive.conversations import Question, QuestionAnswer
from kbevolve.archive.records import Birth, Run
from kbevolve.archive.store import Archive
from kbevolve.evolve.ask_tell.ask import AskResult, ask
from kbevolve.evolve.runs.session import settings_of

#: One archive for each problem, with its one run; the page beside them says how they came about.
ARCHIVES = Path(__file__).parents[3] / "docs" / "results" / "archives" / "2026-11-27-campaign.tar.xz"
with tarfile.open(ARCHIVES) as archives:
    NAMES = sorted(member.name for member in archives if member.name.endswith(".db"))
#: What a run has written since its starting kernels were judged.
_LATER = """
delete from questions; delete from answers; delete from stops; delete from replies;
delete from placements where generation > 0;
delete from generation_ends where generation > 0;
delete from births where generation > 0;
delete from blocks where evaluation in
    (select number from evaluations where kernel not in (select kernel from births));
delete from evaluations where kernel not in (select kernel from births);
delete from kernels where id not in (select kernel from births);
"""


def opened(path: Path) -> tuple[Archive, Run]:
    archive = Archive(path)
    return archive, archive.runs.get()


def without_answers(recorded: Path, copy: Path) -> Path:
    copy.write_bytes(recorded.read_bytes())
    connection = sqlite3.connect(copy)
    # An archive is insert-only, by triggers.
    guards = list(connection.execute("select name, sql from sqlite_master where type = 'trigger'"))
    for name, _ in guards:
        connection.execute(f'drop trigger "{name}"')
    connection.executescript(_LATER)
    for _, sql in guards:
        connection.execute(sql)
    connection.commit()
    connection.close()
    return copy


def children(archive: Archive, run: Run) -> list[tuple[object, ...]]:
    """What the answers decide of each child; prompts may be worded anew."""

    def of(birth: Birth) -> tuple[object, ...]:
        return birth.id.partition("/")[2], birth.operator, birth.state, birth.parents, birth.kernel, birth.idea

    return sorted(of(birth) for birth in archive.runs.births(run.id) if birth.generation)


def answer_all(asked: AskResult, recorded: Archive, archive: Archive, run: Run) -> int:
    """Give every open question its recorded answer; how many had one."""
    questions, known = archive.questions(run), recorded.questions(run)
    given: list[tuple[Question, QuestionAnswer]] = []
    for one in asked.open:
        if (found := known.answer(one.question.place)) is not None:
            given.append((one.question, found))
    questions.hand_out([one.question for one in asked.open])
    for question, found in given:
        questions.tell(question.place, found)
    return len(given)


@pytest.mark.parametrize("name", NAMES)
def test_the_same_answers_make_the_same_children(name: str, tmp_path: Path) -> None:
    with tarfile.open(ARCHIVES) as archives:
        archives.extract(name, tmp_path, filter="data")
    recorded, run = opened(tmp_path / name)
    archive, _ = opened(without_answers(tmp_path / name, tmp_path / "copy.db"))
    settings = settings_of(run, {})
    verdicts = recorded.runs.evaluations(run.id)
    assert not children(archive, run)
    for _ in range(40):
        asked = ask(archive, run, settings, judge=False)
        told = answer_all(asked, recorded, archive, run)
        waiting = [kernel for _, kernel in asked.waiting if kernel.id in verdicts]
        archive.add_found([(recorded.problems.get(run.problem), one, verdicts[one.id]) for one in waiting])
        if not told and not waiting:
            break
    assert children(archive, run) == children(recorded, run)
