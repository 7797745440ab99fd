"""A language model as a proposer sees it, and the only place that repeats a failed request."""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random
from threading import Event
from typing import Protocol

from kbevolve.configs.errors import ProposerError, SettingsError
from kbevolve.configs.settings import LLMSettings
from kbevolve.evolve.llm.connection import CANCELLED
from kbevolve.evolve.llm.program_transport import ProgramTransport
from kbevolve.evolve.llm.rate_limit import RateLimit
from kbevolve.evolve.llm.transports import (
    Message,
    OpenAITransport,
    Reply,
    TransientError,
)

__all__ = ["LanguageModel", "Message", "ModelMaker", "Reply", "RetryingModel", "build_language_model", "end_requests"]

#: Seconds before the first retry; they double with each one, up to the longest.
FIRST_WAIT = 1.0
LONGEST_WAIT = 30.0

#: Seconds before the first retry after "too many requests" without `Retry-After`: limits are per minute, and the five
#: tries of the default settings then take 55 to 110 s.
FIRST_WAIT_TOO_MANY = 20.0

#: Longest `Retry-After` that is obeyed, seconds. A longer one (a daily quota) stops the run, which can be resumed.
LONGEST_RETRY_AFTER = 300.0

#: The key sent to a local endpoint that needs none; the openai client insists on one.
NO_KEY = "none"


class LanguageModel(Protocol):
    """Answers a conversation. Thread-safe.

    A poor, empty or truncated answer is a `Reply`. `ProposerError` means that no answer can be had: the endpoint is
    unreachable after all retries, or refuses the key or the model.
    """

    def complete(self, system: str, messages: Sequence[Message], *, child: str) -> Reply:
        """The next turn after `messages`, whose last one is the user's; blocks until it arrives.

        `child` names the child that asks. The answer does not depend on it; it distinguishes equal requests of two
        children, which may arrive in any order.
        """


#: Makes the model that the settings of one name; None when they name none.
ModelMaker = Callable[[LLMSettings, RateLimit], LanguageModel | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryingModel:
    """Sends requests through a transport and repeats transient failures, with exponential back-off and jitter."""

    #: Sends one request.
    transport: Callable[[str, Sequence[Message]], Reply]
    #: Retries after the first try.
    retries: int
    rate_limit: RateLimit = field(default_factory=RateLimit, repr=False)
    #: Spreads the waits of many clients. Nothing recorded depends on it, so a replay may draw other waits.
    jitter: Random = field(default_factory=Random)
    #: Set when the answers are no longer wanted; the transport watches it, too.
    cancelled: Event = field(default_factory=Event, repr=False)

    def complete(self, system: str, messages: Sequence[Message], *, child: str = "") -> Reply:
        """As `LanguageModel.complete`.

        Raises:
            ProposerError: all tries failed, or one failed in a way that no retry can cure.
        """
        for attempt in range(self.retries + 1):
            try:
                with self.rate_limit.slot(self.cancelled):
                    if self.cancelled.is_set():
                        raise ProposerError(CANCELLED)
                    return self.transport(system, messages)
            except TransientError as failure:
                if failure.retry_after is not None and failure.retry_after > LONGEST_RETRY_AFTER:
                    raise ProposerError(
                        f"{failure}, and asks to wait {failure.retry_after:.0f} s; `kbevolve resume` after that"
                    ) from None
                if attempt == self.retries:
                    tries = "once" if attempt == 0 else f"{attempt + 1} times"
                    raise ProposerError(f"{failure}, tried {tries}; {failure.remedy}") from None
                self.cancelled.wait(self._wait(attempt, failure))
        raise AssertionError("unreachable: the last try returns or raises")

    def close(self) -> None:
        """Cancel all requests and waits, in every thread; they end with `ProposerError`."""
        self.cancelled.set()

    def _wait(self, attempt: int, failure: TransientError) -> float:
        """Seconds until the next try: at least what the endpoint asks for, and at least our own back-off.

        The back-off also counts because an endpoint that sends 0, or a date in the past, would otherwise get all tries
        at once. The jitter keeps clients from retrying at the same moment.
        """
        after = failure.retry_after
        first = FIRST_WAIT_TOO_MANY if failure.too_many and after is None else FIRST_WAIT
        back_off = min(LONGEST_WAIT, first * 2.0**attempt) * self.jitter.uniform(0.5, 1.0)
        return back_off if after is None else max(back_off, after * self.jitter.uniform(1.0, 1.1))


def build_language_model(settings: LLMSettings, rate_limit: RateLimit | None = None) -> LanguageModel | None:
    """The one model that the settings name (see `LLMSettings.each`); None when they name none.

    The programs need no model name; an endpoint does. `rate_limit` may be shared by several models; None makes one.

    Raises:
        SettingsError: an endpoint without a model, or a provider that no longer exists.
        ProposerError: the endpoint needs a key and there is none.
    """
    transport: OpenAITransport | ProgramTransport
    cancelled = Event()
    if settings.provider == "manual":
        raise SettingsError(
            "llm.provider = 'manual' no longer exists; answer prompts by hand with `kbevolve ask` and `kbevolve tell`"
        )
    if settings.provider != "openai":
        transport = ProgramTransport(settings=settings, cancelled=cancelled)
    elif settings.model is not None:
        transport = OpenAITransport(settings=settings, key=_key(settings), cancelled=cancelled)
    elif settings.api_base is not None:
        raise SettingsError("llm.api_base names an endpoint, but there is no model; name one with --model NAME")
    else:
        return None
    limit = rate_limit or RateLimit.of(settings)
    return RetryingModel(transport=transport, retries=settings.retries, rate_limit=limit, cancelled=cancelled)


def check_endpoints(settings: LLMSettings) -> None:
    """Check that the endpoints of all models can be reached, each once; programs are not called.

    Raises:
        ProposerError: one cannot be reached, or refuses the key.
    """
    models = (build_language_model(one) for one in settings.each())
    transports = (one.transport for one in models if isinstance(one, RetryingModel))
    endpoints = {(one.settings.api_base, one.key): one for one in transports if isinstance(one, OpenAITransport)}
    for endpoint in endpoints.values():
        endpoint.check()


def _key(settings: LLMSettings) -> str:
    variable = settings.api_key_variable
    key = os.environ.get(variable, "").strip()
    if not key and settings.api_base is None:
        raise ProposerError(
            f"no key for model {settings.model!r}: the environment variable {variable} is empty; export {variable}=…, "
            "or give --api-base for an endpoint that needs none"
        )
    if not (key.isascii() and key.isprintable()):
        raise ProposerError(f"the key in {variable} contains characters that no key has; copy it again")
    return key or NO_KEY


def end_requests(one: object) -> None:
    """Cancel the requests of a proposer or a language model, if it has any, so that an interrupted run ends at once."""
    close = getattr(one, "close", None)
    if close is not None:
        close()
