"""One request to an endpoint of OpenAI's protocol, through openevolve's LLM class, and what each failure means.

openevolve 0.4.0 writes the request and knows the parameters of reasoning models. The rest is switched off or replaced:
it retries inside the openai client and again outside it (16 requests for one failing call, measured), drops
`finish_reason`, and leaves a thread and a socket behind after a time-out.

openevolve and openai take 0.6 s to import and are imported at the first request.
"""

import asyncio
import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from threading import Event
from time import time
from typing import Any, Literal
from urllib.parse import urlsplit

from kbevolve.configs.errors import ProposerError
from kbevolve.configs.settings import LLMSettings
from kbevolve.evolve.llm.connection import CONNECT_SECONDS, silence_libraries, until_cancelled

#: Finish reasons that mean `max_tokens`: OpenAI's, and the one that gateways to other providers pass on.
TRUNCATED = ("length", "max_tokens")

#: A 4xx whose text matches concerns this prompt alone; any other one would fail for every child.
_ABOUT_THE_PROMPT = re.compile(r"context|too (long|large)|maximum.*(length|tokens)|content|policy|safety|filter", re.I)

#: The remedy when nothing listens.
_START_IT = "start the server, or correct --api-base (llm.api_base)"

#: Shorter keys are dummies for local servers; replacing them would damage ordinary text.
_SHORTEST_SECRET = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """One turn of a conversation."""

    role: Literal["user", "assistant"]
    content: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """What a model answered."""

    #: Everything it wrote; may be "".
    text: str
    #: The model as the endpoint names it, else as the settings do.
    model: str
    #: Tokens of the request and the answer; 0 when the endpoint does not say.
    prompt_tokens: int = 0
    completion_tokens: int = 0
    #: The answer was cut short by `max_tokens`.
    truncated: bool = False
    #: Why the endpoint would not answer this prompt (too long, content filter); "" when it did.
    refusal: str = ""

    @property
    def answer(self) -> str:
        """The text without the reasoning that some local models write first; "" if the reasoning does not end."""
        opened = re.match(r"\s*<think(ing)?>", self.text)
        _, closed, rest = self.text.partition("</thinking>" if opened and opened[1] else "</think>")
        if closed:
            return rest
        return "" if opened else self.text


