"""Replies of models under the digest of their request: in the archive, and in the files of `--record` and `--replay`.

A request that has a reply in the archive is not sent again. So a killed run pays for no reply twice: its children ask
the same again, word for word, when it is resumed.

A recording is a file from which a run can be repeated without its models. It holds JSON lines. A header names the
models and their parameters; every other line is the digest of a request and its reply. Prompts are in the archive;
addresses, keys and the variables that hold keys are never in the file. It is written when a session ends.
"""

import hashlib
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from kbevolve.archive.conversations import Replies
from kbevolve.configs.errors import ProposerError, UsageError
from kbevolve.configs.settings import LLMSettings, Settings
from kbevolve.evolve.llm.client import LanguageModel, Message, ModelMaker, Reply, build_language_model, end_requests
from kbevolve.evolve.llm.rate_limit import RateLimit

#: Settings that a request depends on beside its text.
PARAMETERS = ("provider", "model", "temperature", "max_tokens")
#: Newer ones, which count where they have a value: without one a request is that of an older recording.
OPTIONAL = ("reasoning_effort",)
#: Version of the format.
VERSION = 1


def request_digest(settings: LLMSettings, system: str, messages: Sequence[Message], child: str) -> str:
    """Identifies a request: the model and its parameters, the conversation, and the child that asks."""
    turns = [[message.role, message.content] for message in messages]
    given = [value for name in OPTIONAL if (value := getattr(settings, name)) is not None]
    request = [[*(getattr(settings, name) for name in PARAMETERS), *given], system, turns, child]
    return hashlib.sha256(json.dumps(request).encode("ascii")).hexdigest()[:32]


def cached(make: ModelMaker, store: Replies) -> ModelMaker:
    """Makes the same models, with their replies in the archive."""

    def made(settings: LLMSettings, rate_limit: RateLimit) -> LanguageModel | None:
        model = make(settings, rate_limit)
        return model and CachedModel(model=model, settings=settings, store=store)

    return made


@dataclass(frozen=True, slots=True, kw_only=True)
class CachedModel:
    """A model that gets only requests without a stored reply."""

    model: LanguageModel
    #: Its settings.
    settings: LLMSettings
    store: Replies

    def complete(self, system: str, messages: Sequence[Message], *, child: str) -> Reply:
        """As `LanguageModel.complete`; the reply is stored before it is returned."""
        digest = request_digest(self.settings, system, messages, child)
        known = self.store.get(digest)
        if known is not None:
            return Reply(**json.loads(known))
        reply = self.model.complete(system, messages, child=child)
        # In ASCII: a reply may contain halves of surrogate pairs, and characters that some readers take for line ends.
        self.store.keep(digest, json.dumps(asdict(reply), ensure_ascii=True))
        return reply

    def close(self) -> None:
        """Cancel all requests."""
        end_requests(self.model)


