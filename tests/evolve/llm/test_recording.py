"""A recorded run, replayed without its models: the same attempts, kernels, ideas, prompts and replies."""

import itertools
import json
import random
from collections.abc import Iterator
from contextlib import contextmanager
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
from kbevolve.evolve.llm.replies import Recording, cached, choose_models, recorded
from kbevolve.evolve.proposers.factory import build_proposers
from tests.evolve.doubles import KnownEvaluator, ScriptedModel, kernel, open_run, search
from tests.evolve.loopback import Request, play

KEY = "sk-secret-0123456789abcdef"
LLM = LLMSettings(model="m", temperature=0.5, max_tokens=512)


MODELS: list[dict[str, Any]] = [{"name": "large", "weight": 2}, {"name": "small"}]


def chosen(**llm: Any) -> Settings:
    search = {"generations": 4, "islands": 3, "migration_every": 2, "seed": 7, "lookahead": 1}
    return Settings.from_tree({"search": search, "llm": llm})


def written(path: Path, *digests: str, text: str = "x") -> Reply:
    """Write a run's replies of this text to a file; the reply."""
    reply = Reply(text=text, model="m-1", prompt_tokens=3, truncated=True)
    path.touch()
    with Archive(":memory:") as archive:
        replies = archive.replies(open_run(archive, chosen()))
        with recorded(path, LLM, replies):
            for digest in digests:
                replies.keep(digest, json.dumps(asdict(reply)))
    return reply


def recording_to(path: Path, *, more: bool = False) -> None:
    """Choose to record to a file."""
    choose_models(chosen(model="m"), record=path, replay=None, more=more)


# ---- the file ----------------------------------------------------------------------------------------------------


def test_replies_are_read_as_they_were_kept(tmp_path: Path) -> None:
    reply = written(tmp_path / "r", "a", text="é\r\n\ud800\u2028")
    assert Recording(tmp_path / "r").replies == {"a": reply}


def test_a_file_with_replies_gets_more_only_on_request(tmp_path: Path) -> None:
    first = written(tmp_path / "r", "a")
    with pytest.raises(UsageError, match="exists already"):
        recording_to(tmp_path / "r")
    recording_to(tmp_path / "r", more=True)
    second = written(tmp_path / "r", "b", text="y")
    assert Recording(tmp_path / "r").replies == {"a": first, "b": second}


def test_the_last_reply_counts_in_a_file_of_an_older_version(tmp_path: Path) -> None:
    line = '{"digest": "a", "child": "c", "reply": {"text": "%s", "model": "m"}}\n'
    (tmp_path / "r").write_text('{"recording": 1, "llm": {}}\n' + line % "old" + line % "new")
    assert Recording(tmp_path / "r").replies["a"].text == "new"


@pytest.mark.parametrize(
    "content",
    [b"hello", b"hello\n", b"[]\n", b"3\n", b"\xff\xfe\n", b'{"digest": "x"}\n', b'{"recording": 9}\n'],
)
def test_a_file_that_is_no_recording_is_refused_and_not_changed(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "r"
    path.write_bytes(content)
    for use in (Recording, lambda path: recording_to(path, more=True)):
        with pytest.raises(UsageError, match="recording"):
            use(path)
    assert path.read_bytes() == content


def test_files_that_cannot_be_opened_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="--replay needs"):
        Recording(tmp_path / "absent")
    with pytest.raises(UsageError, match="--record needs"):
        recording_to(tmp_path / "absent" / "r")


def test_a_file_that_cannot_be_written_is_an_error_and_keeps_what_it_has(tmp_path: Path) -> None:
    first = written(tmp_path / "r", "a")
    (tmp_path / "r.new").mkdir()
    with pytest.raises(ProposerError, match=r"make room, then `kbevolve resume --record .*`"):
        written(tmp_path / "r", "b")
    assert Recording(tmp_path / "r").replies == {"a": first}


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
        patch.setattr("kbevolve.evolve.llm.replies.build_language_model", make)
        yield made