class TransientError(Exception):
    """A failed request that may succeed when it is sent again."""

    def __init__(self, reason: str, *, remedy: str, retry_after: float | None = None, too_many: bool = False) -> None:
        super().__init__(reason)
        #: What the user can do if it keeps failing.
        self.remedy = remedy
        #: Seconds until the endpoint wants the next try; None when it does not say.
        self.retry_after = retry_after
        #: Whether the endpoint got more requests than it allows.
        self.too_many = too_many


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenAITransport:
    """Requests to an OpenAI-compatible endpoint.

    Raises (when called):
        TransientError: 429, 5xx, a time-out, no connection, or an answer that is no chat completion.
        ProposerError: the key or the model is refused, no credit, or the request itself is not understood.
    """

    settings: LLMSettings
    #: The key; it never appears in a message, a log or a record.
    key: str = field(repr=False)
    #: Set when the answer is no longer wanted.
    cancelled: Event = field(default_factory=Event, repr=False)

    def __call__(self, system: str, messages: Sequence[Message]) -> Reply:
        """Send one request; it ends after `settings.timeout` seconds at the latest."""
        silence_libraries()
        import openai

        try:
            return asyncio.run(until_cancelled(self._request(system, messages), self.cancelled))
        except (openai.APITimeoutError, TimeoutError):
            raise TransientError(
                f"{self.address} gave no answer within {self.settings.timeout:g} s",
                remedy="raise llm.timeout, or take a faster model",
            ) from None
        except openai.APIConnectionError as error:
            raise TransientError(
                f"cannot connect to {self.address} ({self._clean(_reason(error))})",
                remedy=_START_IT,
            ) from None
        except openai.APIStatusError as error:
            return self._status(error)
        except (openai.OpenAIError, ValueError, TypeError, LookupError, AttributeError) as error:
            # Something else fails wherever the client first reads a missing field.
            raise TransientError(
                f"{self.address} answered with something that is no chat completion ({type(error).__name__})",
                remedy="give the base of an OpenAI-compatible endpoint, e.g. --api-base http://127.0.0.1:8000/v1",
            ) from None

    def check(self) -> None:
        """Ask for the endpoint's list of models, which costs nothing, before anything is judged.

        A silent endpoint, or one without such a list, passes: the first request will tell.

        Raises:
            ProposerError: nothing listens there, or the key is refused.
        """
        silence_libraries()
        import openai

        timeout = openai.Timeout(CONNECT_SECONDS)
        with openai.OpenAI(api_key=self.key, base_url=self.settings.api_base, timeout=timeout, max_retries=0) as client:
            try:
                client.models.list()
            except openai.APITimeoutError:
                pass
            except openai.APIConnectionError as error:
                reason = self._clean(_reason(error))
                raise ProposerError(f"cannot connect to {self.address} ({reason}); {_START_IT}") from None
            except openai.AuthenticationError as error:
                self._status(error)
            except (openai.OpenAIError, ValueError, TypeError, LookupError, AttributeError):
                pass  # it has no such list

    @property
    def address(self) -> str:
        """Where requests go, without the user name and password that an address may contain."""
        if self.settings.api_base is None:
            return "the provider's own endpoint"
        parts = urlsplit(self.settings.api_base)
        return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"

    async def _request(self, system: str, messages: Sequence[Message]) -> Reply:
        import openai
        from openevolve.config import LLMModelConfig
        from openevolve.llm.openai import OpenAILLM

        settings = self.settings
        llm = OpenAILLM(
            LLMModelConfig(
                name=settings.model,
                api_base=settings.api_base,
                api_key=self.key,
                temperature=settings.temperature,
                max_tokens=settings.max_tokens,
                reasoning_effort=settings.reasoning_effort,
                timeout=settings.timeout,
                retries=0,
                retry_delay=0,
            )
        )
        llm.client.close()
        async with openai.AsyncOpenAI(
            api_key=self.key,
            base_url=settings.api_base,
            timeout=openai.Timeout(settings.timeout, connect=min(settings.timeout, CONNECT_SECONDS)),
            max_retries=0,
        ) as client:
            # In place of its call in a thread, which cannot be cancelled.
            llm._call_api = lambda parameters: client.chat.completions.create(**parameters)
            turns = [{"role": message.role, "content": message.content} for message in messages]
            return self._reply(await llm.generate_with_context(system, turns, retries=0, timeout=settings.timeout))

    def _reply(self, completion: Any) -> Reply:
        choice = completion.choices[0]
        text = choice.message.content
        tokens = getattr(completion.usage, "completion_tokens", 0)
        refusal = getattr(choice.message, "refusal", None) or ""
        if not text and choice.finish_reason == "content_filter":
            refusal = "the endpoint's content filter held the answer back"
        return Reply(
            text=self._redact(text) if isinstance(text, str) else "",
            model=self._clean(str(getattr(completion, "model", None) or self.settings.model)),
            prompt_tokens=getattr(completion.usage, "prompt_tokens", 0),
            completion_tokens=tokens,
            truncated=choice.finish_reason in TRUNCATED
            or (choice.finish_reason is None and tokens >= self.settings.max_tokens),
            refusal=self._clean(str(refusal)),
        )

    def _status(self, error: Any) -> Reply:
        """What an error status means: a refused prompt is a reply, everything else is raised."""
        status = int(error.status_code)
        body = error.body.get("message") if isinstance(error.body, dict) else error.body
        detail = self._clean(body if isinstance(body, str) else "")
        said = f"{self.address} answered {status}{f' ({detail})' if detail else ''}"
        if status in (401, 403):
            # Without the endpoint's text: some repeat a part of the key.
            raise ProposerError(
                f"{self.address} answered {status}: it refuses the key; put a valid one in the environment variable "
                f"{self.settings.api_key_variable} (or name another with --set llm.api_key_variable=NAME)"
            ) from None
        if status == 404:
            raise ProposerError(
                f"{said}: no model {self.settings.model!r} there, or not the endpoint's base; correct --model or "
                "--api-base (it usually ends in /v1)"
            ) from None
        if status == 429 and "insufficient_quota" in (error.code, error.type):
            raise ProposerError(f"{said}: no credit is left; top it up, then `kbevolve resume`") from None
        if status == 429 or status >= 500:
            raise TransientError(
                said,
                remedy="wait until the endpoint works again, then `kbevolve resume`",
                retry_after=_retry_after(error.response.headers),
                too_many=status == 429,
            ) from None
        if status in (400, 413, 422) and _ABOUT_THE_PROMPT.search(f"{error.code} {detail}"):
            return Reply(text="", model=str(self.settings.model), refusal=f"answered {status}: {detail}")
        raise ProposerError(
            f"{said}: the request is not accepted; compare the settings llm.* with what the endpoint takes"
        ) from None

    def _clean(self, text: str) -> str:
        """One line of at most 200 characters, without the key."""
        return " ".join(self._redact(text).split())[:200]

    def _redact(self, text: str) -> str:
        return text.replace(self.key, "***") if len(self.key) >= _SHORTEST_SECRET else text


def _reason(error: BaseException) -> str:
    """What the system said: the cause at the end of the chain."""
    while deeper := error.__cause__ or error.__context__:
        error = deeper
    if isinstance(error, BaseExceptionGroup):  # a name with several addresses
        return _reason(error.exceptions[0])
    if isinstance(error, ConnectionError) and error.errno:
        return os.strerror(error.errno)
    return str(error) or type(error).__name__


def _retry_after(headers: Any, now: Callable[[], float] = time) -> float | None:
    """Seconds from `Retry-After` (a number or a date) or OpenAI's `retry-after-ms`; None when there is none."""
    try:
        if "retry-after-ms" in headers:
            return max(0.0, float(headers["retry-after-ms"]) / 1000)
        text = headers.get("retry-after", "")
        if re.fullmatch(r"\s*\d+(\.\d+)?\s*", text):
            return float(text)
        return max(0.0, parsedate_to_datetime(text).timestamp() - now())
    except (TypeError, ValueError):
        return None