class Recording:
    """The replies in a file.

    Raises:
        UsageError: the file cannot be read, or is no recording.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        #: Digest of a request -> its reply; the last one counts, because older versions could ask twice.
        self.replies: dict[str, Reply] = {}
        self._models: Mapping[str, Any] = {}
        try:
            lines = path.read_bytes().splitlines()
        except OSError as error:
            raise UsageError(f"{path}: {error.strerror}; --replay needs a file from --record") from None
        for number, line in enumerate(lines, start=1):
            try:
                entry = json.loads(line)
                if "recording" in entry:
                    if entry["recording"] != VERSION:
                        raise self._outdated()
                    self._models = entry["llm"]
                else:
                    self.replies[entry["digest"]] = Reply(**entry["reply"])
            except (ValueError, TypeError, KeyError):
                raise UsageError(
                    f"{path}, line {number}, is no line of a recording; give a file written by --record"
                ) from None

    def settings_for(self, settings: LLMSettings) -> LLMSettings:
        """These settings if they name a model; else the models of the recording, with their parameters."""
        if _names_model(settings):
            return settings
        try:
            return LLMSettings.model_validate(settings.model_dump() | dict(self._models))
        except ValueError:
            raise self._outdated() from None

    def model(self, settings: LLMSettings, rate_limit: RateLimit) -> LanguageModel:
        """Implements `ModelMaker`."""
        return ReplayedModel(self, settings)

    def _outdated(self) -> UsageError:
        return UsageError(f"{self.path} is a recording of another version of kbevolve; record it again")


@dataclass(frozen=True, slots=True)
class ReplayedModel:
    """A `LanguageModel` that answers from a recording."""

    recording: Recording
    settings: LLMSettings

    def complete(self, system: str, messages: Sequence[Message], *, child: str) -> Reply:
        """The recorded reply.

        Raises:
            ProposerError: there is none.
        """
        found = self.recording.replies.get(request_digest(self.settings, system, messages, child))
        if found is None:
            raise ProposerError(
                f"{self.recording.path} has no answer to this request for a child ({child}): the run differs from the "
                "recorded one. Replay it with the same problem, seed and settings, and with the archive of the "
                "recorded run, because prompts quote measured times"
            )
        return found


def choose_models(
    settings: Settings, *, record: Path | None, replay: Path | None, more: bool = False
) -> tuple[Settings, ModelMaker]:
    """How the models of a run are made: plain, or replaced by a recording; its models where the settings name none.

    Args:
        settings: all settings.
        record: the file that `recorded` will write; None for none.
        replay: the recording that answers; None asks the models.
        more: whether `record` may already hold replies of the run's earlier sessions.

    Raises:
        UsageError: there is nothing to record or replay, or a file cannot be used.
    """
    make: ModelMaker = build_language_model
    if record and replay:
        raise UsageError("both --record and --replay: replayed answers are in a file already; give one of them")
    if replay:
        recording = Recording(replay)
        make, models = recording.model, recording.settings_for(settings.llm)
        settings = settings.model_copy(update={"llm": models})
    if (record or replay) and not (settings.proposer in ("auto", "llm", "ask") and _names_model(settings.llm)):
        option = "--record" if record else "--replay"
        raise UsageError(f"{option} is for runs with a model, and this one has none; add --model NAME")
    if record:
        try:
            record.open("ab").close()
        except OSError as error:
            raise UsageError(f"{record}: {error.strerror}; --record needs a file that you may write to") from None
        if record.stat().st_size and not more:
            raise UsageError(f"{record} exists already; --replay it, or give --record another file")
        Recording(record)  # another file is not overwritten
    return settings, make


@contextmanager
def recorded(path: Path | None, settings: LLMSettings, replies: Replies) -> Iterator[None]:
    """Write the replies of a run to a file when its session ends, however it ends; None writes nothing.

    Raises:
        ProposerError: the file cannot be written.
    """
    try:
        yield
    finally:
        if path is not None:
            kept = {digest: asdict(reply) for digest, reply in Recording(path).replies.items()}
            kept |= {digest: json.loads(reply) for digest, reply in replies.all()}
            lines = [_header(settings), *({"digest": digest, "reply": reply} for digest, reply in kept.items())]
            new = path.with_name(f"{path.name}.new")
            try:
                new.write_text("".join(f"{json.dumps(line)}\n" for line in lines), encoding="ascii")
                os.replace(new, path)
            except OSError as error:
                raise ProposerError(
                    f"{path}: {error.strerror}; make room, then `kbevolve resume --record {path}`"
                ) from None


def _names_model(settings: LLMSettings) -> bool:
    return bool(settings.model or settings.models or settings.provider != "openai")


def _header(settings: LLMSettings) -> dict[str, Any]:
    """The header line: what a replay must know of the models, and not where they are or how they are reached."""
    models = settings.model_dump(
        mode="json",
        include={*PARAMETERS, *OPTIONAL, "models", "model_choice", "ideas_per_call"},
        exclude={"models": {"__all__": {"api_base", "api_key_variable"}}},
    )
    return {"recording": VERSION, "llm": models}
