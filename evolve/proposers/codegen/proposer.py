"""The proposer that asks a language model, in two stages: an idea in words, then the code that carries it out.

It is stateless: everything follows from the brief, and every choice from its rng. So a resumed run continues as the
undisturbed one would. A child costs one request for ideas (none for CROSS and REPAIR), one for code, and one more at
most when the code could not be used.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass, field

from kbevolve.archive.conversations import QuestionStage
from kbevolve.archive.formatting import verdict_words
from kbevolve.archive.records import BirthState, Idea, Kernel, Operator
from kbevolve.configs.errors import ProposerError
from kbevolve.configs.playbook import RECOMBINE, Playbook, load_playbook
from kbevolve.configs.settings import Libraries, LLMSettings, Precision
from kbevolve.evolve.llm.client import LanguageModel, Message, Reply, end_requests
from kbevolve.evolve.proposers.base import Brief, Proposal
from kbevolve.evolve.proposers.codegen import prompts
from kbevolve.evolve.proposers.codegen.conversation import ChildRequest, Conversation, Send, child_name
from kbevolve.evolve.proposers.codegen.edits import ParsedAnswer, read_answer
from kbevolve.evolve.proposers.codegen.idea_filters import filters_for, helpful
from kbevolve.evolve.proposers.codegen.ideas import (
    TITLE_LENGTH,
    choose_idea,
    one_line,
    parse_ideas,
    playbook_idea,
    shortlist,
)
from kbevolve.evolve.proposers.codegen.languages import playbook_name
from kbevolve.evolve.proposers.codegen.whole_file import AnswerError

#: Playbook ideas shown in one prompt, drawn anew for each child: all fifty would be most of the prompt.
SHORTLIST = 6


@dataclass(frozen=True)
class LLMProposer:
    """Writes children with a language model: MUTATE, REWRITE, CROSS and REPAIR."""

    model: LanguageModel
    #: `ideas_per_call` and `max_tokens` are used here.
    settings: LLMSettings
    #: The precision that the task asks for.
    precision: Precision = "fp32"
    #: The libraries that its kernels may call.
    libraries: Libraries = "full"
    #: Known optimisation ideas.
    playbook: Playbook = field(default_factory=load_playbook)

    def propose(self, brief: Brief) -> Proposal:
        """Write one child.

        Raises:
            ProposerError: the model cannot be reached, or the operator writes no code.
        """
        return self.propose_with(self.send, brief)

    def propose_with(self, send: Send, brief: Brief) -> Proposal:
        """As `propose`, but `send` answers the requests."""
        writers: dict[Operator, Callable[[Brief, Conversation], Proposal]] = {
            Operator.MUTATE: self._implement,
            Operator.REWRITE: self._implement,
            Operator.CROSS: self._cross,
            Operator.REPAIR: self._repair,
        }
        if brief.operator not in writers:
            raise ProposerError(
                f"a language model was asked to {brief.operator}; it does {', '.join(writers)}: "
                "give that operator to another proposer"
            )
        system = prompts.system(brief, self.precision, self.libraries)
        talk = Conversation(send=send, child=child_name(brief), system=system)
        return writers[brief.operator](brief, talk)

    def send(self, request: ChildRequest) -> Reply:
        """The model's answer to one request."""
        return self.model.complete(request.system, request.messages, child=request.child)

    def close(self) -> None:
        """Cancel the requests of other threads; they end with `ProposerError`."""
        end_requests(self.model)

    # ---- the operators -----------------------------------------------------------------------------------------------

    def _implement(self, brief: Brief, talk: Conversation) -> Proposal:
        idea = self._idea(brief, talk)
        turn = Message(role="user", content=prompts.implement(brief, idea, self.settings.prompt_option))
        base = brief.parents[0].kernel.source if brief.parents else None
        return self._child(brief, talk, [turn], idea=idea, base=base)

    def _cross(self, brief: Brief, talk: Conversation) -> Proposal:
        if len(brief.parents) < 2:
            return self._implement(brief, talk)
        turn = Message(role="user", content=prompts.cross(brief))
        return self._child(brief, talk, [turn], idea=None, base=brief.parents[0].kernel.source)

    def _repair(self, brief: Brief, talk: Conversation) -> Proposal:
        failure = brief.repair
        if failure is None:
            raise ProposerError("a repair without a failed child; the brief's `repair` must name it")
        source = failure.kernel.source
        messages = [
            Message(role="user", content=prompts.repair_task(brief, failure)),
            Message(role="assistant", content=f"```python\n{source.rstrip()}\n```"),
            Message(role="user", content=prompts.repair(failure)),
        ]
        return self._child(brief, talk, messages, idea=failure.idea, base=source)

    # ---- stage one ---------------------------------------------------------------------------------------------------

    def _idea(self, brief: Brief, talk: Conversation) -> Idea:
        """The brief's idea; else one of the model's, or one of the playbook's when the model has no new one."""
        if brief.idea is not None:
            return brief.idea
        task = brief.task
        fitting = self.playbook.ideas_for(task.problem.source, device_type=task.device_type, device=task.device)
        languages = frozenset(map(playbook_name, prompts.backends(brief)))
        written = [entry for entry in fitting if not entry.backends.isdisjoint(languages)] or self.playbook.ideas
        filters = filters_for(brief, self.precision)
        entries = helpful(written, filters)
        shown, count = shortlist(entries, brief, SHORTLIST), self.settings.ideas_per_call
        request = prompts.ideas(brief, shown, self.playbook, filters=filters, count=count)
        turn = Message(role="user", content=request)
        reply = talk.ask(QuestionStage.IDEA, [turn])
        ideas = parse_ideas(reply.answer, self.playbook, proposed_by=reply.model)
        return brief.choose_in_turn(
            lambda taken: choose_idea(ideas, brief, taken) or playbook_idea(entries, brief, taken)
        )

    # ---- stage two ---------------------------------------------------------------------------------------------------

    def _child(
        self, brief: Brief, talk: Conversation, messages: list[Message], *, idea: Idea | None, base: str | None
    ) -> Proposal:
        """Ask for code and make the proposal; an answer that cannot be used gets one follow-up."""
        reply = talk.ask(QuestionStage.CODE, messages, idea=idea)
        if brief.operator is Operator.CROSS and idea is None:
            idea = _stated_idea(reply)
        try:
            return self._proposal(brief, talk, self._read(reply, base), idea)
        except AnswerError as error:
            complaint = str(error)
        if reply.text and not reply.truncated:
            follow_up = [
                *messages,
                Message(role="assistant", content=reply.answer),
                Message(role="user", content=prompts.again(complaint)),
            ]
            second = talk.ask(QuestionStage.CODE, follow_up, idea=idea, again=True)
            try:
                return self._proposal(brief, talk, self._read(second, base), idea)
            except AnswerError as error:
                complaint = f"{complaint} Asked again: {error}"
        return talk.proposal(BirthState.NO_CODE, idea=idea, note=complaint)

    def _read(self, reply: Reply, base: str | None) -> ParsedAnswer:
        """The source in a reply; the error also says what the user can do about it."""
        if reply.refusal:
            raise AnswerError(f"the endpoint would not answer: {reply.refusal}.")
        try:
            return read_answer(reply.answer, base, truncated=reply.truncated)
        except AnswerError as error:
            if reply.truncated:
                limit = self.settings.max_tokens
                raise AnswerError(f"the answer was cut short at {limit} tokens; raise llm.max_tokens.") from None
            if not reply.answer.strip():
                raise AnswerError("the answer was empty.") from None
            raise error

    def _proposal(self, brief: Brief, talk: Conversation, answer: ParsedAnswer, idea: Idea | None) -> Proposal:
        kernel = Kernel.from_source(answer.source)
        how = f"{answer.edits} edit{'' if answer.edits == 1 else 's'}" if answer.edits else "whole file"
        note = f"{idea.title if idea else 'no idea stated'} ({how})"
        if brief.repair is not None:
            verdict = verdict_words(brief.repair.evaluation.verdict)
            note = f"asked once more: {note}" if brief.repair.like else f"repair of {verdict}: {note}"
        if brief.known(kernel.id):
            return talk.proposal(BirthState.DUPLICATE, kernel=kernel, idea=idea, note=f"nothing new: {note}")
        return talk.proposal(BirthState.CREATED, kernel=kernel, idea=idea, note=note)


def _stated_idea(reply: Reply) -> Idea:
    """The idea behind a crossing, from the answer's line ``IDEA: …``."""
    line = re.search(
        r"^[^\w\n]{0,20}IDEA[^\w\n:]{0,20}:[^\w\n]{0,20}+(.+)$", reply.answer, re.MULTILINE | re.IGNORECASE
    )
    stated = " ".join(line[1].split()).strip("*_ ") if line else "Two kernels combined"
    return Idea(title=one_line(stated, TITLE_LENGTH), mechanism=stated, technique=RECOMBINE, proposed_by=reply.model)