def run_search(
    path: Path,
    settings: Settings,
    generations: int = 4,
    *,
    record: Path | None = None,
    replay: Path | None = None,
    more: bool = False,
) -> StopReason:
    search_settings = settings.search.model_copy(update={"generations": generations})
    settings, make = choose_models(
        settings.model_copy(update={"search": search_settings}), record=record, replay=replay, more=more
    )
    with Archive(path) as archive:
        run = archive.runs.get() if archive.runs.summaries() else open_run(archive, settings)
        replies = archive.replies(run)
        proposers = build_proposers(settings, cached(make, replies))
        with recorded(record, settings.llm, replies):
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
def recorded_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A recorded run of several models: ``run.db`` and ``run.jsonl``."""
    folder = tmp_path_factory.mktemp("recorded")
    with moody_models() as made:
        base = f"http://me:{KEY}@127.0.0.1:1/v1"
        small = {**MODELS[1], "api_base": base, "api_key_variable": "OPENAI_API_KEY"}
        settings = chosen(models=[MODELS[0], small], api_base=base)
        stopped = run_search(folder / "run.db", settings, record=folder / "run.jsonl")
        assert stopped is StopReason.GENERATIONS
        assert sum(len(model.requests) for model in made) > 12
    return folder


def replayed(recording: Path, archive: Path, settings: Settings) -> dict[str, Any]:
    run_search(archive, settings, replay=recording)
    return content(archive)


def test_a_replayed_run_is_the_recorded_one(recorded_run: Path, tmp_path: Path) -> None:
    before = content(recorded_run / "run.db")
    assert {birth.operator for birth in before["births"]} >= {Operator.REWRITE, Operator.REPAIR}
    assert {Verdict.WRONG, Verdict.CORRECT} <= set(before["verdicts"].values())
    assert replayed(recorded_run / "run.jsonl", tmp_path / "again.db", chosen(models=MODELS)) == before


def test_the_recording_knows_its_models(recorded_run: Path, tmp_path: Path) -> None:
    assert replayed(recorded_run / "run.jsonl", tmp_path / "again.db", chosen()) == content(recorded_run / "run.db")


def test_no_key_is_in_recording_or_archive(recorded_run: Path) -> None:
    files = [path for path in recorded_run.iterdir() if path.is_file()]
    assert {"run.db", "run.jsonl"} <= {path.name for path in files}
    for path in files:
        assert KEY.encode() not in path.read_bytes(), path
    assert "OPENAI_API_KEY" not in (recorded_run / "run.jsonl").read_text()
    assert "127.0.0.1" not in (recorded_run / "run.jsonl").read_text()


def test_another_run_than_the_recorded_one_is_refused(recorded_run: Path, tmp_path: Path) -> None:
    other = chosen(models=MODELS)
    other = other.model_copy(update={"search": other.search.model_copy(update={"seed": 8})})
    with pytest.raises(ProposerError, match=r"for a child \(\w+ of \w+.*the run differs from the recorded one"):
        replayed(recorded_run / "run.jsonl", tmp_path / "again.db", other)


def test_a_run_of_two_sessions_is_replayed_in_one(tmp_path: Path) -> None:
    with moody_models():
        for generations, more in ((2, False), (4, True)):
            run_search(
                tmp_path / "run.db", chosen(model="large"), generations, record=tmp_path / "run.jsonl", more=more
            )
    assert replayed(tmp_path / "run.jsonl", tmp_path / "again.db", chosen()) == content(tmp_path / "run.db")


@pytest.mark.parametrize(
    "settings", [chosen(), Settings.from_tree({"proposer": "tunables", "llm": {"model": "m"}})], ids=["none", "unused"]
)
def test_without_a_model_there_is_nothing_to_record(tmp_path: Path, settings: Settings) -> None:
    with pytest.raises(UsageError, match="--record is for runs with a model"):
        choose_models(settings, record=tmp_path / "r", replay=None)
    assert not (tmp_path / "r").exists()


def test_a_recording_is_not_recorded(recorded_run: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="give one"):
        choose_models(chosen(model="m"), record=tmp_path / "r", replay=recorded_run / "run.jsonl")
