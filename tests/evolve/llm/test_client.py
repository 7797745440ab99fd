import logging
import socket
import time
from collections.abc import Sequence
from random import Random
from threading import Event
from types import SimpleNamespace
from typing import Any

import pytest

from kbevolve.configs.errors import ProposerError
from kbevolve.configs.settings import LLMSettings
from kbevolve.evolve.llm.client import Message, Reply, RetryingModel, build_language_model
from kbevolve.evolve.llm.rate_limit import RateLimit
from kbevolve.evolve.llm.transports import OpenAITransport, TransientError, _retry_after
from tests.evolve.loopback import completion

KEY = "sk-test-0123456789abcdef"
HELLO = (Message(role="user", content="hello"),)


class Waits(list[float], Event):
    """Cancels nothing, and records the waits instead of waiting."""

    def __init__(self) -> None:
        list.__init__(self)
        Event.__init__(self)

    def wait(self, timeout: float | None = None) -> bool:
        self.append(timeout or 0.0)
        return False


@pytest.fixture
def waits() -> Waits:
    return Waits()


def model(endpoint: Any, waits: Waits, *, key: str = KEY, **changes: Any) -> RetryingModel:
    settings = LLMSettings.model_validate(
        {"model": "loopback", "api_base": endpoint.base, "timeout": 20.0, "retries": 2, **changes}
    )
    transport = OpenAITransport(settings=settings, key=key)
    return RetryingModel(transport=transport, retries=settings.retries, jitter=Random(1), cancelled=waits)


def answered_after(failures: Sequence[TransientError], waits: Waits, *, retries: int, **more: Any) -> Reply:
    """The reply of a model whose first requests fail."""
    left = list(failures)

    def transport(system: str, messages: Sequence[Message]) -> Reply:
        if left:
            raise left.pop(0)
        return Reply(text="now", model="m")

    return RetryingModel(transport=transport, retries=retries, jitter=Random(1), cancelled=waits, **more).complete(
        "", HELLO
    )


def test_a_reply_carries_text_model_and_tokens(endpoint: Any, waits: Waits) -> None:
    endpoint.say("good day", usage=(12, 3))
    reply = model(endpoint, waits, temperature=0.25, max_tokens=777).complete("be kind", HELLO)
    assert reply == Reply(text="good day", model="loopback-1", prompt_tokens=12, completion_tokens=3)
    (request,) = endpoint.requests
    assert request.path == "/v1/chat/completions"
    assert request.headers["authorization"] == f"Bearer {KEY}"
    assert request.body["temperature"] == 0.25
    assert request.body["max_tokens"] == 777
    assert request.messages == [{"role": "system", "content": "be kind"}, {"role": "user", "content": "hello"}]
    assert waits == []


@pytest.mark.parametrize("text", [None, ""])
def test_an_empty_answer_is_a_reply(endpoint: Any, waits: Waits, text: str | None) -> None:
    endpoint.say(text)
    assert model(endpoint, waits).complete("", HELLO).text == ""
    assert len(endpoint.requests) == 1


def test_missing_usage_is_tolerated(endpoint: Any, waits: Waits) -> None:
    endpoint.say("x", usage=None)
    reply = model(endpoint, waits).complete("", HELLO)
    assert (reply.text, reply.prompt_tokens, reply.completion_tokens) == ("x", 0, 0)


@pytest.mark.parametrize(
    ("finish", "tokens", "truncated"),
    [
        ("length", 20, True),
        ("max_tokens", 20, True),
        ("stop", 20, False),
        ("stop", 256, False),
        (None, 256, True),
        (None, 255, False),
    ],
)
def test_a_truncated_answer_is_recognised(finish: str | None, tokens: int, truncated: bool) -> None:
    transport = OpenAITransport(settings=LLMSettings(model="m", max_tokens=256), key=KEY)
    choice = SimpleNamespace(finish_reason=finish, message=SimpleNamespace(refusal=None, content="x"))
    usage = SimpleNamespace(prompt_tokens=1, completion_tokens=tokens)
    reply = transport._reply(SimpleNamespace(choices=[choice], model="m", usage=usage))
    assert reply.truncated is truncated


def test_tokens_of_two_requests_are_not_mixed(endpoint: Any, waits: Waits) -> None:
    endpoint.say("x", usage=(5, 6))
    endpoint.say("y", usage=None)
    asked = model(endpoint, waits)
    assert [asked.complete("", HELLO).completion_tokens for _ in range(2)] == [6, 0]


def test_429_waits_for_retry_after(endpoint: Any, waits: Waits) -> None:
    endpoint.fail(429, message="slow down", retry_after="7")
    endpoint.say("now")
    assert model(endpoint, waits).complete("", HELLO).text == "now"
    assert len(endpoint.requests) == 2
    assert len(waits) == 1
    assert 7.0 <= waits[0] <= 7.7


