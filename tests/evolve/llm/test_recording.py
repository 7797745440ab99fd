"""A recorded run, replayed without its models: the same attempts, kernels, ideas, prompts and replies."""

import itertools
import json
import os
import random
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from kbevolve.archive.records import Operator, StopReason, Verdict
from kbevolve.archive.store import Archive
from kbevolve.configs.errors import ProposerError, UsageError
from kbevolve.configs.settings import LLMSettings, Settings
from kbevolve.evolve.llm.client import Reply
from kbevolve.evolve.llm.rate_limit import RateLimit
from kbevolve.evolve.llm.recording import Recording, model_maker
from kbevolve.evolve.proposers.base import Proposer
from kbevolve.evolve.proposers.factory import build_proposers
from tests.evolve.doubles import KnownEvaluator, ScriptedModel, kernel, open_run, search
from tests.evolve.loopback import Request, play

KEY = "sk-secret-0123456789abcdef"
LLM = LLMSettings(model="m", temperature=0.5, max_tokens=512)


def record(path: Path, *digests: str, more: bool = False, text: str = "x") -> str:
    """Keep a reply of this text for each digest; the reply as it is kept."""
    reply = json.dumps(asdict(Reply(text=text, model="m-1", prompt_tokens=3, truncated=True)))
    with closing(Recording(path, record=LLM, more=more)) as recording:
        for digest in digests:
            recording.keep(digest, reply)
    return reply


# ---- the file ----------------------------------------------------------------------------------------------------


def test_replies_are_read_as_they_were_kept(tmp_path: Path) -> None:
    reply = record(tmp_path / "r", "a", text="é\r\n\ud800\u2028")
    assert Recording(tmp_path / "r").get("a") == reply
    assert Recording(tmp_path / "r").get("b") is None


def test_a_file_with_replies_gets_more_only_on_request(tmp_path: Path) -> None:
    first = record(tmp_path / "r", "a")
    with pytest.raises(UsageError, match="exists already"):
        record(tmp_path / "r", "b")
    second = record(tmp_path / "r", "a", "b", more=True, text="y")
    recording = Recording(tmp_path / "r")
    assert (recording.get("a"), recording.get("b")) == (first, second), "a request is not asked twice"


def test_the_last_reply_counts_in_a_file_of_an_older_version(tmp_path: Path) -> None:
    line = '{"digest": "a", "child": "c", "reply": {"text": "%s", "model": "m"}}\n'
    (tmp_path / "r").write_text('{"recording": 1, "llm": {}}\n' + line % "old" + line % "new")
    assert json.loads(Recording(tmp_path / "r").get("a") or "")["text"] == "new"


@pytest.mark.parametrize("cut", [1, 20, 90])
def test_a_last_line_that_was_cut_short_is_replaced(tmp_path: Path, cut: int) -> None:
    path = tmp_path / "r"
    record(path, "a", "b")
    path.write_bytes(path.read_bytes()[:-cut])
    assert [Recording(path).get(digest) is not None for digest in "ab"] == [True, False]
    again = record(path, "b", more=True, text="y")
    assert Recording(path).get("b") == again


@pytest.mark.parametrize(
    "content",
    [b"hello", b"hello\n", b"[]\n", b"3\n", b"\xff\xfe\n", b'{"digest": "x"}\n', b'{"recording": 9}\n'],
)
def test_a_file_that_is_no_recording_is_refused_and_not_changed(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "r"
    path.write_bytes(content)
    for record in (None, LLM):
        with pytest.raises(UsageError, match="recording"):
            Recording(path, record=record, more=True)
    assert path.read_bytes() == content


def test_files_that_cannot_be_opened_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="--replay needs"):
        Recording(tmp_path / "absent")
    with pytest.raises(UsageError, match="--record needs"):
        Recording(tmp_path / "absent" / "r", record=LLM)


def test_a_line_is_in_the_file_as_soon_as_it_is_kept(tmp_path: Path) -> None:
    with closing(Recording(tmp_path / "r", record=LLM)) as recording:
        recording.keep("a", '{"text": "x", "model": "m"}')
        assert Recording(tmp_path / "r").get("a"), "a kill right now would lose it"


def test_a_full_disk_is_an_error_and_leaves_whole_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, real, reply = tmp_path / "r", os.write, '{"text": "x", "model": "m"}'
    with closing(Recording(path, record=LLM)) as recording:
        recording.keep("a", reply)
        calls = iter(
            (lambda file, text: real(file, text[:30]), lambda file, text: (_ for _ in ()).throw(OSError(28, "full")))
        )
        monkeypatch.setattr(os, "write", lambda file, text: next(calls)(file, text))
        with pytest.raises(ProposerError, match=r"make room, then `kbevolve resume --record .*`"):
            recording.keep("b", reply)
        monkeypatch.undo()
        recording.keep("c", reply)
    assert [Recording(path).get(digest) is not None for digest in "abc"] == [True, False, True]


