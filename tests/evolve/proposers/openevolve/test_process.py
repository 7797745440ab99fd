"""OpenEvolve in its own process: it asks what its controller asks, it is the same again, and it ends with us."""

import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from kbevolve.configs.errors import ProposerError
from kbevolve.evolve.proposers.openevolve.process import Asked, Guest, Written

PROGRAM = "X = 1\nY = 1\n\n\nclass ModelNew: ...\n"


@pytest.fixture
def guest(monkeypatch: pytest.MonkeyPatch) -> Iterator[Guest]:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret-0123456789")
    one = Guest(program=PROGRAM, system="You make kernels fast.", models={"m": 1.0}, seed=3)
    yield one
    one.close()


def edit(name: str, old: int, new: int) -> str:
    return f"So be it.\n\n<<<<<<< SEARCH\n{name} = {old}\n=======\n{name} = {new}\n>>>>>>> REPLACE\n"


def conversation(guest: Guest, answers: list[str]) -> list[str]:
    """All that it asks while it gets these answers, and a better score for each program."""
    asked = []
    for number, answer in enumerate(answers):
        question = guest.next()
        while isinstance(question, Written):
            asked.append(question.source)
            guest.score({"combined_score": 1.0 + number}, {"feedback": f"remark {number}"})
            question = guest.next()
        asked.append(question.text)
        guest.answer(answer)
    return asked


def test_it_asks_for_the_score_of_its_program_then_for_a_better_one(guest: Guest) -> None:
    assert guest.next() == Written(source=PROGRAM)
    guest.score({"combined_score": 0.75}, {"feedback": "Bottleneck (a guess): latency."})
    asked = guest.next()
    assert isinstance(asked, Asked)
    assert asked.model == "m"
    assert asked.system == "You make kernels fast."
    assert PROGRAM in asked.messages[-1].content
    assert "0.7500" in asked.messages[-1].content
    assert "Bottleneck (a guess): latency." in asked.messages[-1].content
    guest.answer(edit("X", 1, 2))
    assert guest.next() == Written(source=PROGRAM.replace("X = 1", "X = 2"))


def test_an_answer_that_it_cannot_use_is_followed_by_the_next_question(guest: Guest) -> None:
    guest.next()
    guest.score({"combined_score": 1.0}, {})
    guest.next()
    guest.answer("I would rather not.")
    assert isinstance(guest.next(), Asked)


def test_with_the_same_answers_it_asks_the_same(guest: Guest) -> None:
    answers = [edit("XY"[number % 2], 1, 2 + number) for number in range(12)]
    other = Guest(program=PROGRAM, system="You make kernels fast.", models={"m": 1.0}, seed=3)
    try:
        assert conversation(guest, answers) == conversation(other, answers)
    finally:
        other.close()


def test_its_process_knows_no_key_and_ends_with_its_children(guest: Guest) -> None:
    guest.next()
    guest.score({"combined_score": 1.0}, {})
    guest.next()  # now there is a worker, too
    pids = [int(entry) for entry in os.listdir("/proc") if entry.isdigit() and _group(int(entry)) == guest._process.pid]
    assert len(pids) >= 2
    for pid in pids:
        assert b"sk-secret" not in Path(f"/proc/{pid}/environ").read_bytes()
    folder = guest._folder
    assert folder.exists()
    guest.close()
    guest.close()
    assert not folder.exists()
    waited = time.monotonic()
    while any(_group(pid) == guest._process.pid for pid in pids):
        assert time.monotonic() - waited < 10
        time.sleep(0.01)


def test_it_ends_when_nobody_answers_any_more(guest: Guest) -> None:
    """As when our process is killed: then nobody closes anything."""
    guest.next()
    guest._socket.shutdown(2)
    assert guest._process.wait(timeout=20) == -9


def test_a_question_that_is_waited_for_is_given_up_by_another_thread(guest: Guest) -> None:
    guest.next()  # it waits for a score that never comes, and so do we for its next question
    threading.Timer(0.2, guest.close).start()
    with pytest.raises(ProposerError, match="process has ended"):
        guest.next()


def _group(pid: int) -> int | None:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if state[0] == "Z" else int(state[2])
