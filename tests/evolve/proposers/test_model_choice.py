"""Several models: the child's own random numbers choose one, and it alone hears of the child."""

import json
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from kbevolve.archive.records import BirthState, Operator
from kbevolve.configs.errors import ProposerError
from kbevolve.configs.prices import Price, Prices
from kbevolve.configs.settings import Settings
from kbevolve.evolve.proposers.base import Brief, Proposal, Proposer
from kbevolve.evolve.proposers.factory import build_proposers, give_up, proposer_words
from kbevolve.evolve.proposers.model_choice import SeveralModels
from kbevolve.evolve.state.knowledge import Memory, Spending
from kbevolve.islands.credit.credit import Credit
from kbevolve.islands.island import Member
from kbevolve.islands.policy import VENTURE, policy_of
from tests.evolve.doubles import KnownEvaluator, ScriptedProposer, brief_of, kernel, problem
from tests.evolve.loopback import Answer, Loopback, Request, completion

KEYS = {"LARGE_KEY": "sk-large-0123456789", "SMALL_KEY": "sk-small-0123456789"}


def answer(request: Request) -> Answer:
    if "JSON" in request.last:
        ideas = [{"title": f"Idea {n}", "mechanism": "m", "technique": "unrolling"} for n in range(4)]
        return Answer(body=completion(json.dumps(ideas)))
    return Answer(body=completion("no code"))


@pytest.fixture
def servers(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Loopback]]:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    for name, key in KEYS.items():
        monkeypatch.setenv(name, key)
    with ExitStack() as stack:
        yield {name: stack.enter_context(Loopback(otherwise=answer)) for name in ("large", "small")}


def settings(servers: dict[str, Loopback], **changes: Any) -> Settings:
    models = [
        {"name": name, "weight": weight, "api_base": servers[name].base, "api_key_variable": f"{name.upper()}_KEY"}
        for name, weight in (("large", 3), ("small", 1))
    ]
    models[1] |= {"temperature": 0.25, "max_tokens": 512}
    return Settings.from_tree({"llm": {"models": models, **changes}})


def brief(seed: int, **changes: Any) -> Brief:
    parent = kernel(UNROLL=2)
    found = KnownEvaluator().evaluate(problem(), parent)
    return brief_of(Operator.REWRITE, Member(kernel=parent, evaluation=found, niche="m0"), seed=seed, **changes)


def named(name: str) -> Proposer:
    return ScriptedProposer(lambda _: Proposal(state=BirthState.NO_CODE, model=name))


def drawn(weights: dict[str, float], seeds: range) -> list[str]:
    several = SeveralModels(proposers={name: named(name) for name in weights}, weights=weights)
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
    authors = Credit()
    for _ in range(children):
        for name, gain in gains.items():
            authors = authors.with_child(name, gain)
    tokens = 10_000 * children
    spending = {name: Spending(births=children, prompt_tokens=tokens, completion_tokens=tokens) for name in gains}
    return Memory(authors=authors, spending=spending)


def chosen_by_credit(memory: Memory, *, prices: Prices, names: tuple[str, ...]) -> Counter[str]:
    weights = dict.fromkeys(names, 1.0)
    several = SeveralModels(
        proposers={name: named(name) for name in names}, weights=weights, bandit=True, prices=prices
    )
    return Counter(several.propose(brief(seed, memory=memory)).author for seed in range(1000))


def test_the_model_that_brings_more_is_asked_more_and_none_is_given_up() -> None:
    memory = learnt({"a": 0.2, "b": None})
    counts = chosen_by_credit(memory, prices=Prices(), names=("a", "b"))
    assert 850 < counts["a"] < 960
    assert counts["b"] > 50
    assert chosen_by_credit(Memory(), prices=Prices(), names=("a", "b"))["a"] == pytest.approx(500, abs=60)


def test_what_counts_is_what_a_dollar_brings_where_all_prices_are_known() -> None:
    memory = learnt({"dear": 0.15, "cheap": 0.1})
    assert chosen_by_credit(memory, prices=PRICED, names=("dear", "cheap"))["cheap"] > 850
    assert chosen_by_credit(memory, prices=Prices(), names=("dear", "cheap"))["dear"] > 500
    both = learnt({"dear": 0.15, "free": 0.1})
    assert chosen_by_credit(both, prices=PRICED, names=("dear", "free"))["dear"] > 500, "one of them has no price"
    unasked = chosen_by_credit(learnt({"dear": 0.1}), prices=PRICED, names=("dear", "cheaper"))
    assert unasked["cheaper"] > 500, "a model that nobody asked yet costs as much as the others' tokens at its price"


