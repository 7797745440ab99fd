"""The proposer that asks a language model, in two stages: an idea in words, then the child that carries it out.

Stateless: everything comes from the brief, every choice from its rng, so a run resumes as it would have gone on.
Each child costs one request for ideas (not for CROSS and REPAIR), one for code, and at most one more when the code
could not be used.
"""

import hashlib
import re
from collections.abc import Callable
from dataclasses import dataclass, field

from kbevolve.archive.records import BirthState, Idea, Kernel, Operator
from kbevolve.configs.errors import ProposerError
from kbevolve.configs.playbook import RECOMBINE, Playbook, load_playbook
from kbevolve.configs.settings import LLMSettings, Precision
from kbevolve.evolve.llm.client import LanguageModel, Message, Reply, end_requests
from kbevolve.evolve.proposers.base import Brief, Proposal
from kbevolve.evolve.proposers.codegen.edits import Reading, read_answer
from kbevolve.evolve.proposers.codegen.idea_filters import masks_of, unmasked
from kbevolve.evolve.proposers.codegen.ideas import TITLE_LENGTH, choose_idea, parse_ideas, playbook_idea, shortlist
from kbevolve.evolve.proposers.codegen.prompts import PromptTexts, backends, edited
from kbevolve.evolve.proposers.codegen.whole_file import AnswerError

#: Playbook ideas shown in one prompt, drawn anew for each child: all fifty would be most of the prompt.
SHORTLIST = 6


class LLMProposer:
    """Writes children with a language model: MUTATE, REWRITE, CROSS and REPAIR.

    Args:
        model: what answers.
        settings: `ideas_per_call` and `max_tokens` are used here.
        precision: the precision that the task asks for.
        playbook: ideas in words; the one that comes with kbevolve when None.
    """

    def __init__(
        self,
        model: LanguageModel,
        settings: LLMSettings,
        *,
        precision: Precision = "fp32",
        playbook: Playbook | None = None,
    ) -> None:
        self._model = model
        self._settings = settings
        self._precision = precision
        self._playbook = playbook or load_playbook()
        self._texts = PromptTexts(playbook=self._playbook, precision=precision, ideas_per_call=settings.ideas_per_call)

    def propose(self, brief: Brief) -> Proposal:
        """Write one child.

        Raises:
            ProposerError: the model cannot be reached, or the operator is none that writes.
        """
        carry_out: dict[Operator, Callable[[Brief, _Talk], Proposal]] = {
            Operator.MUTATE: self._mutate,
            Operator.REWRITE: self._rewrite,
            Operator.CROSS: self._cross,
            Operator.REPAIR: self._repair,
        }
        if brief.operator not in carry_out:
            raise ProposerError(
                f"a language model was asked to {brief.operator}; it does {', '.join(carry_out)}: "
                "give that operator to another proposer"
            )
        talk = _Talk(model=self._model, child=_name_of_child(brief), system=self._texts.system(brief))
        return carry_out[brief.operator](brief, talk)

    def close(self) -> None:
        """Give up requests that are under way in other threads; they end with `ProposerError`."""
        end_requests(self._model)

    # ---- the operators -----------------------------------------------------------------------------------------------

    def _mutate(self, brief: Brief, talk: "_Talk") -> Proposal:
        if not edited(brief):
            return self._rewrite(brief, talk)
        idea = self._idea(brief, talk)
        turn = Message(role="user", content=self._texts.implement_diff(brief, idea))
        return self._child(brief, talk, [turn], idea=idea, base=brief.parents[0].kernel.source)

    def _rewrite(self, brief: Brief, talk: "_Talk") -> Proposal:
        idea = self._idea(brief, talk)
        turn = Message(role="user", content=self._texts.implement_rewrite(brief, idea))
        base = brief.parents[0].kernel.source if brief.parents else None
        return self._child(brief, talk, [turn], idea=idea, base=base)

    def _cross(self, brief: Brief, talk: "_Talk") -> Proposal:
        if len(brief.parents) < 2:
            return self._rewrite(brief, talk)
        turn = Message(role="user", content=self._texts.cross(brief))
        return self._child(brief, talk, [turn], idea=None, base=brief.parents[0].kernel.source)

    def _repair(self, brief: Brief, talk: "_Talk") -> Proposal:
        failure = brief.repair
        if failure is None:
            raise ProposerError("a repair without a failed child; the brief's `repair` must name it")
        source = failure.kernel.source
        conversation = [
            Message(role="user", content=self._texts.repair_task(brief, failure)),
            Message(role="assistant", content=f"```python\n{source.rstrip()}\n```"),
            Message(role="user", content=self._texts.repair(failure)),
        ]
        return self._child(brief, talk, conversation, idea=failure.idea, base=source)

    # ---- stage one ---------------------------------------------------------------------------------------------------

    def _idea(self, brief: Brief, talk: "_Talk") -> Idea:
        """The brief's; else an idea of the model's, or one of the playbook's when it has none that is new."""
        if brief.idea is not None:
            return brief.idea
        fitting = self._playbook.ideas_for(
            brief.task.problem.source, device_type=brief.task.device_type, device=brief.task.device
        )
        languages = frozenset(str(backend) for backend in backends(brief))
        written = [entry for entry in fitting if not entry.backends.isdisjoint(languages)] or self._playbook.ideas
        masks = masks_of(brief, self._precision)
        entries = unmasked(written, masks)
        turn = Message(role="user", content=self._texts.ideas(brief, shortlist(entries, brief, SHORTLIST), masks))
        reply = talk.ask("ideas", [turn])
        ideas = parse_ideas(reply.answer, self._playbook, proposed_by=reply.model)
        return choose_idea(ideas, brief) or playbook_idea(entries, brief)

    # ---- stage two ---------------------------------------------------------------------------------------------------

    def _child(
        self, brief: Brief, talk: "_Talk", conversation: list[Message], *, idea: Idea | None, base: str | None
    ) -> Proposal:
        """Ask for code and make the proposal of it; an answer that cannot be used gets one follow-up."""
        reply = talk.ask("code", conversation)
        if brief.operator is Operator.CROSS and idea is None:
            idea = _stated_idea(reply)
        try:
            return self._born(brief, talk, self._read(reply, base), idea)
        except AnswerError as error:
            complaint = str(error)
        if reply.text and not reply.truncated:
            conversation = [
                *conversation,
                Message(role="assistant", content=reply.answer),
                Message(role="user", content=self._texts.again(complaint)),
            ]
            second = talk.ask("code, asked again", conversation)
            try:
                return self._born(brief, talk, self._read(second, base), idea)
            except AnswerError as error:
                complaint = f"{complaint} Asked again: {error}"
        return talk.proposal(BirthState.NO_CODE, idea=idea, note=complaint)

    def _read(self, reply: Reply, base: str | None) -> Reading:
        """The source in a reply; the error says what a person can do about an answer that is none."""
        if reply.refusal:
            raise AnswerError(f"the endpoint would not answer: {reply.refusal}.")
        try:
            return read_answer(reply.answer, base, truncated=reply.truncated)
        except AnswerError as error:
            if reply.truncated:
                limit = self._settings.max_tokens
                raise AnswerError(f"the answer was cut short at {limit} tokens; raise llm.max_tokens.") from None
            if not reply.answer.strip():
                raise AnswerError("the answer was empty.") from None
            raise error

    def _born(self, brief: Brief, talk: "_Talk", reading: Reading, idea: Idea | None) -> Proposal:
        kernel = Kernel.from_source(reading.source)
        how = f"{reading.edits} edit{'' if reading.edits == 1 else 's'}" if reading.edits else "whole file"
        note = f"{idea.title if idea else 'no idea stated'} ({how})"
        if brief.repair is not None:
            verdict = brief.repair.evaluation.verdict.name.lower().replace("_", " ")
            note = f"asked once more: {note}" if brief.repair.like else f"repair of {verdict}: {note}"
        state = BirthState.CREATED
        if brief.known(kernel.id):
            state, note = BirthState.DUPLICATE, f"nothing new: {note}"
        return talk.proposal(state, kernel=kernel, idea=idea, note=note)


