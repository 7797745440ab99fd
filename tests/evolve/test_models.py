"""Several models: the child's own random numbers choose one, and it alone hears of the child."""

import json
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from random import Random
from typing import Any

import pytest

from kbevolve.archive.records import BirthState, Operator
from kbevolve.configs.errors import ProposerError
from kbevolve.configs.settings import Settings
from kbevolve.evolve.brief import Brief, Proposal, Proposer
from kbevolve.evolve.models import SeveralModels
from kbevolve.evolve.proposers import build_proposers, give_up, proposer_words
from kbevolve.islands.island import Member
from tests.evolve.doubles import KnownEvaluator, ScriptedProposer, kernel, problem
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
    facts: dict[str, Any] = {
        "problem": problem(), "device_type": "cpu", "device": "a double", "operator": Operator.REWRITE,
        "parents": (Member(kernel=parent, evaluation=found, niche="m0"),), "tried": {},
        "known": lambda _: False, "rng": Random(seed),
    }  # fmt: skip
    return Brief(**facts | changes)


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
    paces = {id(writer._model.pace) for writer in several.proposers.values()}  # type: ignore[attr-defined]
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
