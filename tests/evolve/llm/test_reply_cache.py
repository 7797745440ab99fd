"""Replies are stored before they are used, and a request with a stored reply is not sent."""

import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from kbevolve.archive.store import Archive
from kbevolve.configs.errors import ProposerError
from kbevolve.configs.settings import LLMSettings
from kbevolve.evolve.llm.client import LanguageModel, Message, Reply, end_requests
from kbevolve.evolve.llm.rate_limit import RateLimit
from kbevolve.evolve.llm.replies import cached, request_digest
from tests.evolve.doubles import open_run, settings

HELLO = (Message(role="user", content="hello"),)
LLM = LLMSettings(model="m", temperature=0.5, max_tokens=512)


class Counting:
    """A model whose answers always differ."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.closed = False

    def complete(self, system: str, messages: Sequence[Message], *, child: str) -> Reply:
        self.asked.append(child)
        if system == "broken":
            raise ProposerError("no answer")
        return Reply(text=f"answer {len(self.asked)} \ud800", model="m", prompt_tokens=3, truncated=True)

    def close(self) -> None:
        self.closed = True


def session(path: Path, model: Counting, run_id: str = "r1") -> LanguageModel:
    """The model in a session of a run."""
    archive = Archive(path)
    known = [summary.run for summary in archive.runs.summaries() if summary.run.id == run_id]
    run = known[0] if known else open_run(archive, settings(), run_id)
    made = cached(lambda one, rate_limit: model, archive.replies(run))(LLM, RateLimit())
    assert made is not None
    return made


def test_an_answered_request_is_not_sent_again_in_a_later_session(tmp_path: Path) -> None:
    model = Counting()
    first = session(tmp_path / "a.db", model).complete("s", HELLO, child="g1/i0")
    assert session(tmp_path / "a.db", model).complete("s", HELLO, child="g1/i0") == first
    assert first == Reply(text="answer 1 \ud800", model="m", prompt_tokens=3, truncated=True)
    assert model.asked == ["g1/i0"]


@pytest.mark.parametrize(
    "other",
    [
        {"settings": LLM.model_copy(update={"model": "n"})},
        {"settings": LLM.model_copy(update={"temperature": 0.6})},
        {"settings": LLM.model_copy(update={"max_tokens": 513})},
        {"settings": LLM.model_copy(update={"reasoning_effort": "low"})},
        {"system": "t"},
        {"messages": (Message(role="assistant", content="hello"),)},
        {"messages": (*HELLO, *HELLO)},
        {"child": "b"},
    ],
)
def test_another_request_has_another_digest(other: dict[str, Any]) -> None:
    request: dict[str, Any] = {"settings": LLM, "system": "s", "messages": HELLO, "child": "a"}
    assert request_digest(**request) != request_digest(**request | other)


def test_the_digest_does_not_depend_on_how_a_model_is_reached() -> None:
    moved = LLM.model_copy(update={"api_base": "http://127.0.0.1:1/v1", "retries": 0, "timeout": 1.0, "parallel": 2})
    assert request_digest(moved, "s", HELLO, "a") == request_digest(LLM, "s", HELLO, "a")


def test_another_run_asks_for_itself(tmp_path: Path) -> None:
    model = Counting()
    texts = {session(tmp_path / "a.db", model, run).complete("s", HELLO, child="a").text for run in ("r1", "r2")}
    assert len(texts) == 2


def test_a_failed_request_stores_nothing(tmp_path: Path) -> None:
    model = Counting()
    asked = session(tmp_path / "a.db", model)
    for _ in range(2):
        with pytest.raises(ProposerError):
            asked.complete("broken", HELLO, child="a")
    assert len(model.asked) == 2


def test_threads_share_a_store(tmp_path: Path) -> None:
    asked = session(tmp_path / "a.db", Counting())
    threads = [
        threading.Thread(target=asked.complete, args=("s", HELLO), kwargs={"child": name}) for name in ("a", "b", "a")
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    again = Counting()
    later = session(tmp_path / "a.db", again)
    assert {later.complete("s", HELLO, child=name).model for name in ("a", "b")} == {"m"}
    assert not again.asked


def test_closing_cancels_the_requests(tmp_path: Path) -> None:
    model = Counting()
    end_requests(session(tmp_path / "a.db", model))
    assert model.closed


def test_no_model_stays_none() -> None:
    with Archive(":memory:") as archive:
        store = archive.replies(open_run(archive, settings()))
        assert cached(lambda one, rate_limit: None, store)(LLMSettings(), RateLimit()) is None
