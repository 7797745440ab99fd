"""The seam to language models: what a proposer asks of one, and the only layer that repeats a failed request."""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random
from threading import Event
from typing import Protocol

from kbevolve.configs.errors import ProposerError, SettingsError
from kbevolve.configs.settings import LLMSettings
from kbevolve.evolve.llm.rate_limit import Pace, pace_of
from kbevolve.evolve.llm.transports import (
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

#: Seconds before the first repetition when the endpoint has had too many requests and does not say for how long: limits
#: are by the minute, and the five tries of the default settings then take 55 to 110 s.
WAIT_WHEN_TOO_MANY = 20.0

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

    def complete(self, system: str, messages: Sequence[Message], *, child: str = "") -> Reply:
        """The next turn after `messages`, whose last one is the user's; blocks until it is there.

        `child` says for whom it is asked. An answer does not depend on it; a recording tells by it the equal requests
        of two children apart, which come in any order.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class PatientModel:
    """A transport whose transient failures are tried again, with exponential back-off and jitter."""

    #: One request.
    transport: Callable[[str, Sequence[Message]], Reply]
    #: Repetitions after the first try.
    retries: int
    #: Gives every try its turn.
    pace: Pace = field(default_factory=Pace, repr=False)
    #: Spreads the waits of many clients. It decides nothing that is recorded, so a replay may draw other waits.
    jitter: Random = field(default_factory=Random)
    #: Set when nobody waits for an answer any more; the transport watches it, too.
    over: Event = field(default_factory=Event, repr=False)
    #: Waits so many seconds; None waits on `over`.
    sleep: Callable[[float], object] | None = None

    def complete(self, system: str, messages: Sequence[Message], *, child: str = "") -> Reply:
        """As `LanguageModel.complete`.

        Raises:
            ProposerError: all tries failed, or one failed in a way that no repetition mends.
        """
        for attempt in range(self.retries + 1):
            try:
                with self.pace.turn(self.over, self.sleep):
                    if self.over.is_set():
                        raise ProposerError("the request was given up; `kbevolve resume` sends it again")
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
                sleep(self._wait(attempt, failure))
        raise AssertionError("unreachable: the last try returns or raises")

    def close(self) -> None:
        """Give up all requests and waits, in whatever thread they are; they end with `ProposerError`."""
        self.over.set()

    def _wait(self, attempt: int, failure: Transient) -> float:
        """Seconds until the next try: never less than the endpoint asks for, never all clients at once.

        Nor less than our own back-off: an endpoint that says "at once", or a date that has passed, would have all
        tries within a moment.
        """
        asked = failure.wait
        first = WAIT_WHEN_TOO_MANY if failure.too_many and asked is None else FIRST_WAIT
        own = min(LONGEST_WAIT, first * 2.0**attempt) * self.jitter.uniform(0.5, 1.0)
        return own if asked is None else max(own, asked * self.jitter.uniform(1.0, 1.1))


def build_language_model(settings: LLMSettings, pace: Pace | None = None) -> LanguageModel | None:
    """The one model that the settings name (see `LLMSettings.each`); None when they name none.

    The programs and the manual mode need no model name; an endpoint does. `pace` is shared by several models; None
    for one of its own.

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
        raise SettingsError("llm.api_base names an endpoint, but there is no model; name one with --model NAME")
    else:
        return None
    return PatientModel(transport=transport, retries=settings.retries, pace=pace or pace_of(settings), over=over)


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


def end_requests(one: object) -> None:
    """End the requests that a proposer or a language model has under way, if it is one that has such.

    So an interrupted run does not wait for answers that nobody will read.
    """
    close = getattr(one, "close", None)
    if close is not None:
        close()