@dataclass(slots=True, kw_only=True)
class _Talk:
    """The requests of one child: everything that was sent and received, and what it cost."""

    model: LanguageModel
    #: For whom it is asked.
    child: str
    system: str
    _sent: list[str] = field(default_factory=list)
    _received: list[str] = field(default_factory=list)
    _replies: list[Reply] = field(default_factory=list)

    def ask(self, stage: str, conversation: list[Message]) -> Reply:
        """Send a conversation and keep both sides under the stage's name."""
        reply = self.model.complete(self.system, conversation, child=self.child)
        number = len(self._replies) + 1
        turns = [f"[{message.role}]\n{message.content.rstrip()}" for message in conversation]
        if number == 1:
            turns = [f"[system]\n{self.system.rstrip()}", *turns]
        self._sent.append("\n\n".join([f"===== request {number}: {stage} =====", *turns]))
        self._received.append(f"===== answer {number}: {stage} =====\n\n{(reply.text or reply.refusal).rstrip()}")
        self._replies.append(reply)
        return reply

    def proposal(
        self, state: BirthState, *, kernel: Kernel | None = None, idea: Idea | None = None, note: str
    ) -> Proposal:
        """What came of it, with the conversation and the tokens of all requests."""
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


def _name_of_child(brief: Brief) -> str:
    """What tells a child from every other one of its run, and a little about it, e.g. ``mutate of 3f2a9c, 81d04e55``.

    Briefs may be equal but for their random numbers, which are seeded by run, island, generation and slot.
    """
    parents = (brief.repair.kernel,) if brief.repair else tuple(parent.kernel for parent in brief.parents)
    drawn = hashlib.sha256(repr(brief.rng.getstate()).encode("ascii")).hexdigest()[:8]
    return f"{brief.operator} of {' and '.join(parent.id for parent in parents) or 'nothing'}, {drawn}"


def _stated_idea(reply: Reply) -> Idea:
    """The idea behind a crossing, from the answer's line ``IDEA: …``."""
    line = re.search(r"^\W*IDEA\W*:\W*(.+)$", reply.answer, re.MULTILINE | re.IGNORECASE)
    stated = " ".join(line[1].split()).strip("*_ ") if line else "Two kernels combined"
    title = stated if len(stated) <= TITLE_LENGTH else stated[: TITLE_LENGTH - 1].rpartition(" ")[0] + "…"
    return Idea(title=title, mechanism=stated, technique=RECOMBINE, proposed_by=reply.model)
