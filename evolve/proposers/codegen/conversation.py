"""The requests for one child: everything that was sent and received, and what it cost."""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field

from kbevolve.archive.conversations import QuestionStage
from kbevolve.archive.records import BirthState, Idea, Kernel
from kbevolve.evolve.llm.client import Message, Reply
from kbevolve.evolve.proposers.base import Brief, Proposal


@dataclass(frozen=True, slots=True, kw_only=True)
class ChildRequest:
    """One request for a child."""

    #: See `LanguageModel.complete`.
    child: str
    stage: QuestionStage
    #: The idea that the code carries out; None in a request for ideas, and where the answer states its own.
    idea: Idea | None
    system: str
    messages: tuple[Message, ...]


#: Answers a request: a model, or a person.
Send = Callable[[ChildRequest], Reply]


@dataclass(slots=True, kw_only=True)
class Conversation:
    """Sends the requests for one child."""

    send: Send
    child: str
    system: str
    _sent: list[str] = field(default_factory=list)
    _received: list[str] = field(default_factory=list)
    _replies: list[Reply] = field(default_factory=list)

    def ask(
        self, stage: QuestionStage, messages: list[Message], *, idea: Idea | None = None, again: bool = False
    ) -> Reply:
        """Send a request; both sides are kept for the archive. `again`: the answer before could not be used."""
        request = ChildRequest(child=self.child, stage=stage, idea=idea, system=self.system, messages=tuple(messages))
        reply = self.send(request)
        number = len(self._replies) + 1
        name = "ideas" if stage is QuestionStage.IDEA else "code, asked again" if again else "code"
        turns = [f"[{message.role}]\n{message.content.rstrip()}" for message in messages]
        if number == 1:
            turns = [f"[system]\n{self.system.rstrip()}", *turns]
        self._sent.append("\n\n".join([f"===== request {number}: {name} =====", *turns]))
        self._received.append(f"===== answer {number}: {name} =====\n\n{(reply.text or reply.refusal).rstrip()}")
        self._replies.append(reply)
        return reply

    def proposal(
        self, state: BirthState, *, kernel: Kernel | None = None, idea: Idea | None = None, note: str
    ) -> Proposal:
        """The result, with the texts and the tokens of all requests."""
        return Proposal(
            state=state,
            kernel=kernel,
            idea=idea,
            note=" ".join(note.split()),
            prompt="\n\n".join(self._sent) + "\n",
            reply="\n\n".join(self._received) + "\n",
            model=self._replies[-1].model,
            prompt_tokens=sum(reply.prompt_tokens for reply in self._replies),
            completion_tokens=sum(reply.completion_tokens for reply in self._replies),
        )


def child_name(brief: Brief) -> str:
    """Distinguishes a child from every other one of its run, e.g. ``mutate of 3f2a9c and 81d04e55, 0b6c11d2``.

    Briefs may differ in their random numbers alone, which are seeded by run, island, generation and slot.
    """
    parents = (brief.repair.kernel,) if brief.repair else tuple(parent.kernel for parent in brief.parents)
    drawn = hashlib.sha256(repr(brief.rng.getstate()).encode("ascii")).hexdigest()[:8]
    return f"{brief.operator} of {' and '.join(parent.id for parent in parents) or 'nothing'}, {drawn}"
