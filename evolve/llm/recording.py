"""`--record` and `--replay`: a file of replies, from which a run can be repeated without its models.

The file holds JSON lines. A header names the models and their parameters; every other line is the digest of a request
and its reply. Prompts are in the archive; addresses, keys and the variables that hold keys are never in the file.
"""

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import Any

from kbevolve.archive.jsonl import append_whole
from kbevolve.configs.errors import ProposerError, UsageError
from kbevolve.configs.settings import LLMSettings, Settings
from kbevolve.evolve.llm.client import Message, ModelMaker, Reply, build_language_model
from kbevolve.evolve.llm.reply_cache import PARAMETERS, cached

#: Version of the format.
VERSION = 1

#: How lines begin: this distinguishes a line that a kill cut short from a file that is no recording.
_BEGINNINGS = (b'{"recording": ', b'{"digest": ')


class Recording:
    """Implements `ReplyStore` with a file.

    `keep` returns when the operating system has the line, so a killed run loses none. A last line that a kill cut short
    is ignored, and removed before anything is added.

    Args:
        path: the file; created when it is missing and `record` is given.
        record: the models whose replies are added; None only reads.
        more: whether a file that has replies may get more.

    Raises:
        UsageError: the file cannot be opened, is not empty (without `more`), or is no recording.
    """

    def __init__(self, path: Path, *, record: LLMSettings | None = None, more: bool = False) -> None:
        self.path = path
        self._models: Mapping[str, Any] = {}
        self._replies: dict[str, str] = {}
        self._lock = Lock()
        self._file: int | None = None
        self._header = _header(record) if record else ""
        try:
            if record:
                self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
            text = path.read_bytes()
            if record and text and not more:
                raise UsageError(f"{path} exists already; --replay it, or give --record another file")
            self._read(text)
            if self._file is not None:
                os.ftruncate(self._file, text.rfind(b"\n") + 1)
        except OSError as error:
            self.close()
            needs = "--record needs a file that you may write to" if record else "--replay needs a file from --record"
            raise UsageError(f"{path}: {error.strerror}; {needs}") from None
        except BaseException:
            self.close()
            raise

    def get(self, digest: str) -> str | None:
        """As `ReplyStore.get`."""
        return self._replies.get(digest)

    def keep(self, digest: str, reply: str) -> None:
        """As `ReplyStore.keep`; a reply that arrives after `close` is dropped, because its run has ended.

        Raises:
            ProposerError: the disk does not take the line; the lines before it are intact.
        """
        with self._lock:
            if self._file is None or digest in self._replies:
                return
            try:
                append_whole(self._file, f'{self._header}{{"digest": "{digest}", "reply": {reply}}}\n')
            except OSError as error:
                raise ProposerError(
                    f"{self.path}: {error.strerror}; make room, then `kbevolve resume --record {self.path}`"
                ) from None
            self._header, self._replies[digest] = "", reply

    def settings_for(self, settings: LLMSettings) -> LLMSettings:
        """These settings if they name a model; else the models of the recording, with their parameters."""
        if _names_model(settings):
            return settings
        try:
            return LLMSettings.model_validate(settings.model_dump() | dict(self._models))
        except ValueError:
            raise self._outdated() from None

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            if self._file is not None:
                os.close(self._file)
            self._file = None

    def _read(self, text: bytes) -> None:
        """Take in the file's bytes. The last reply of a digest counts: older versions could ask twice."""
        *lines, rest = text.split(b"\n")
        if not any(rest.startswith(start) or start.startswith(rest) for start in _BEGINNINGS):
            lines.append(rest)
        for number, line in enumerate(lines, start=1):
            try:
                entry = json.loads(line)
                if "recording" in entry:
                    if entry["recording"] != VERSION:
                        raise self._outdated()
                    self._models = entry["llm"]
                else:
                    Reply(**entry["reply"])
                    self._replies[entry["digest"]] = json.dumps(entry["reply"])
            except (ValueError, TypeError, KeyError):
                raise UsageError(
                    f"{self.path}, line {number}, is no line of a recording; give a file written by --record"
                ) from None

    def _outdated(self) -> UsageError:
        return UsageError(f"{self.path} is a recording of another version of kbevolve; record it again")


@dataclass(frozen=True, slots=True)
class Unrecorded:
    """The `LanguageModel` behind a replayed recording: a request that reaches it has no recorded reply."""

    recording: Path

    def complete(self, system: str, messages: Sequence[Message], *, child: str) -> Reply:
        """Raises ProposerError."""
        raise ProposerError(
            f"{self.recording} has no answer to this request for a child ({child}): the run differs from the recorded "
            "one. Replay it with the same problem, seed and settings, and with the archive of the recorded run, "
            "because prompts quote measured times"
        )


@contextmanager
def model_maker(
    settings: Settings, *, record: Path | None = None, replay: Recording | None = None, more: bool = False
) -> Iterator[ModelMaker]:
    """How the models of a run are made: plain, recorded to a file, or replaced by a recording.

    Args:
        settings: all settings.
        record: the file to record to; None records nothing.
        replay: the recording that answers; None asks the models.
        more: whether `record` may already hold replies of the run's earlier sessions.

    Raises:
        UsageError: there is nothing to record or replay, or the file cannot be written.
    """
    if record and replay:
        raise UsageError("both --record and --replay: replayed answers are in a file already; give one of them")
    if (record or replay) and not (settings.proposer in ("auto", "llm", "ask") and _names_model(settings.llm)):
        option = "--record" if record else "--replay"
        raise UsageError(f"{option} is for runs with a model, and this one has none; add --model NAME")
    if replay is not None:
        yield cached(lambda one, rate_limit: Unrecorded(replay.path), replay)
    elif record is not None:
        with closing(Recording(record, record=settings.llm, more=more)) as recording:
            yield cached(build_language_model, recording)
    else:
        yield build_language_model


def _names_model(settings: LLMSettings) -> bool:
    return bool(settings.model or settings.models or settings.provider != "openai")


def _header(settings: LLMSettings) -> str:
    """The header line: what a replay must know of the models, and not where they are or how they are reached."""
    models = settings.model_dump(
        mode="json",
        include={*PARAMETERS, "models", "model_choice", "ideas_per_call"},
        exclude={"models": {"__all__": {"api_base", "api_key_variable"}}},
    )
    return json.dumps({"recording": VERSION, "llm": models}) + "\n"