def test_a_reply_after_the_end_of_the_run_is_dropped(tmp_path: Path) -> None:
    recording = Recording(tmp_path / "r", record=LLM)
    recording.close()
    recording.keep("a", "{}")
    assert (tmp_path / "r").read_bytes() == b""


# ---- whole runs --------------------------------------------------------------------------------------------------


class Moody:
    """Writes answers that always differ: ideas, kernels, wrong ones, prose."""

    def __init__(self) -> None:
        self.numbers = itertools.count()

    def __call__(self, request: Request) -> str:
        if "JSON" in request.last:
            titles = [f"Idea {random.randrange(10**6)}" for _ in range(4)]
            return json.dumps([{"title": title, "mechanism": "m", "technique": "unrolling"} for title in titles])
        number = next(self.numbers)
        if number % 5 == 4:
            return f"No kernel this time: {number}."
        if number % 3 == 0:
            child = kernel(UNROLL=random.choice((1, 2, 4, 8)), TILE=random.choice((8, 16, 32, 64)), WRONG=1)
            return f"```python\n{child.source}```"
        return str(json.loads(play(request).body)["choices"][0]["message"]["content"])


@contextmanager
def moody_models() -> Iterator[list[ScriptedModel]]:
    """Every model of the settings is a `Moody` one; they are listed."""
    made: list[ScriptedModel] = []
    answer = Moody()

    def make(settings: LLMSettings, rate_limit: RateLimit) -> ScriptedModel:
        made.append(ScriptedModel(answer))
        return made[-1]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("kbevolve.evolve.llm.recording.build_language_model", make)
        yield made


MODELS: list[dict[str, Any]] = [{"name": "large", "weight": 2}, {"name": "small"}]


def chosen(**llm: Any) -> Settings:
    search = {"generations": 4, "islands": 3, "migration_every": 2, "seed": 7, "lookahead": 1}
    return Settings.from_tree({"search": search, "llm": llm})


def run_search(
    path: Path, settings: Settings, proposers: Mapping[Operator, Proposer], generations: int = 4
) -> StopReason:
    settings = settings.model_copy(update={"search": settings.search.model_copy(update={"generations": generations})})
    with Archive(path) as archive:
        run = archive.runs.get() if archive.runs.summaries() else open_run(archive, settings)
        return search(archive, run, settings, KnownEvaluator(), proposers=proposers, width=2).run()


def content(path: Path) -> dict[str, Any]:
    """Everything in an archive except durations."""
    with Archive(path, create=False) as archive:
        run = archive.runs.get()
        births = archive.runs.births(run.id)
        return {
            "births": [replace(birth, seconds=0.0) for birth in births],
            "kernels": {birth.kernel: archive.kernels.get(birth.kernel).source for birth in births if birth.kernel},
            "ideas": archive.runs.ideas(run.id),
            "verdicts": {name: found.verdict for name, found in archive.runs.evaluations(run.id).items()},
        }


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A recorded run of several models: ``run.db`` and ``run.jsonl``."""
    folder = tmp_path_factory.mktemp("recorded")
    with moody_models() as made:
        base = f"http://me:{KEY}@127.0.0.1:1/v1"
        small = {**MODELS[1], "api_base": base, "api_key_variable": "OPENAI_API_KEY"}
        settings = chosen(models=[MODELS[0], small], api_base=base)
        with model_maker(settings, record=folder / "run.jsonl") as make:
            assert run_search(folder / "run.db", settings, build_proposers(settings, make)) is StopReason.GENERATIONS
        assert sum(len(model.requests) for model in made) > 12
    return folder


def replayed(recording: Path, archive: Path, settings: Settings) -> dict[str, Any]:
    source = Recording(recording)
    settings = settings.model_copy(update={"llm": source.settings_for(settings.llm)})
    with model_maker(settings, replay=source) as make:
        run_search(archive, settings, build_proposers(settings, make))
    return content(archive)


def test_a_replayed_run_is_the_recorded_one(recorded: Path, tmp_path: Path) -> None:
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


def test_another_run_than_the_recorded_one_is_refused(recorded: Path, tmp_path: Path) -> None:
    other = chosen(models=MODELS)
    other = other.model_copy(update={"search": other.search.model_copy(update={"seed": 8})})
    with pytest.raises(ProposerError, match=r"for a child \(\w+ of \w+.*the run differs from the recorded one"):
        replayed(recorded / "run.jsonl", tmp_path / "again.db", other)


def test_a_run_of_two_sessions_is_replayed_in_one(tmp_path: Path) -> None:
    with moody_models():
        settings = chosen(model="large")
        for generations, more in ((2, False), (4, True)):
            with model_maker(settings, record=tmp_path / "run.jsonl", more=more) as make:
                run_search(tmp_path / "run.db", settings, build_proposers(settings, make), generations)
    assert replayed(tmp_path / "run.jsonl", tmp_path / "again.db", chosen()) == content(tmp_path / "run.db")


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
    source = Recording(recorded / "run.jsonl")
    with (
        pytest.raises(UsageError, match="give one"),
        model_maker(chosen(model="m"), record=tmp_path / "r", replay=source),
    ):
        pass
