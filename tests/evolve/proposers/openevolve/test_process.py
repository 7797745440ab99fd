"""OpenEvolve in its own process: its questions, that they are reproducible, and that it ends with us."""

import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from kbevolve.configs.errors import ProposerError
from kbevolve.evolve.proposers.openevolve.process import ModelQuestion, OpenEvolveProcess

PROGRAM = "X = 1\nY = 1\n\n\nclass ModelNew: ...\n"


@pytest.fixture
def process(monkeypatch: pytest.MonkeyPatch) -> Iterator[OpenEvolveProcess]:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret-0123456789")
    one = OpenEvolveProcess(program=PROGRAM, system="You make kernels fast.", models={"m": 1.0}, seed=3)
    yield one
    one.close()


def edit(name: str, old: int, new: int) -> str:
    return f"A change.\n\n<<<<<<< SEARCH\n{name} = {old}\n=======\n{name} = {new}\n>>>>>>> REPLACE\n"


def conversation(process: OpenEvolveProcess, answers: list[str]) -> list[str]:
    """Its questions while it gets these answers, and a better score for each program."""
    asked = []
    for number, answer in enumerate(answers):
        question = process.next()
        while isinstance(question, str):
            asked.append(question)
            process.score({"combined_score": 1.0 + number}, {"feedback": f"remark {number}"})
            question = process.next()
        asked.append(question.text)
        process.answer(answer)
    return asked


def test_it_asks_for_scores_and_for_better_programs(process: OpenEvolveProcess) -> None:
    assert process.next() == PROGRAM
    process.score({"combined_score": 0.75}, {"feedback": "Bottleneck (a guess): latency."})
    asked = process.next()
    assert isinstance(asked, ModelQuestion)
    assert asked.model == "m"
    assert asked.system == "You make kernels fast."
    assert PROGRAM in asked.messages[-1].content
    assert "0.7500" in asked.messages[-1].content
    assert "Bottleneck (a guess): latency." in asked.messages[-1].content
    process.answer("No change.")
    assert isinstance(process.next(), ModelQuestion), "an unusable answer leads to the next question"
    process.answer(edit("X", 1, 2))
    assert process.next() == PROGRAM.replace("X = 1", "X = 2")


@pytest.mark.slow
def test_equal_answers_give_equal_questions(process: OpenEvolveProcess) -> None:
    answers = [edit("XY"[number % 2], 1, 2 + number) for number in range(12)]
    other = OpenEvolveProcess(program=PROGRAM, system="You make kernels fast.", models={"m": 1.0}, seed=3)
    try:
        assert conversation(process, answers) == conversation(other, answers)
    finally:
        other.close()


def test_its_process_has_no_key_and_ends_with_its_children(process: OpenEvolveProcess) -> None:
    process.next()
    process.score({"combined_score": 1.0}, {})
    process.next()  # now there is a worker, too
    pids = [
        int(entry) for entry in os.listdir("/proc") if entry.isdigit() and _group(int(entry)) == process._process.pid
    ]
    assert len(pids) >= 2
    for pid in pids:
        assert b"sk-secret" not in Path(f"/proc/{pid}/environ").read_bytes()
    folder = process._folder
    assert folder.exists()
    process.close()
    process.close()
    assert not folder.exists()
    waited = time.monotonic()
    while any(_group(pid) == process._process.pid for pid in pids):
        assert time.monotonic() - waited < 10
        time.sleep(0.01)


def test_it_ends_when_its_socket_closes(process: OpenEvolveProcess) -> None:
    """As when our process is killed."""
    process.next()
    process._pipe.close()
    assert process._process.wait(timeout=20) == -9


def test_another_thread_can_end_the_wait_for_a_question(process: OpenEvolveProcess) -> None:
    process.next()  # it waits for a score, and we wait for its next question
    threading.Timer(0.2, process.close).start()
    with pytest.raises(ProposerError, match="process has ended"):
        process.next()


def _group(pid: int) -> int | None:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if state[0] == "Z" else int(state[2])
