"""A run recorded against a server and replayed without one: the same births, kernels, ideas, prompts and replies."""

import itertools
import json
import random
import socket
import threading
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from kbevolve.archive.records import Operator, StopReason, Verdict
from kbevolve.archive.store import Archive
from kbevolve.configs.errors import ProposerError, UsageError
from kbevolve.configs.settings import LLMSettings, Settings
from kbevolve.evolve.llm.client import Message, Reply
from kbevolve.evolve.llm.recording import Recorded, Recorder, Recording, Replayer, digest_of, model_maker
from kbevolve.evolve.proposers.base import Proposer
from kbevolve.evolve.proposers.factory import build_proposers
from tests.evolve.doubles import KnownEvaluator, kernel, open_run, search
from tests.evolve.loopback import Answer, Loopback, Request, completion, play

KEY = "sk-secret-0123456789abcdef"
HELLO = (Message(role="user", content="hello"),)
LLM = LLMSettings(model="m", temperature=0.5, max_tokens=512)


class Parrot:
    """Implements `LanguageModel`: numbers its answers."""

    def __init__(self) -> None:
        self.number = 0
        self.closed = False

    def complete(self, system: str, messages: Any, *, child: str = "") -> Reply:
        self.number += 1
        return Reply(text=f"answer {self.number}\r\n\ud800\u2028é", model="parrot-1", prompt_tokens=self.number)

    def close(self) -> None:
        self.closed = True


def record(path: Path, *children: str, more: bool = False, parrot: Parrot | None = None) -> list[Reply]:
    with Recording(path, LLM, more=more) as recording:
        recorder = Recorder(model=parrot or Parrot(), settings=LLM, recording=recording)
        return [recorder.complete("s", HELLO, child=child) for child in children]


def replayer(path: Path, settings: LLMSettings = LLM) -> Replayer:
    return Replayer(settings=settings, recorded=Recorded.read(path))


# ---- the file ----------------------------------------------------------------------------------------------------


def test_replies_come_back_as_they_were_in_order(tmp_path: Path) -> None:
    replies = record(tmp_path / "r", "a", "a", "b")
    replay = replayer(tmp_path / "r")
    assert replay.complete("s", HELLO, child="b") == replies[2]
    assert [replay.complete("s", HELLO, child="a") for _ in range(2)] == replies[:2]
    with pytest.raises(ProposerError, match=r"no answer to this request for a child \(a\): the run differs"):
        replay.complete("s", HELLO, child="a")


def test_every_field_of_a_reply_is_kept(tmp_path: Path) -> None:
    full = Reply(text="x", model="m-1", prompt_tokens=3, completion_tokens=4, truncated=True, refusal="no")
    with Recording(tmp_path / "r", LLM, more=False) as recording:
        recording.add(digest_of(LLM, "", HELLO, ""), "", full)
    assert replayer(tmp_path / "r").complete("", HELLO) == full
    assert all(value != Reply.__dataclass_fields__[name].default for name, value in asdict(full).items())


@pytest.mark.parametrize(
    "other",
    [
        {"settings": LLM.model_copy(update={"model": "n"})},
        {"settings": LLM.model_copy(update={"temperature": 0.6})},
        {"settings": LLM.model_copy(update={"max_tokens": 513})},
        {"system": "t"},
        {"messages": (Message(role="assistant", content="hello"),)},
        {"messages": (*HELLO, *HELLO)},
        {"child": "b"},
    ],
)
def test_another_request_has_another_digest(other: dict[str, Any]) -> None:
    facts: dict[str, Any] = {"settings": LLM, "system": "s", "messages": HELLO, "child": "a"}
    assert digest_of(**facts) != digest_of(**facts | other)


def test_where_and_how_patiently_a_model_is_asked_is_no_part_of_a_request() -> None:
    moved = LLM.model_copy(update={"api_base": "http://127.0.0.1:1/v1", "retries": 0, "timeout": 1.0, "parallel": 2})
    assert digest_of(moved, "s", HELLO, "a") == digest_of(LLM, "s", HELLO, "a")


def test_a_later_sitting_takes_the_place_of_an_earlier_one(tmp_path: Path) -> None:
    """A killed sitting had an answer that came into no archive; the run went on with another."""
    parrot = Parrot()
    first = record(tmp_path / "r", "a", "a", "b", parrot=parrot)
    second = record(tmp_path / "r", "a", more=True, parrot=parrot)
    replay = replayer(tmp_path / "r")
    assert replay.complete("s", HELLO, child="a") == second[0]
    assert replay.complete("s", HELLO, child="b") == first[2]
    with pytest.raises(ProposerError):
        replay.complete("s", HELLO, child="a")


def test_what_is_there_is_not_mixed_with_a_new_run(tmp_path: Path) -> None:
    record(tmp_path / "r", "a")
    with pytest.raises(UsageError, match="there already"):
        record(tmp_path / "r", "b")
    assert len(replayer(tmp_path / "r").recorded.replies) == 1