@pytest.mark.parametrize(
    ("header", "seconds"),
    [("7", 7.0), ("0", 0.0), ("Thu, 01 Jan 1970 00:01:00 GMT", 0.0), ("-3", None), ("soon", None), ("", None)],
)
def test_retry_after_is_a_number_or_a_date(header: str, seconds: float | None) -> None:
    assert _retry_after({"retry-after": header}, now=lambda: 120.0) == seconds


def test_waits_follow_the_back_off_when_the_endpoint_asks_for_less(waits: Waits) -> None:
    refused = [TransientError("busy", remedy="wait", retry_after=after) for after in (0.0, None, 0.0, None)]
    assert answered_after(refused, waits, retries=4).text == "now"
    assert [0.5 * 2**n <= wait <= 2**n for n, wait in enumerate(waits)] == [True] * 4


def test_too_many_requests_are_retried_for_about_a_minute(waits: Waits) -> None:
    """When the endpoint does not say how long to wait; a used-up quota of a minute must not stop a run."""
    refused = [TransientError("too many", remedy="wait", too_many=True) for _ in range(5)]
    with pytest.raises(ProposerError, match="too many, tried 5 times; wait"):
        answered_after(refused, waits, retries=4)
    assert len(waits) == 4
    assert sum(waits) > 50
    assert max(waits) <= 30


def test_every_try_counts_for_the_rate_limit(waits: Waits) -> None:
    limit = RateLimit(per_minute=1.0)
    assert answered_after([TransientError("busy", remedy="wait")], waits, retries=1, rate_limit=limit).text == "now"
    assert len(waits) == 2, "the back-off, then the wait for the next start"
    assert 50 < waits[1] <= 60


def test_a_very_long_retry_after_stops_the_run(endpoint: Any, waits: Waits) -> None:
    endpoint.fail(429, retry_after="86400")
    with pytest.raises(ProposerError, match=r"asks to wait 86400 s; `kbevolve resume`"):
        model(endpoint, waits).complete("", HELLO)
    assert len(endpoint.requests) == 1


def test_no_credit_is_not_tried_again(endpoint: Any, waits: Waits) -> None:
    endpoint.fail(429, code="insufficient_quota", message="You exceeded your quota")
    with pytest.raises(ProposerError, match="no credit"):
        model(endpoint, waits).complete("", HELLO)
    assert len(endpoint.requests) == 1


def test_500_then_ok_is_two_requests(endpoint: Any, waits: Waits) -> None:
    endpoint.fail(500)
    endpoint.say("fine")
    assert model(endpoint, waits).complete("", HELLO).text == "fine"
    assert len(endpoint.requests) == 2
    assert 0.5 <= waits[0] <= 1.0


def test_a_permanent_500_ends_after_the_retries(endpoint: Any, waits: Waits) -> None:
    for _ in range(3):
        endpoint.fail(500, message="engine\ndied")
    with pytest.raises(ProposerError, match=r"answered 500 \(engine died\), tried 2 times; .*resume") as caught:
        model(endpoint, waits, retries=1).complete("", HELLO)
    assert "\n" not in str(caught.value)
    assert len(endpoint.requests) == 2


@pytest.mark.parametrize(
    ("status", "words"),
    [(401, "OPENAI_API_KEY"), (403, "OPENAI_API_KEY"), (404, "--model"), (400, "llm.*"), (418, "llm.*")],
)
def test_other_4xx_are_not_tried_again(endpoint: Any, waits: Waits, status: int, words: str) -> None:
    endpoint.fail(status, message="no such thing")
    with pytest.raises(ProposerError) as caught:
        model(endpoint, waits).complete("", HELLO)
    assert words in str(caught.value)
    assert str(status) in str(caught.value)
    assert len(endpoint.requests) == 1


def test_a_prompt_that_is_too_long_is_a_refusal_not_an_error(endpoint: Any, waits: Waits) -> None:
    endpoint.fail(400, message="This model's maximum context length is 4096 tokens", code="context_length_exceeded")
    reply = model(endpoint, waits).complete("", HELLO)
    assert reply.text == ""
    assert "maximum context length" in reply.refusal
    assert len(endpoint.requests) == 1


def test_a_silent_endpoint_is_disconnected(endpoint: Any, waits: Waits) -> None:
    endpoint.hang()
    start = time.monotonic()
    with pytest.raises(ProposerError, match=r"no answer within 1 s, tried once; raise llm.timeout"):
        model(endpoint, waits, timeout=1.0, retries=0).complete("", HELLO)
    assert time.monotonic() - start < 10
    assert endpoint.hung_up.wait(20), "the connection is still open"
    assert len(endpoint.requests) == 1


def test_a_slow_endpoint_is_disconnected(endpoint: Any, waits: Waits) -> None:
    """Each byte arrives in time, the answer does not: no read times out, and the request must still end."""
    endpoint.trickle("x" * 400)
    start = time.monotonic()
    with pytest.raises(ProposerError, match=r"no answer within 0.5 s"):
        model(endpoint, waits, timeout=0.5, retries=0).complete("", HELLO)
    assert time.monotonic() - start < 10
    assert endpoint.hung_up.wait(20), "the connection is still open"


