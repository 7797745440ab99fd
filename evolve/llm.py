"""The seam to language models: what a proposer asks of one, and the only layer that repeats a failed request."""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random
from threading import Event
from typing import Protocol

from kbevolve.configs.errors import ProposerError, SettingsError
from kbevolve.configs.settings import LLMSettings
from kbevolve.evolve.transport import (
    ManualTransport,
    Message,
    OpenAITransport,
    ProgramTransport,
    Reply,
    Transient,
)

__all__ = ["LanguageModel", "Message", "PatientModel", "Reply", "build_language_model"]

#: Seconds before the first repetition; it doubles with each, up to the longest.
FIRST_WAIT = 1.0
LONGEST_WAIT = 30.0

#: Seconds of `Retry-After` that are waited for. An endpoint that asks for more (a daily quota) is better met by
#: stopping: the run is resumable.
PATIENCE = 300.0

#: Stands for the key of a local endpoint that wants none; the openai client insists on one.
NO_KEY = "none"


class LanguageModel(Protocol):
    """Answers a conversation.

    Safe to call from several threads. A poor, empty or cut answer is a `Reply`; `ProposerError` means that no
    answer can be had: the endpoint is unreachable after all retries, or refuses the key or the model.
    """

    def complete(self, system: str, messages: Sequence[Message]) -> Reply:
        """The next turn after `messages`, whose last one is the user's; blocks until it is there."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class PatientModel:
    """A transport whose transient failures are tried again, with exponential back-off and jitter."""

    #: One request.
    transport: Callable[[str, Sequence[Message]], Reply]
    #: Repetitions after the first try.
    retries: int
    #: Spreads the waits of many clients. It decides nothing that is recorded, so a replay may draw other waits.
    jitter: Random = field(default_factory=Random)
    #: Set when nobody waits for an answer any more; the transport watches it, too.
    over: Event = field(default_factory=Event, repr=False)
    #: Waits so many seconds; None waits on `over`.
    sleep: Callable[[float], object] | None = None

    def complete(self, system: str, messages: Sequence[Message]) -> Reply:
        """As `LanguageModel.complete`.

        Raises:
            ProposerError: all tries failed, or one failed in a way that no repetition mends.
        """
        for attempt in range(self.retries + 1):
            try:
                return self.transport(system, messages)
            except Transient as failure:
                if failure.wait is not None and failure.wait > PATIENCE:
                    raise ProposerError(
                        f"{failure}, and asks to wait {failure.wait:.0f} s; `kbevolve resume` after that"
                    ) from None
                if attempt == self.retries:
                    tries = "once" if attempt == 0 else f"{attempt + 1} times"
                    raise ProposerError(f"{failure}, tried {tries}; {failure.remedy}") from None
                sleep = self.over.wait if self.sleep is None else self.sleep
                sleep(self._wait(attempt, failure.wait))
            if self.over.is_set():
                raise ProposerError("the request was given up; `kbevolve resume` sends it again")
        raise AssertionError("unreachable: the last try returns or raises")

    def close(self) -> None:
        """Give up all requests and waits, in whatever thread they are; they end with `ProposerError`."""
        self.over.set()

    def _wait(self, attempt: int, asked: float | None) -> float:
        """Seconds until the next try: never less than the endpoint asks for, never all clients at once."""
        if asked is not None:
            return asked + self.jitter.uniform(0.0, 0.1 * asked)
        return min(LONGEST_WAIT, FIRST_WAIT * 2.0**attempt) * self.jitter.uniform(0.5, 1.0)


def build_language_model(settings: LLMSettings) -> LanguageModel | None:
    """The model that the settings name; None when they name none.

    The programs and the manual mode need no model name; an endpoint does.

    Raises:
        SettingsError: an endpoint without a model.
        ProposerError: the endpoint needs a key and there is none.
    """
    transport: OpenAITransport | ProgramTransport | ManualTransport
    over = Event()
    if settings.provider == "manual":
        transport = ManualTransport(settings=settings, over=over)
    elif settings.provider != "openai":
        transport = ProgramTransport(settings=settings, over=over)
    elif settings.model is not None:
        transport = OpenAITransport(settings=settings, key=_key(settings), over=over)
    elif settings.api_base is not None:
        raise SettingsError(f"llm.api_base = {settings.api_base!r} without a model; name one with --model NAME")
    else:
        return None
    return PatientModel(transport=transport, retries=settings.retries, over=over)


def _key(settings: LLMSettings) -> str:
    variable = settings.api_key_variable
    key = os.environ.get(variable, "").strip()
    if not key and settings.api_base is None:
        raise ProposerError(
            f"no key for model {settings.model!r}: the environment variable {variable} is empty; export {variable}=…, "
            "or give --api-base for an endpoint that needs none"
        )
    if not (key.isascii() and key.isprintable()):
        raise ProposerError(f"the key in {variable} holds characters that no key has; copy it again")
    return key or NO_KEY