@pytest.mark.parametrize("cut", [1, 20, 90])
def test_a_line_that_was_cut_short_is_asked_again(tmp_path: Path, cut: int) -> None:
    path = tmp_path / "r"
    record(path, "a", "b")
    path.write_bytes(path.read_bytes()[:-cut])
    assert len(Recorded.read(path).replies) == 1
    (again,) = record(path, "b", more=True)
    assert replayer(path).complete("s", HELLO, child="b") == again
    assert len(Recorded.read(path).replies) == 2


@pytest.mark.parametrize("text", ["hello", "hello\n", "[]\n", "3\n", '{"digest": "x"}\n', '{"recording": 9}\n'])
def test_what_is_no_recording_is_refused_and_left_alone(tmp_path: Path, text: str) -> None:
    path = tmp_path / "r"
    path.write_text(text)
    for read in (Recorded.read, lambda file: Recording(file, LLM, more=True)):
        with pytest.raises(UsageError, match="recording"):
            read(path)
    assert path.read_text() == text


def test_files_that_cannot_be_opened_are_said(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="--replay wants"):
        Recorded.read(tmp_path / "absent")
    with pytest.raises(UsageError, match="--record wants"):
        Recording(tmp_path / "absent" / "r", LLM, more=False)


def test_threads_write_whole_lines(tmp_path: Path) -> None:
    with Recording(tmp_path / "r", LLM, more=False) as recording:
        recorder = Recorder(model=Parrot(), settings=LLM, recording=recording)

        def ask(child: int) -> None:
            for turn in range(20):
                recorder.complete("s" * 5000, HELLO, child=f"{child}/{turn}")

        threads = [threading.Thread(target=ask, args=(child,)) for child in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    lines = (tmp_path / "r").read_text().splitlines()
    assert len([json.loads(line) for line in lines]) == 1 + 4 * 20
    assert len(Recorded.read(tmp_path / "r").replies) == 4 * 20


def test_a_line_is_there_when_the_reply_is(tmp_path: Path) -> None:
    with Recording(tmp_path / "r", LLM, more=False) as recording:
        reply = Recorder(model=Parrot(), settings=LLM, recording=recording).complete("s", HELLO)
        assert replayer(tmp_path / "r").complete("s", HELLO) == reply, "a kill right now would lose it"


def test_a_full_disk_is_an_error_and_leaves_whole_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import os

    path, real = tmp_path / "r", os.write
    with Recording(path, LLM, more=False) as recording:
        recorder = Recorder(model=Parrot(), settings=LLM, recording=recording)
        recorder.complete("s", HELLO, child="a")
        calls = iter(
            (lambda file, text: real(file, text[:30]), lambda file, text: (_ for _ in ()).throw(OSError(28, "full")))
        )
        monkeypatch.setattr(os, "write", lambda file, text: next(calls)(file, text))
        with pytest.raises(ProposerError, match=r"make room, then `kbevolve resume --record .*`"):
            recorder.complete("s", HELLO, child="b")
        monkeypatch.undo()
        recorder.complete("s", HELLO, child="c")
    assert len(Recorded.read(path).replies) == 2


def test_closing_a_recorder_gives_up_its_requests(tmp_path: Path) -> None:
    parrot = Parrot()
    with Recording(tmp_path / "r", LLM, more=False) as recording:
        recorder = Recorder(model=parrot, settings=LLM, recording=recording)
        recorder.close()
    recorder.complete("s", HELLO)  # an answer that nobody waits for any more
    assert parrot.closed
    assert (tmp_path / "r").read_bytes() == b""


# ---- whole runs --------------------------------------------------------------------------------------------------


class Moody:
    """A server's model that never answers twice the same: ideas, kernels, wrong ones, prose."""

    def __init__(self) -> None:
        self.answers = itertools.count()

    def __call__(self, request: Request) -> Answer:
        if "JSON" in request.last:
            titles = [f"Idea {random.randrange(10**6)}" for _ in range(4)]
            ideas = [{"title": title, "mechanism": "m", "technique": "unrolling"} for title in titles]
            return Answer(body=completion(json.dumps(ideas)))
        number = next(self.answers)
        if number % 5 == 4:
            return Answer(body=completion(f"For the time {number} I had rather not."))
        if number % 3 == 0:
            child = kernel(UNROLL=random.choice((1, 2, 4, 8)), TILE=random.choice((8, 16, 32, 64)), WRONG=1)
            return Answer(body=completion(f"```python\n{child.source}```"))
        return play(request)


MODELS: list[dict[str, Any]] = [{"name": "large", "weight": 2}, {"name": "small"}]


def chosen(**llm: Any) -> Settings:
    search = {"generations": 4, "islands": 3, "migration_every": 2, "seed": 7, "lookahead": 1}
    return Settings.from_tree({"search": search, "llm": llm})


def breed(path: Path, settings: Settings, proposers: Mapping[Operator, Proposer], generations: int = 4) -> StopReason:
    settings = settings.model_copy(update={"search": settings.search.model_copy(update={"generations": generations})})
    with Archive(path) as archive:
        run = archive.run() if archive.runs() else open_run(archive, settings)
        return search(archive, run, settings, KnownEvaluator(), proposers=proposers, width=2).run()


def content(path: Path) -> dict[str, Any]:
    """Everything in an archive that is not about how long something took."""
    with Archive(path, create=False) as archive:
        run = archive.run()
        births = archive.births(run.id)
        return {
            "births": [replace(birth, seconds=0.0) for birth in births],
            "kernels": {birth.kernel: archive.kernel(birth.kernel).source for birth in births if birth.kernel},
            "ideas": archive.ideas(run.id),
            "verdicts": {name: found.verdict for name, found in archive.evaluations(run.id).items()},
        }


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A recorded run of several models: ``run.db`` and ``run.jsonl``; its server is gone."""
    folder = tmp_path_factory.mktemp("recorded")
    with pytest.MonkeyPatch.context() as patch, Loopback(otherwise=Moody()) as server:
        patch.setenv("no_proxy", "127.0.0.1")
        patch.setenv("OPENAI_API_KEY", KEY)
        base = f"http://me:{KEY}@{server.base.removeprefix('http://')}"
        small = {**MODELS[1], "api_base": base, "api_key_variable": "OPENAI_API_KEY"}
        settings = chosen(models=[MODELS[0], small], api_base=base)
        with model_maker(settings, record=folder / "run.jsonl") as make:
            assert breed(folder / "run.db", settings, build_proposers(settings, make)) is StopReason.GENERATIONS
        assert len(server.requests) > 12
    return folder


def replayed(recording: Path, archive: Path, settings: Settings) -> dict[str, Any]:
    source = Recorded.read(recording)
    settings = settings.model_copy(update={"llm": source.settings_for(settings.llm)})
    with model_maker(settings, replay=source) as make:
        breed(archive, settings, build_proposers(settings, make))
    return content(archive)


def test_a_replayed_run_is_the_recorded_one(recorded: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)

    def no_network(*_: Any) -> None:
        raise AssertionError("a replay opened a connection")

    monkeypatch.setattr(socket.socket, "connect", no_network)
    before = content(recorded / "run.db")
    assert {birth.operator for birth in before["births"]} >= {Operator.REWRITE, Operator.REPAIR}
    assert {Verdict.WRONG, Verdict.CORRECT} <= set(before["verdicts"].values())
    assert replayed(recorded / "run.jsonl", tmp_path / "again.db", chosen(models=MODELS)) == before


def test_the_recording_knows_its_models(recorded: Path, tmp_path: Path) -> None:
    assert replayed(recorded / "run.jsonl", tmp_path / "again.db", chosen()) == content(recorded / "run.db")


def test_no_key_is_in_recording_or_archive(recorded: Path) -> None:
    files = [path for path in recorded.iterdir() if path.is_file()]
    assert {"run.db", "run.jsonl"} <= {path.name for path in files}
    for path in files:
        assert KEY.encode() not in path.read_bytes(), path
    assert "OPENAI_API_KEY" not in (recorded / "run.jsonl").read_text()
    assert "127.0.0.1" not in (recorded / "run.jsonl").read_text()


def test_another_run_is_told_from_the_recorded_one(recorded: Path, tmp_path: Path) -> None:
    other = chosen(models=MODELS)
    other = other.model_copy(update={"search": other.search.model_copy(update={"seed": 8})})
    with pytest.raises(ProposerError, match=r"for a child \(\w+ of \w+.*the run differs from the recorded one"):
        replayed(recorded / "run.jsonl", tmp_path / "again.db", other)


def test_a_run_of_two_sittings_is_replayed_in_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with Loopback(otherwise=Moody()) as server:
        settings = chosen(model="large", api_base=server.base)
        for generations, more in ((2, False), (4, True)):
            with model_maker(settings, record=tmp_path / "run.jsonl", more=more) as make:
                breed(tmp_path / "run.db", settings, build_proposers(settings, make), generations)
    assert replayed(tmp_path / "run.jsonl", tmp_path / "again.db", chosen()) == content(tmp_path / "run.db")


def test_equal_requests_of_two_children_are_told_apart(tmp_path: Path) -> None:
    """Islands with the same parents may ask the same; their answers come in any order."""
    parrot = Parrot()
    record(tmp_path / "r", "crossing, 1", "crossing, 2", parrot=parrot)
    replay = replayer(tmp_path / "r")
    assert replay.complete("s", HELLO, child="crossing, 2").prompt_tokens == 2
    assert replay.complete("s", HELLO, child="crossing, 1").prompt_tokens == 1


@pytest.mark.parametrize(
    "settings", [chosen(), Settings.from_tree({"proposer": "tunables", "llm": {"model": "m"}})], ids=["none", "unused"]
)
def test_without_a_model_there_is_nothing_to_record(tmp_path: Path, settings: Settings) -> None:
    with (
        pytest.raises(UsageError, match="--record is for runs with a model"),
        model_maker(settings, record=tmp_path / "r"),
    ):
        pass
    assert not (tmp_path / "r").exists()


def test_a_recording_is_not_recorded(recorded: Path, tmp_path: Path) -> None:
    source = Recorded.read(recorded / "run.jsonl")
    with (
        pytest.raises(UsageError, match="give one"),
        model_maker(chosen(model="m"), record=tmp_path / "r", replay=source),
    ):
        pass
