"""People and agents as the model: a recorded answer answers a request, and a request without one is an open question.

The requests of a child are the same as a model's, byte for byte, and so is everything that is done with an answer.
Nothing is remembered outside the archive, so a resumed run proceeds as far as the answers reach and asks the open
questions under the same ids.
"""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count

from kbevolve.archive.conversations import Question, QuestionAnswer, Questions, RequestPlace, parse_id
from kbevolve.archive.records import Idea
from kbevolve.configs.errors import Unanswered
from kbevolve.configs.playbook import load_playbook
from kbevolve.evolve.llm.client import Message, Reply
from kbevolve.evolve.proposers.base import Brief, Proposal
from kbevolve.evolve.proposers.codegen.conversation import ChildRequest
from kbevolve.evolve.proposers.codegen.ideas import parse_ideas
from kbevolve.evolve.proposers.codegen.proposer import LLMProposer


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenQuestion:
    """A question with everything that a model would receive."""

    question: Question
    #: Kernel ids, the main parent first; the failed kernel first for a repair.
    parents: tuple[str, ...]
    system: str
    messages: tuple[Message, ...]
    #: What the person or agent should know beside the prompt; "" for nothing.
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Interaction:
    """The questions and answers of a run during one session. Thread-safe."""

    questions: Questions
    #: Questions without an answer, in the order in which they arose.
    open: list[OpenQuestion] = field(default_factory=list)

    def ordered(self) -> list[OpenQuestion]:
        """Questions without an answer, the oldest generation first."""
        return sorted(self.open, key=lambda one: one.question.place)


class NoModel:
    """The `LanguageModel` of a run that asks no model."""

    def complete(self, system: str, messages: Sequence[Message], *, child: str) -> Reply:
        """Raises Unanswered."""
        raise Unanswered("no model is asked")


@dataclass(frozen=True, slots=True, kw_only=True)
class InteractiveProposer:
    """Writes children from recorded answers; the writer's model, if there is one, answers the rest."""

    interaction: Interaction
    #: Makes the requests.
    writer: LLMProposer

    def propose(self, brief: Brief) -> Proposal:
        """Write one child.

        Raises:
            Unanswered: a request has no recorded answer, and there is no model to ask.
            ProposerError: the model cannot be reached.
        """
        numbers = count(1)

        def answer(request: ChildRequest) -> Reply:
            found = parse_id(f"{brief.child}/q{next(numbers)}")
            assert found is not None, f"a brief without a child: {brief.child!r}"
            recorded, note = self._recorded(found[1], request.idea)
            if recorded is not None:
                return recorded
            with suppress(Unanswered):
                return self.writer.send(request)
            run = self.interaction.questions.run
            failed = (brief.repair.kernel.id,) if brief.repair else ()
            question = Question(run=run, place=found[1], operator=brief.operator, stage=request.stage)
            self.interaction.open.append(
                OpenQuestion(
                    question=question,
                    parents=failed + tuple(parent.kernel.id for parent in brief.parents),
                    system=request.system,
                    messages=request.messages,
                    note=note,
                )
            )
            raise Unanswered(f"{question.id} has no answer yet; `kbevolve ask` shows it")

        return self.writer.propose_with(answer, brief)

    def close(self) -> None:
        """Cancel the requests of other threads."""
        self.writer.close()

    def _recorded(self, place: RequestPlace, idea: Idea | None) -> tuple[Reply | None, str]:
        """The recorded answer, None when there is none; and a note about code that could not be used."""
        questions = self.interaction.questions
        answer = questions.answer(place)
        if answer is not None:
            return Reply(text=answer.text, model=answer.by), ""
        before = questions.answer(place._replace(number=place.number - 1))
        if before is None or before.following is None:
            return None, ""
        if _has_idea(before, idea):
            return Reply(text=before.following, model=before.by), ""
        return None, "the idea that was answered together with code had been tried before; this idea replaces it"


def _has_idea(answer: QuestionAnswer, idea: Idea | None) -> bool:
    """Whether the code in `answer` is for this idea; an answer without text leaves the idea to us."""
    if not answer.text:
        return True
    ideas = parse_ideas(answer.text, load_playbook(), proposed_by=answer.by)
    return idea is not None and idea.title in {one.title for one in ideas}
