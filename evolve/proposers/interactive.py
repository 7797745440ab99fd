"""People and agents outside as the model: what was told answers a request, and what was not is a question.

A child's requests are the same as a model's, byte for byte, and so is everything that is done with an answer: the
proposer around it does not know who answers. Nothing is remembered but what the archive holds, so a run that is entered
again gets as far as the answers reach, and asks what is open under the same ids.
"""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from kbevolve.archive.conversations import Answer, Place, Question, Questions, Stage, parse_id
from kbevolve.configs.errors import Unanswered
from kbevolve.configs.playbook import load_playbook
from kbevolve.configs.settings import LLMSettings, Precision
from kbevolve.evolve.llm.client import LanguageModel, Message, Reply, end_requests
from kbevolve.evolve.proposers.base import Brief, Proposal
from kbevolve.evolve.proposers.codegen.ideas import parse_ideas
from kbevolve.evolve.proposers.codegen.proposer import LLMProposer

#: What only the prompt for ideas says (`codegen/templates/ideas.jinja`): all others ask for code.
_WANTS_IDEAS = "Answer with JSON and nothing else"


@dataclass(frozen=True, slots=True, kw_only=True)
class Open:
    """A question with everything that a model would be sent."""

    question: Question
    #: Kernel ids, the main parent first; the failed kernel first for a repair.
    parents: tuple[str, ...]
    system: str
    messages: tuple[Message, ...]
    #: What the one who is asked should know beside the prompt; "" for nothing.
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outside:
    """The questions and answers of a run during one sitting. Threads may share it."""

    questions: Questions
    #: What nobody has answered, in the order in which it came up.
    open: list[Open] = field(default_factory=list)

    def in_order(self) -> list[Open]:
        """What nobody has answered, the oldest generation first."""
        return sorted(self.open, key=lambda one: one.question.place)


class Nobody:
    """The `LanguageModel` of a run in which no model is asked."""

    def complete(self, system: str, messages: Sequence[Message], *, child: str = "") -> Reply:
        """Raises Unanswered."""
        raise Unanswered("no model is asked")


@dataclass(frozen=True, slots=True, kw_only=True)
class OutsideProposer:
    """Writes children by what was told; a model, if there is one, answers what nobody has told."""

    outside: Outside
    settings: LLMSettings
    precision: Precision = "fp32"
    model: LanguageModel | None = None

    def propose(self, brief: Brief) -> Proposal:
        """Write one child.

        Raises:
            Unanswered: nobody has told the answer to a request, and there is no model to ask.
            ProposerError: the model cannot be reached.
        """
        desk = _Desk(outside=self.outside, brief=brief, model=self.model)
        return LLMProposer(desk, self.settings, precision=self.precision).propose(brief)

    def close(self) -> None:
        """Give up requests that are under way in other threads."""
        end_requests(self.model)


@dataclass(slots=True, kw_only=True)
class _Desk:
    """Implements `LanguageModel` for one child."""

    outside: Outside
    brief: Brief
    model: LanguageModel | None
    _requests: int = 0

    def complete(self, system: str, messages: Sequence[Message], *, child: str = "") -> Reply:
        """As `LanguageModel.complete`; `Unanswered` when nobody has told."""
        self._requests += 1
        place = self._place(self._requests)
        told, note = self._told(place, messages)
        if told is not None:
            return Reply(text=told[0], model=told[1])
        if self.model is not None:
            with suppress(Unanswered):
                return self.model.complete(system, messages, child=child)
        brief = self.brief
        failed = (brief.repair.kernel.id,) if brief.repair else ()
        question = Question(
            run=self.outside.questions.run,
            place=place,
            operator=brief.operator,
            stage=Stage.IDEA if _WANTS_IDEAS in messages[-1].content else Stage.CODE,
        )
        self.outside.open.append(
            Open(
                question=question,
                parents=failed + tuple(parent.kernel.id for parent in brief.parents),
                system=system,
                messages=tuple(messages),
                note=note,
            )
        )
        raise Unanswered(f"nobody has answered {question.id}; `kbevolve ask` shows it")

    def _told(self, place: Place, messages: Sequence[Message]) -> tuple[tuple[str, str] | None, str]:
        """Text and teller of the answer, None when there is none; and a note on one that could not be taken."""
        answer = self.outside.questions.answer(place)
        if answer is not None:
            return (answer.text, answer.by), ""
        before = self.outside.questions.answer(place._replace(number=place.number - 1))
        if before is None or before.following is None:
            return None, ""
        if _carries(messages[-1].content, before):
            return (before.following, before.by), ""
        return None, "the idea that was told with code had been tried before; this one is asked for instead"

    def _place(self, number: int) -> Place:
        found = parse_id(f"{self.brief.child}/q{number}")
        assert found is not None, f"a brief of no child: {self.brief.child!r}"
        return found[1]


def _carries(prompt: str, answer: Answer) -> bool:
    """Whether a prompt asks for the idea that code was told for; whoever passed, passed whatever is asked."""
    ideas = parse_ideas(answer.text, load_playbook(), proposed_by=answer.by)
    return not answer.text or any(idea.title in prompt for idea in ideas)
