"""A run that is killed and resumed chooses the same ideas, although its models answer in another order."""

import json
import time
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any

import pytest

from kbevolve.archive.records import Birth, Kernel, Operator
from kbevolve.archive.store import Archive
from kbevolve.configs.settings import LLMSettings
from kbevolve.evolve.llm.client import Message, Reply
from kbevolve.evolve.proposers.codegen.proposer import LLMProposer
from kbevolve.evolve.search import search as search_module
from tests.evolve.doubles import KnownEvaluator, open_run, search, settings
from tests.evolve.search.test_learnt_run import START

TITLES = ("Wide loads", "Larger tiles", "Shared memory", "Fewer launches", "Unrolled loops", "Warp shuffles")


class Killed(BaseException):
    """The process dies."""


class Hesitant:
    """Implements `LanguageModel`: the same six ideas for every child, after a delay of no pattern."""

    def complete(self, system: str, messages: Sequence[Message], *, child: str = "") -> Reply:
        time.sleep(Random().uniform(0, 0.01))
        if "JSON" in messages[-1].content:
            ideas = [{"title": title, "technique": "other", "expected_gain": 1.5} for title in TITLES]
            return Reply(text=json.dumps(ideas), model="hesitant")
        return Reply(text=f"```python\n{START}    child = '{child}'\n```", model="hesitant")


def go(archive: Archive) -> dict[str, str]:
    """Begin or resume a run of three islands; the title of the idea of each child."""
    chosen = settings(generations=4, islands=3, lookahead=2, tune_share=0, repair_turns=0, seed=3, patience=0.0)
    run = archive.runs.get() if archive.runs.summaries() else open_run(archive, chosen)
    proposers = dict.fromkeys(
        (Operator.MUTATE, Operator.REWRITE), LLMProposer(Hesitant(), LLMSettings(model="hesitant"))
    )
    search(archive, run, chosen, KnownEvaluator(), proposers=proposers, starts=[Kernel.from_source(START)]).run()
    ideas = archive.runs.ideas(run.id)
    return {one.id.partition("/")[2]: ideas[one.idea].title for one in archive.runs.births(run.id) if one.idea}


def die_after(archive: Archive, births: int) -> None:
    """Let the process die when it writes the next attempt after so many."""
    write, left = archive.add_birth, iter(range(births))

    def mortal(birth: Birth, **facts: Any) -> None:
        if next(left, None) is None:
            raise Killed
        write(birth, **facts)

    archive.add_birth = mortal  # type: ignore[method-assign]


def test_killed_at_any_child_it_goes_on_alike(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search_module, "INTERRUPTED_SECONDS", 0.0)
    whole = go(Archive(":memory:"))
    assert [whole[f"g1/i{island}/s0"] for island in range(3)] == list(TITLES[:3])
    assert len(set(whole.values())) == len(TITLES), "children of open generations do not repeat each other"
    for cut in (2, 5, 8, 12):
        with Archive(tmp_path / f"{cut}.db") as archive:
            die_after(archive, cut)
            with pytest.raises(Killed):
                go(archive)
        with Archive(tmp_path / f"{cut}.db") as archive:
            assert go(archive) == whole, cut
