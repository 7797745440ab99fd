"""Inspect's model as one of ours, so that our proposer can ask it. Inspect logs each request and counts its tokens."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from anyio import from_thread
from inspect_ai.model import (
    ChatMessage,
    ChatMessageAssistant,
    ChatMessageSystem,
    ChatMessageUser,
    ModelOutput,
    get_model,
)

from kbevolve.evolve.llm.client import Message, Reply

#: Inspect's reasons for an answer that was cut short.
_TRUNCATED = ("max_tokens", "model_length")


@dataclass(slots=True)
class InspectModel:
    """Implements `LanguageModel` in a thread that Inspect's event loop has started."""

    #: All turns so far, as Inspect's log viewer shows them: each request's new turns and its answer.
    messages: list[ChatMessage] = field(default_factory=list)

    def complete(self, system: str, messages: Sequence[Message], *, child: str = "") -> Reply:
        """As `LanguageModel.complete`; retries and limits are Inspect's."""
        turns: list[ChatMessage] = [ChatMessageSystem(content=system), *map(_turn, messages)]
        output: ModelOutput = from_thread.run(get_model().generate, turns)
        self.messages += [*(turns if not self.messages else turns[-1:]), output.message]
        usage = output.usage
        return Reply(
            text=output.completion,
            model=output.model,
            prompt_tokens=usage.input_tokens if usage else 0,
            completion_tokens=usage.output_tokens if usage else 0,
            truncated=output.stop_reason in _TRUNCATED,
            refusal="a content filter held the answer back" if output.stop_reason == "content_filter" else "",
        )

    def close(self) -> None:
        """Nothing: Inspect ends its own requests."""


def _turn(message: Message) -> ChatMessage:
    return (ChatMessageUser if message.role == "user" else ChatMessageAssistant)(content=message.content)
