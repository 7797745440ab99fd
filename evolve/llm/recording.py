"""What a model answered, kept in a file, so that a run can be had again without the model.

A recording is a file of JSON lines. A line that begins a sitting says which models were asked and how; each of the
others is one request: its digest, for whom it was asked, and the reply. Prompts are in the archive; of addresses, keys
and the variables that hold them there is nothing.

A run asks again what it has asked before when its sitting was killed before the answer was in the archive. So a later
sitting's replies take the place of those that an earlier one had to the same request.
"""

import contextlib
import hashlib
import json
import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from threading import Lock
from types import TracebackType
from typing import Any, Self

from kbevolve.archive.jsonl import append_whole
from kbevolve.configs.errors import ProposerError, UsageError
from kbevolve.configs.settings import LLMSettings, Settings
from kbevolve.evolve.llm.client import LanguageModel, Message, Reply, build_language_model, end_requests
from kbevolve.evolve.llm.rate_limit import Pace

#: Makes the model that the settings of one name, None when they name none.
Maker = Callable[[LLMSettings, Pace], LanguageModel | None]

#: Version of the format.
VERSION = 1

#: How the lines begin, to tell one that was cut short from what is no recording.
_BEGINNINGS = (b'{"recording": ', b'{"digest": ')

#: What decides a request beside its text; the first line of a sitting holds it of all models.
_PARAMETERS = ("provider", "model", "temperature", "max_tokens")


def digest_of(settings: LLMSettings, system: str, messages: Sequence[Message], child: str) -> str:
    """What tells a request from others: the model and its parameters, the conversation, and for whom it is asked."""
    turns = [[message.role, message.content] for message in messages]
    asked = [[getattr(settings, name) for name in _PARAMETERS], system, turns, child]
    return hashlib.sha256(json.dumps(asked).encode("ascii")).hexdigest()[:32]


# ---- record ------------------------------------------------------------------------------------------------------


class Recording:
    """A recording that is being written. Safe to use from several threads of one process.

    A line is with the operating system when `add` returns, so that a run that is killed loses none. A last line that
    a kill cut short is taken off.

    Args:
        path: the file; it is made when it is missing.
        settings: the models that will be asked.
        more: whether to add to a recording that is there; else a file with anything in it is refused.

    Raises:
        UsageError: it cannot be opened, is there already, or is no recording.
    """

    def __init__(self, path: Path, settings: LLMSettings, *, more: bool) -> None:
        self.path = path
        self._sitting: str | None = _line({"recording": VERSION, "llm": _portable(settings)})
        self._lock = Lock()
        try:
            self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
            written = path.read_bytes()
        except OSError as error:
            raise UsageError(f"{path}: {error.strerror}; --record wants a file that you may write to") from None
        try:
            if written and not more:
                raise UsageError(f"{path} is there already; --replay it, or name another file to --record to")
            Recorded.from_bytes(path, written)
            os.ftruncate(self._file, written.rfind(b"\n") + 1)
        except BaseException:
            os.close(self._file)
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._lock:
            os.close(self._file)
            self._file = -1

    def add(self, digest: str, child: str, reply: Reply) -> None:
        """Write a request and its reply.

        Raises:
            ProposerError: the disk does not take it; the lines before it are kept.
        """
        with self._lock:
            if self._file < 0:
                return  # a request that outlived its run: nobody reads the answer
            text = (self._sitting or "") + _line({"digest": digest, "child": child, "reply": asdict(reply)})
            try:
                append_whole(self._file, text)
            except OSError as error:
                raise ProposerError(
                    f"{self.path}: {error.strerror}; make room, then `kbevolve resume --record {self.path}`"
                ) from None
            self._sitting = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorder:
    """A model whose answers are written down."""

    model: LanguageModel
    #: Its settings.
    settings: LLMSettings
    recording: Recording

    def complete(self, system: str, messages: Sequence[Message], *, child: str = "") -> Reply:
        """As `LanguageModel.complete`; the reply is in the recording before anybody has it."""
        reply = self.model.complete(system, messages, child=child)
        self.recording.add(digest_of(self.settings, system, messages, child), child, reply)
        return reply

    def close(self) -> None:
        """Give up all requests."""
        end_requests(self.model)


# ---- replay ------------------------------------------------------------------------------------------------------


