"""What every `Proposer` must do. To test another one: add a maker to `MAKERS`, its name and what it needs."""

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from random import Random

import pytest

from kbevolve.archive.conversations import Question, QuestionAnswer, QuestionStage, RequestPlace
from kbevolve.archive.records import BirthState, Kernel, Operator
from kbevolve.archive.store import Archive
from kbevolve.configs.settings import LLMSettings
from kbevolve.evolve.llm.client import build_language_model
from kbevolve.evolve.proposers.base import Brief, Proposal, Proposer
from kbevolve.evolve.proposers.codegen.proposer import LLMProposer
from kbevolve.evolve.proposers.interactive import Interaction, InteractiveProposer, NoModel
from kbevolve.evolve.proposers.tuning.proposer import TunablesProposer
from kbevolve.islands.island import Member
from tests.evolve import loopback
from tests.evolve.doubles import KnownEvaluator, brief_of, kernel, open_run, problem, settings
from tests.evolve.loopback import Loopback, Request, completion


def tuner() -> Iterator[tuple[Proposer, Operator]]:
    yield TunablesProposer(), Operator.TUNE


def crossing_tuner() -> Iterator[tuple[Proposer, Operator]]:
    yield TunablesProposer(), Operator.CROSS


def answer(request: Request) -> loopback.Answer:
    """A model whose answers depend on nothing but the question."""
    if "JSON" in request.last:
        ideas = [{"title": f"Idea {n}", "mechanism": f"change {n}", "technique": "unrolling"} for n in range(4)]
        return loopback.Answer(body=completion(json.dumps(ideas)))
    return loopback.Answer(body=completion(f"```python\n{kernel(UNROLL=8, TILE=64).source}```"))


def model(operator: Operator) -> Callable[[], Iterator[tuple[Proposer, Operator]]]:
    def make() -> Iterator[tuple[Proposer, Operator]]:
        with Loopback(otherwise=answer) as server:
            chosen = LLMSettings(model="loopback", api_base=server.base)
            language_model = build_language_model(chosen)
            assert language_model is not None
            yield LLMProposer(language_model, chosen), operator

    return make


def people() -> Iterator[tuple[Proposer, Operator]]:
    """A person who has answered everything already."""
    with Archive(":memory:") as archive:
        questions = archive.questions(open_run(archive, settings()))
        code = f"```python\n{kernel(UNROLL=8, TILE=64).source}```"
        for number, text in enumerate(('{"title": "Idea", "mechanism": "change"}', code), start=1):
            place = RequestPlace(1, 0, 0, number)
            asked = Question(run=questions.run, place=place, operator=Operator.MUTATE, stage=QuestionStage.IDEA)
            questions.hand_out([asked])
            questions.tell(place, QuestionAnswer(text=text, by="anna"))
        writer = LLMProposer(NoModel(), LLMSettings())
        yield InteractiveProposer(interaction=Interaction(questions=questions), writer=writer), Operator.MUTATE


MAKERS = {
    "tunables": tuner,
    "tunables, crossing": crossing_tuner,
    "model, editing": model(Operator.MUTATE),
    "model, rewriting": model(Operator.REWRITE),
    "model, crossing": model(Operator.CROSS),
    "people": people,
}


@pytest.fixture(params=sorted(MAKERS))
def implementation(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[Proposer, Operator]]:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    yield from MAKERS[request.param]()


def brief(operator: Operator, *, known: Callable[[str], bool] = lambda _: False) -> Brief:
    members = tuple(
        Member(kernel=parent, evaluation=KnownEvaluator().evaluate(problem(), parent), niche="m0c0d0l0")
        for parent in (kernel(UNROLL=2), kernel(TILE=32, PACK=1))
    )
    parents = members if operator is Operator.CROSS else members[:1]
    return brief_of(operator, *parents, child="g1/i0/s0", known=known, seed=11)


def test_it_gives_a_child_or_says_in_one_line_why_not(implementation: tuple[Proposer, Operator]) -> None:
    proposer, operator = implementation
    proposal = proposer.propose(brief(operator))
    assert (proposal.kernel is None) == (proposal.state in (BirthState.NO_CODE, BirthState.EXHAUSTED))
    assert "\n" not in proposal.note
    if proposal.kernel is None:
        assert proposal.note
    else:
        assert proposal.kernel == Kernel.from_source(proposal.kernel.source)


def test_the_brief_and_its_rng_decide_everything(implementation: tuple[Proposer, Operator]) -> None:
    proposer, operator = implementation
    asked = brief(operator)
    before = replace(asked, rng=Random(0))
    children: list[Proposal] = [proposer.propose(replace(asked, rng=Random(11))) for _ in range(2)]
    assert children[0].kernel == children[1].kernel
    assert children[0].idea == children[1].idea
    assert replace(asked, rng=before.rng) == before, "a brief is not to be changed"


def test_when_everything_is_known_it_does_not_raise(implementation: tuple[Proposer, Operator]) -> None:
    proposer, operator = implementation
    proposal = proposer.propose(brief(operator, known=lambda _: True))
    assert proposal.state is not BirthState.CREATED


def test_parents_are_kernels_of_the_brief(implementation: tuple[Proposer, Operator]) -> None:
    proposer, operator = implementation
    asked = brief(operator)
    proposal = proposer.propose(asked)
    ids = {parent.kernel.id for parent in asked.parents}
    assert proposal.parents is None or set(proposal.parents) <= ids
