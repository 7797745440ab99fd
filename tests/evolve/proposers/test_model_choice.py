"""Several models: the random numbers of the brief choose one, which gets all requests of the child."""

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from kbevolve.archive.records import BirthState, Operator
from kbevolve.configs.errors import ProposerError
from kbevolve.configs.prices import Price, Prices
from kbevolve.configs.settings import LLMSettings, Settings
from kbevolve.evolve.llm.rate_limit import RateLimit
from kbevolve.evolve.proposers.base import Brief, Proposal, Proposer
from kbevolve.evolve.proposers.factory import build_proposers, give_up, proposer_words
from kbevolve.evolve.proposers.model_choice import ModelChoice
from kbevolve.evolve.state.knowledge import Spending
from kbevolve.evolve.state.memory import Memory
from kbevolve.islands.credit.credit import Credit
from kbevolve.islands.island import Member
from kbevolve.islands.policy import EXPLORATORY, policy_of
from tests.evolve.doubles import KnownEvaluator, ScriptedModel, ScriptedProposer, brief_of, kernel, problem

IDEAS = json.dumps([{"title": f"Idea {n}", "mechanism": "m", "technique": "unrolling"} for n in range(4)])
#: The settings and the limit with which a model was made, and the model.
Made = list[tuple[LLMSettings, RateLimit, ScriptedModel]]


@pytest.fixture
def made() -> Made:
    return []


def proposers(made: Made, settings: Settings) -> Mapping[Operator, Proposer]:
    """The proposers of scripted models, which are noted in `made`."""

    def make(own: LLMSettings, rate_limit: RateLimit) -> ScriptedModel:
        made.append((own, rate_limit, ScriptedModel(lambda asked: IDEAS if "JSON" in asked.last else "no code")))
        return made[-1][2]

    return build_proposers(settings, make)


def settings(**changes: Any) -> Settings:
    small = {"name": "small", "temperature": 0.25, "max_tokens": 512, "api_key_variable": "SMALL_KEY"}
    return Settings.from_tree({"llm": {"models": [{"name": "large", "weight": 3}, small], **changes}})


def requests(made: Made) -> Counter[str]:
    """Requests by model."""
    return sum((Counter({str(own.model): len(model.requests)}) for own, _, model in made), Counter())


PARENT = Member(kernel=kernel(UNROLL=2), evaluation=KnownEvaluator().evaluate(problem(), kernel(UNROLL=2)), niche="m0")
ASKED = brief_of(Operator.REWRITE, PARENT)


def brief(seed: int, **changes: Any) -> Brief:
    if changes:
        return brief_of(Operator.REWRITE, PARENT, seed=seed, **changes)
    return replace(ASKED, rng=Random(seed))


def named(name: str) -> Proposer:
    return ScriptedProposer(lambda _: Proposal(state=BirthState.NO_CODE, model=name))


def drawn(weights: dict[str, float], seeds: range) -> list[str]:
    several = ModelChoice(proposers={name: {1.0: named(name)} for name in weights}, weights=weights)
    return [several.propose(brief(seed)).model for seed in seeds]


def test_models_share_the_children_by_weight() -> None:
    names = Counter(drawn({"a": 3.0, "b": 1.0}, range(1000)))
    assert 0.70 < names["a"] / 1000 < 0.80
    assert names.keys() == {"a", "b"}


def test_the_same_random_numbers_choose_the_same_model() -> None:
    weights = {"a": 1.0, "b": 1.0, "c": 1.0}
    assert drawn(weights, range(20)) == drawn(weights, range(20))


PRICED = Prices(lists=({"dear": Price(prompt=10, completion=50), "cheap*": Price(prompt=0.1, completion=0.5)},))


def learnt(gains: dict[str, float | None], *, children: int = 12) -> Memory:
    """After children of each model with these gains (logs), each of 10,000 tokens both ways."""
    models = Credit()
    for _ in range(children):
        for name, gain in gains.items():
            models = models.with_child(name, gain)
    tokens = 10_000 * children
    spending = {name: Spending(births=children, prompt_tokens=tokens, completion_tokens=tokens) for name in gains}
    return Memory(models=models, spending=spending)


def chosen_by_credit(memory: Memory, *, prices: Prices, names: tuple[str, ...]) -> Counter[str]:
    weights = dict.fromkeys(names, 1.0)
    several = ModelChoice(
        proposers={name: {1.0: named(name)} for name in names}, weights=weights, bandit=True, prices=prices
    )
    asked = brief(0, memory=memory)
    return Counter(several.propose(replace(asked, rng=Random(seed))).model_alias for seed in range(1000))