@dataclass(slots=True, kw_only=True)
class Recorded:
    """What a recording holds. Safe to use from several threads."""

    path: Path
    #: The models that were asked, as settings `llm.NAME`; {} in an empty recording.
    llm: Mapping[str, Any]
    #: Digest of a request -> its replies, in the order in which they came.
    replies: Mapping[str, Sequence[Reply]]
    _given: Counter[str] = field(default_factory=Counter)
    _lock: Lock = field(default_factory=Lock)

    @classmethod
    def read(cls, path: Path) -> Self:
        """What is in a file.

        Raises:
            UsageError: it cannot be read, or is no recording.
        """
        try:
            return cls.from_bytes(path, path.read_bytes())
        except OSError as error:
            raise UsageError(f"{path}: {error.strerror}; --replay wants a file that --record has written") from None

    @classmethod
    def from_bytes(cls, path: Path, text: bytes) -> Self:
        """What is in the bytes of a file; a last line that was cut short is left out."""
        llm: Mapping[str, Any] = {}
        replies: dict[str, list[Reply]] = {}
        fresh: set[str] = set()
        *lines, torn = text.split(b"\n")
        if not any(torn.startswith(start) or start.startswith(torn) for start in _BEGINNINGS):
            lines.append(torn)
        for number, line in enumerate(lines, start=1):
            try:
                entry = json.loads(line)
                if "recording" in entry:
                    if entry["recording"] != VERSION:
                        raise UsageError(f"{path} is a recording of another kbevolve; record it again")
                    llm, fresh = entry["llm"], set()
                    continue
                digest, reply = entry["digest"], Reply(**entry["reply"])
            except (ValueError, TypeError, KeyError):
                raise UsageError(
                    f"{path}, line {number}, is no line of a recording; give one that --record wrote"
                ) from None
            if digest not in fresh:
                fresh.add(digest)
                replies[digest] = []
            replies[digest].append(reply)
        return cls(path=path, llm=llm, replies=replies)

    def settings_for(self, settings: LLMSettings) -> LLMSettings:
        """These settings if they name a model; else the models of the recording, asked as they were then."""
        if _names_model(settings):
            return settings
        try:
            return LLMSettings.model_validate(settings.model_dump() | dict(self.llm))
        except ValueError:
            raise UsageError(f"{self.path} is a recording of another kbevolve; record it again") from None

    def next(self, digest: str) -> Reply | None:
        """The next reply to a request; None when there is none or all of them were given."""
        with self._lock:
            replies = self.replies.get(digest, ())
            number = self._given[digest]
            self._given[digest] += 1
            return replies[number] if number < len(replies) else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Replayer:
    """Answers what a model answered before. It needs no endpoint, no key and no network."""

    #: The settings of the model that it stands for.
    settings: LLMSettings
    recorded: Recorded

    def complete(self, system: str, messages: Sequence[Message], *, child: str = "") -> Reply:
        """As `LanguageModel.complete`.

        Raises:
            ProposerError: this was not asked when the recording was made.
        """
        reply = self.recorded.next(digest_of(self.settings, system, messages, child))
        if reply is None:
            raise ProposerError(
                f"{self.recorded.path} has no answer to this request for a child ({child or 'not named'}): the run "
                "differs from the recorded one. Replay it with the same problem, seed and settings, and with the "
                "archive of the recorded run, for prompts quote measured times"
            )
        return reply


# ---- one or the other --------------------------------------------------------------------------------------------


@contextlib.contextmanager
def model_maker(
    settings: Settings, *, record: Path | None = None, replay: Recorded | None = None, more: bool = False
) -> Iterator[Maker]:
    """How the models of a run are made: so that their answers are recorded, from a recording, or as always.

    Args:
        settings: all settings.
        record: the file to record to; None records nothing.
        replay: the recording to answer from; None asks the models.
        more: whether `record` may hold a recording already, of the sittings before.

    Raises:
        UsageError: nothing would be recorded or replayed, or the file cannot be written.
    """
    if record and replay:
        raise UsageError("both --record and --replay: what comes from a recording is in a file already; give one")
    if (record or replay) and not (settings.proposer in ("auto", "llm", "ask") and _names_model(settings.llm)):
        option = "--record" if record else "--replay"
        raise UsageError(f"{option} is for runs with a model, and this one has none; add --model NAME")
    if replay is not None:
        yield lambda one, pace: Replayer(settings=one, recorded=replay)
    elif record is not None:
        with Recording(record, settings.llm, more=more) as recording:
            yield lambda one, pace: _recorded(build_language_model(one, pace), one, recording)
    else:
        yield build_language_model


def _recorded(model: LanguageModel | None, settings: LLMSettings, recording: Recording) -> LanguageModel | None:
    return model and Recorder(model=model, settings=settings, recording=recording)


def _names_model(settings: LLMSettings) -> bool:
    return bool(settings.model or settings.models or settings.provider != "openai")


def _portable(settings: LLMSettings) -> dict[str, Any]:
    """What a replay must know of the settings; nothing that says where the models are or how they are reached."""
    return settings.model_dump(
        mode="json",
        include={*_PARAMETERS, "models", "model_choice", "ideas_per_call"},
        exclude={"models": {"__all__": {"api_base", "api_key_variable"}}},
    )


def _line(entry: Mapping[str, Any]) -> str:
    # In ASCII: a reply may hold halves of surrogate pairs, and characters that some readers take for line ends.
    return json.dumps(entry, ensure_ascii=True) + "\n"