def test_a_cheap_model_that_writes_nothing_is_no_bargain() -> None:
    memory = learnt({"dear": 0.15, "cheap": None}, children=30)
    assert chosen_by_credit(memory, prices=PRICED, names=("dear", "cheap"))["dear"] > 500


def test_the_settings_ask_for_the_bandit(servers: dict[str, Loopback]) -> None:
    for choice, bandit in (("weights", False), ("bandit", True)):
        writer = build_proposers(settings(servers, model_choice=choice))[Operator.REWRITE]
        assert isinstance(writer, SeveralModels)
        assert writer.bandit is bandit
        assert writer.propose(brief(3)).author in ("large", "small"), "though the endpoint calls them otherwise"


def test_all_requests_of_a_child_go_to_one_model(servers: dict[str, Loopback]) -> None:
    writer = build_proposers(settings(servers))[Operator.REWRITE]
    asked = []
    for seed in range(12):
        before = {name: len(server.requests) for name, server in servers.items()}
        writer.propose(brief(seed))
        grown = {name: len(server.requests) - before[name] for name, server in servers.items()}
        assert sorted(grown.values()) == [0, 3], "ideas, code, and code asked for again"
        asked.append(max(grown, key=lambda name: grown[name]))
    assert set(asked) == {"large", "small"}
    again = build_proposers(settings(servers))[Operator.REWRITE]
    for seed in range(3):
        before = len(servers[asked[seed]].requests)
        again.propose(brief(seed))
        assert len(servers[asked[seed]].requests) > before, "another choice for the same random numbers"


def test_each_model_has_its_own_parameters_and_its_own_key(servers: dict[str, Loopback]) -> None:
    writer = build_proposers(settings(servers, temperature=0.75))[Operator.REWRITE]
    for seed in range(12):
        writer.propose(brief(seed))
    for name, temperature, tokens in (("large", 0.75, 16000), ("small", 0.25, 512)):
        for request in servers[name].requests:
            assert request.headers["authorization"] == f"Bearer {KEYS[name.upper() + '_KEY']}"
            assert (request.body["model"], request.body["temperature"]) == (name, temperature)
            assert request.body["max_tokens"] == tokens


def test_an_island_that_ventures_asks_warmer_but_never_hotter_than_endpoints_take(servers: dict[str, Loopback]) -> None:
    asked = []
    for temperature in (0.8, 1.8):
        llm = {"model": "large", "api_base": servers["large"].base, "temperature": temperature}
        writer = build_proposers(Settings.from_tree({"llm": llm}))[Operator.REWRITE]
        for policy in (policy_of(0, islands=3, device_type="cpu"), VENTURE):
            servers["large"].requests.clear()
            writer.propose(brief(5, policy=policy))
            (once,) = {request.body["temperature"] for request in servers["large"].requests}
            asked.append(once)
    assert asked == pytest.approx([0.8, 1.0, 1.8, 2.0])


def test_a_single_entry_draws_nothing(servers: dict[str, Loopback]) -> None:
    """So that a run with one model is the same, however the model is written."""
    entry = {"name": "large", "api_base": servers["large"].base}
    texts = []
    for llm in ({"models": [entry]}, {"model": "large", "api_base": servers["large"].base}):
        build_proposers(Settings.from_tree({"llm": llm}))[Operator.REWRITE].propose(brief(5))
        texts.append([request.body for request in servers["large"].requests])
        servers["large"].requests.clear()
    assert texts[0] == texts[1]


def test_all_models_share_one_pace(servers: dict[str, Loopback]) -> None:
    several = build_proposers(settings(servers, parallel=1))[Operator.REWRITE]
    assert isinstance(several, SeveralModels)
    paces = {id(one._model.pace) for writer in several.proposers.values() for one in writer.proposers.values()}  # type: ignore[attr-defined]
    assert len(paces) == 1


def test_requests_of_all_models_can_be_given_up(servers: dict[str, Loopback]) -> None:
    proposers = build_proposers(settings(servers))
    give_up(proposers)
    for seed in range(6):
        with pytest.raises(ProposerError, match="given up"):
            proposers[Operator.REWRITE].propose(brief(seed))
    assert not servers["large"].requests
    assert not servers["small"].requests


def test_the_display_names_them_all(servers: dict[str, Loopback]) -> None:
    assert proposer_words(settings(servers)) == "large (3), small (1)"


def test_a_missing_key_of_one_is_an_error(servers: dict[str, Loopback], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    with pytest.raises(ProposerError, match="no key for model 'b'"):
        build_proposers(Settings.from_tree({"llm": {"models": [
            {"name": "a", "api_base": servers["large"].base}, {"name": "b"},
        ]}}))  # fmt: skip