def test_the_model_with_better_results_is_asked_more_and_none_is_dropped() -> None:
    memory = learnt({"a": 0.2, "b": None})
    counts = chosen_by_credit(memory, prices=Prices(), names=("a", "b"))
    assert 850 < counts["a"] < 960
    assert counts["b"] > 50
    assert chosen_by_credit(Memory(), prices=Prices(), names=("a", "b"))["a"] == pytest.approx(500, abs=60)


def test_gain_per_dollar_counts_where_all_prices_are_known() -> None:
    memory = learnt({"dear": 0.15, "cheap": 0.1})
    assert chosen_by_credit(memory, prices=PRICED, names=("dear", "cheap"))["cheap"] > 850
    assert chosen_by_credit(memory, prices=Prices(), names=("dear", "cheap"))["dear"] > 500
    both = learnt({"dear": 0.15, "free": 0.1})
    assert chosen_by_credit(both, prices=PRICED, names=("dear", "free"))["dear"] > 500, "one of them has no price"
    unasked = chosen_by_credit(learnt({"dear": 0.1}), prices=PRICED, names=("dear", "cheaper"))
    assert unasked["cheaper"] > 500, "a model that was not asked yet is priced with the tokens of the others"


def test_a_cheap_model_without_working_kernels_is_not_preferred() -> None:
    memory = learnt({"dear": 0.15, "cheap": None}, children=30)
    assert chosen_by_credit(memory, prices=PRICED, names=("dear", "cheap"))["dear"] > 500


@pytest.mark.parametrize(("choice", "bandit"), [("weights", False), ("bandit", True)])
def test_the_settings_ask_for_the_bandit(choice: str, bandit: bool, made: Made) -> None:
    writer = proposers(made, settings(model_choice=choice))[Operator.REWRITE]
    assert isinstance(writer, ModelChoice)
    assert writer.bandit is bandit
    proposal = writer.propose(brief(3))
    assert (proposal.model, proposal.model_alias in ("large", "small")) == ("m-1", True)


def test_all_requests_of_a_child_go_to_one_model(made: Made) -> None:
    writer = proposers(made, settings())[Operator.REWRITE]
    asked = []
    for seed in range(12):
        before = requests(made)
        writer.propose(brief(seed))
        ((name, count),) = (requests(made) - before).items()
        assert count == 3, "ideas, code, and code asked for again"
        asked.append(name)
    assert set(asked) == {"large", "small"}


def test_each_model_has_its_own_parameters(made: Made) -> None:
    proposers(made, settings(temperature=0.75))
    assert [(own.model, own.temperature, own.max_tokens, own.api_key_variable) for own, _, _ in made] == [
        ("large", 0.75, 16000, "OPENAI_API_KEY"),
        ("large", 0.9375, 16000, "OPENAI_API_KEY"),
        ("small", 0.25, 512, "SMALL_KEY"),
        ("small", 0.3125, 512, "SMALL_KEY"),
    ]


@pytest.mark.parametrize(("temperature", "expected"), [(0.8, (0.8, 1.0)), (1.8, (1.8, 2.0))])
def test_an_exploratory_island_asks_at_a_higher_temperature_up_to_the_limit_of_endpoints(
    temperature: float, expected: tuple[float, float], made: Made
) -> None:
    llm = {"model": "large", "temperature": temperature}
    writer = proposers(made, Settings.from_tree({"llm": llm}))[Operator.REWRITE]
    for policy, hot in ((policy_of(0, islands=3, device_type="cpu"), expected[0]), (EXPLORATORY, expected[1])):
        writer.propose(brief(5, policy=policy))
        assert [own.temperature for own, _, model in made if model.requests] == pytest.approx([hot])
        for _, _, model in made:
            model.requests.clear()


def test_a_single_entry_draws_nothing(made: Made) -> None:
    """So that a run with one model is the same, however the model is written."""
    for llm in ({"models": [{"name": "large"}]}, {"model": "large"}):
        proposers(made, Settings.from_tree({"llm": llm}))[Operator.REWRITE].propose(brief(5))
    first, second = (model.requests for _, _, model in made if model.requests)
    assert first == second


def test_all_models_share_one_rate_limit(made: Made) -> None:
    proposers(made, settings(parallel=1))
    assert len({id(rate_limit) for _, rate_limit, _ in made}) == 1


def test_requests_of_all_models_can_be_cancelled(made: Made) -> None:
    give_up(proposers(made, settings()))
    assert all(model.closed for _, _, model in made)


def test_the_display_names_all_models() -> None:
    assert proposer_words(settings()) == "large (3), small (1)"


def test_a_missing_key_of_one_model_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    models = [{"name": "a", "api_base": "http://127.0.0.1:1/v1"}, {"name": "b"}]
    with pytest.raises(ProposerError, match="no key for model 'b'"):
        build_proposers(Settings.from_tree({"llm": {"models": models}}))