def test_a_time_out_is_tried_again(endpoint: Any, waits: Waits) -> None:
    endpoint.hang()
    endpoint.say("late")
    assert model(endpoint, waits, timeout=1.5).complete("", HELLO).text == "late"
    assert len(endpoint.requests) == 2


def test_an_address_without_a_server_is_an_error(endpoint: Any, waits: Waits) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    base = f"http://me:secretword@127.0.0.1:{port}/v1"
    with pytest.raises(ProposerError, match=r"cannot connect to .*tried 3 times; start the server") as caught:
        model(endpoint, waits, api_base=base).complete("", HELLO)
    assert "secretword" not in str(caught.value)
    assert "refused" in str(caught.value)
    assert len(waits) == 2


@pytest.mark.parametrize(
    ("body", "kind"), [(b"<html>hi</html>", "text/html"), (b"{}", "application/json"), (b"{oops", "application/json")]
)
def test_an_answer_that_is_no_chat_completion_names_the_base(
    endpoint: Any, waits: Waits, body: bytes, kind: str
) -> None:
    endpoint.send(body, content_type=kind)
    with pytest.raises(ProposerError, match=r"no chat completion.*--api-base"):
        model(endpoint, waits, retries=0).complete("", HELLO)


def test_reasoning_models_get_their_own_parameters(endpoint: Any, waits: Waits) -> None:
    """openevolve knows these names; that is why its classes build the request."""
    endpoint.say("x")
    model(endpoint, waits, model="gpt-5-mini").complete("", HELLO)
    assert "max_completion_tokens" in endpoint.requests[0].body
    assert "temperature" not in endpoint.requests[0].body


@pytest.mark.parametrize("name", ["gpt-5-mini", "qwen3"])
def test_the_effort_of_reasoning_is_sent_when_it_is_set(name: str, endpoint: Any, waits: Waits) -> None:
    for effort in ("low", None):
        endpoint.say("x")
        model(endpoint, waits, model=name, reasoning_effort=effort).complete("", HELLO)
    assert [request.body.get("reasoning_effort") for request in endpoint.requests] == ["low", None]


def test_the_key_never_shows(
    endpoint: Any, waits: Waits, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    caplog.set_level(logging.DEBUG)
    echo = completion(f"your key is {KEY}").replace(b"loopback-1", f"for-{KEY}".encode())
    endpoint.send(echo)
    endpoint.fail(401, message=f"Incorrect API key provided: {KEY}")
    endpoint.fail(400, message=f"context of {KEY}")
    endpoint.fail(500, message=f"{KEY} crashed")
    asked = model(endpoint, waits, retries=0)
    seen = [repr(asked), str(asked.complete("", HELLO))]
    with pytest.raises(ProposerError) as first:
        asked.complete("", HELLO)
    seen.append(str(asked.complete("", HELLO)))
    with pytest.raises(ProposerError) as second:
        asked.complete("", HELLO)
    for caught in (first, second):
        seen += [str(caught.value), repr(caught.value), str(caught.getrepr(chain=False))]
    out, err = capfd.readouterr()
    assert "***" in seen[1]
    assert KEY not in "\n".join([*seen, caplog.text, out, err])
    assert out + err == ""


def test_the_libraries_keep_quiet(endpoint: Any, waits: Waits, capfd: pytest.CaptureFixture[str]) -> None:
    endpoint.fail(500)
    with pytest.raises(ProposerError):
        model(endpoint, waits, retries=0).complete("", HELLO)
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("<think>hm\n</think>yes", "yes"),
        ("\n<thinking>hm</thinking>yes", "yes"),
        ("hm, so</think>yes", "yes"),
        ("<think>still at it", ""),
        ("plain", "plain"),
    ],
)
def test_the_answer_is_without_the_reasoning(text: str, answer: str) -> None:
    assert Reply(text=text, model="m").answer == answer


def test_another_thread_can_cancel_a_request(endpoint: Any) -> None:
    """Ctrl-C reaches the main thread only; without this the program would end when the last request does."""
    import threading

    endpoint.hang()
    built = build_language_model(LLMSettings(model="m", api_base=endpoint.base))
    assert isinstance(built, RetryingModel)
    caught: list[str] = []

    def ask() -> None:
        try:
            built.complete("", HELLO)
        except ProposerError as error:
            caught.append(str(error))

    asking = threading.Thread(target=ask)
    asking.start()
    while not endpoint.requests:
        time.sleep(0.01)
    built.close()
    asking.join(3)
    assert caught == ["the request was cancelled; `kbevolve resume` sends it again"]
    assert endpoint.hung_up.wait(20)
    assert len(endpoint.requests) == 1
