"""Answers of models are in the archive before anybody has them."""

import threading
from collections.abc import Sequence
from pathlib import Path

import pytest

from kbevolve.archive.store import Archive
from kbevolve.configs.errors import ProposerError
from kbevolve.configs.settings import LLMSettings
from kbevolve.evolve.llm.client import Message, Reply
from kbevolve.evolve.llm.rate_limit import Pace
from kbevolve.evolve.llm.reply_cache import KeptModel, keeping
from tests.evolve.doubles import open_run, settings

HELLO = [Message(role="user", content="hello")]


class Counting:
    """A model that never answers twice the same."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.closed = False

    def complete(self, system: str, messages: Sequence[Message], *, child: str = "") -> Reply:
        self.asked.append(child)
        if system == "broken":
            raise ProposerError("no answer")
        return Reply(text=f"answer {len(self.asked)} \ud800", model="m", prompt_tokens=3, truncated=True)

    def close(self) -> None:
        self.closed = True


def sit(path: Path, asked: Counting, run_id: str = "r1", **llm: object) -> KeptModel:
    archive = Archive(path)
    known = [summary.run for summary in archive.runs() if summary.run.id == run_id]
    run = known[0] if known else open_run(archive, settings(), run_id)
    made = keeping(lambda one, pace: asked, archive.replies(run))(
        LLMSettings.model_validate({"model": "m", **llm}), Pace()
    )
    assert isinstance(made, KeptModel)
    return made


def test_what_was_answered_is_not_asked_again_in_a_later_sitting(tmp_path: Path) -> None:
    model = Counting()
    first = sit(tmp_path / "a.db", model).complete("s", HELLO, child="g1/i0")
    assert sit(tmp_path / "a.db", model).complete("s", HELLO, child="g1/i0") == first
    assert first.text == "answer 1 \ud800"
    assert (first.prompt_tokens, first.truncated) == (3, True)
    assert model.asked == ["g1/i0"]


@pytest.mark.parametrize(
    ("system", "content", "child", "llm"),
    [
        ("other", "hello", "a", {}),
        ("s", "other", "a", {}),
        ("s", "hello", "b", {}),
        ("s", "hello", "a", {"model": "other"}),
        ("s", "hello", "a", {"temperature": 0.1}),
    ],
)
def test_another_request_is_asked(
    system: str, content: str, child: str, llm: dict[str, object], tmp_path: Path
) -> None:
    model = Counting()
    before = sit(tmp_path / "a.db", model).complete("s", HELLO, child="a")
    after = sit(tmp_path / "a.db", model, **llm).complete(system, [Message(role="user", content=content)], child=child)
    assert after != before


def test_another_run_asks_for_itself(tmp_path: Path) -> None:
    model = Counting()
    replies = {sit(tmp_path / "a.db", model, run_id).complete("s", HELLO, child="a").text for run_id in ("r1", "r2")}
    assert len(replies) == 2


def test_what_is_asked_for_nobody_is_asked_every_time(tmp_path: Path) -> None:
    model = Counting()
    kept = sit(tmp_path / "a.db", model)
    assert kept.complete("s", HELLO) != kept.complete("s", HELLO)


def test_no_answer_is_kept_of_a_request_that_failed(tmp_path: Path) -> None:
    model = Counting()
    kept = sit(tmp_path / "a.db", model)
    for _ in range(2):
        with pytest.raises(ProposerError):
            kept.complete("broken", HELLO, child="a")
    assert len(model.asked) == 2


def test_threads_share_it(tmp_path: Path) -> None:
    model = Counting()
    kept = sit(tmp_path / "a.db", model)
    threads = [
        threading.Thread(target=lambda name=name: kept.complete("s", HELLO, child=name))  # type: ignore[misc]
        for name in ("a", "b", "a", "c")
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    again = Counting()
    later = sit(tmp_path / "a.db", again)
    assert {later.complete("s", HELLO, child=name).model for name in ("a", "b", "c")} == {"m"}
    assert not again.asked


def test_closing_gives_up_its_requests_and_no_model_stays_none(tmp_path: Path) -> None:
    model = Counting()
    kept = sit(tmp_path / "a.db", model)
    kept.close()
    assert model.closed
    assert keeping(lambda one, pace: None, kept.replies)(LLMSettings(), Pace()) is None
