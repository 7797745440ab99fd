"""Runs of a strategy against a scripted model on 127.0.0.1, and what they leave."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from hashlib import sha256
from itertools import count
from json import dumps
from pathlib import Path
from random import Random
from typing import Any

import pytest

from kbevolve.archive.records import Kernel, Operator, StopReason
from kbevolve.archive.store import Archive
from kbevolve.configs.settings import Settings
from kbevolve.evolve.llm.replies import cached, choose_models, recorded
from kbevolve.evolve.proposers.base import Proposer
from kbevolve.evolve.proposers.factory import build_proposers, give_up
from kbevolve.evolve.proposers.tuning.tunables import declared, with_values
from kbevolve.evolve.search.events import Observer
from kbevolve.evolve.strategies import check_strategy, fitted
from tests.evolve.doubles import KnownConfirmer, KnownEvaluator, kernel, open_run, search
from tests.evolve.loopback import Answer, Request, completion

IDEAS = ("Unroll the loop", "Larger tiles", "Pack pairs", "Fewer passes", "Wider loads", "Keep sums apart")


KINDS = ("good", "wrong", "known", "broken", "good", "prose")


def fickle(request: Request, kind: str | None = None, kinds: Sequence[str] = KINDS, *, new: bool = False) -> Answer:
    """A model as models are, but for one thing: the same request has the same answer.

    A third of its answers are good children; the others are wrong, broken, known already, or prose. `kind` decides
    which of them this one is. With `new` no child equals another.
    """
    rng = Random(sha256(dumps(request.messages).encode()).digest())
    if "Answer with JSON" in request.last:
        titles = [f"{title}, {rng.randrange(2, 99)} at a time" for title in rng.sample(IDEAS, 4)]
        ideas = [{"title": title, "mechanism": f"{title}.", "technique": "unrolling"} for title in titles]
        return Answer(body=completion(f"Here they are:\n```json\n{dumps(ideas)}\n```", usage=(900, 200)))
    if kind is None:
        # Nothing in the prompt of a repair is ever different, so that prose would come again for ever.
        kind = rng.choice(KINDS[:2] if "does not work" in request.last else kinds)
    return Answer(body=completion(_written(request, kind, rng, new), usage=(900, 300)))


class Cycling:
    """The same model, but its answers of all kinds come in turns."""

    def __init__(self) -> None:
        self._number = count()

    def __call__(self, request: Request) -> Answer:
        asks_for_code = "Answer with JSON" not in request.last
        return fickle(request, KINDS[next(self._number) % len(KINDS)] if asks_for_code else None)


def _written(request: Request, kind: str, rng: Random, new: bool) -> str:
    if kind == "prose":
        return "I would rather discuss this first: what is the batch size?"
    said = "".join(one["content"] for one in request.messages)
    quoted = [part.partition("```")[0] for part in said.split("```python\n")]
    kernels = [part for part in quoted if "class ModelNew" in part and declared(part)]
    parent = kernels[-1].rstrip() + "\n" if kernels else kernel().source
    tile, other = rng.choice(("8", "16", "32", "64")), rng.choice(("UNROLL", "PACK"))
    child = with_values(parent, {"WRONG": "0", "TILE": tile, other: "1" if other == "PACK" else rng.choice("1248")})
    if kind == "known":
        child = kernel(UNROLL=1).source
    elif kind == "wrong":
        child = with_values(child, {"WRONG": "1"})
    elif kind == "broken":
        child = child.replace("class ModelNew", f"broken = {rng.randrange(99)}\n\n\nclass ModelNew")
    if new:
        child = f"{child.rstrip()}\n\n\nNUMBER = {rng.randrange(10**9)}\n"
    if "<<<<<<< SEARCH" not in request.last:
        return f"```python\n{child}```"
    return f"I change its tiles.\n\n<<<<<<< SEARCH\n{parent}=======\n{child}>>>>>>> REPLACE"


def settings_of(strategy: str, *, evaluations: int | None = None, base: str = "", **search: Any) -> Settings:
    """Settings of a small run of a strategy, as the command would have fitted them."""
    chosen = {"generations": 8, "islands": 2, "migration_every": 3, "seed": 7, "strategy": strategy, **search}
    llm = {"model": "fickle-1", "api_base": base} if base else {}
    budget = {"evaluations": evaluations}
    evaluation = {"confirm_rounds": 2, "finalists": 2}
    return fitted(Settings.from_tree({"search": chosen, "llm": llm, "budget": budget, "evaluation": evaluation}))


def run_search(
    path: Path | str | Archive,
    settings: Settings,
    *,
    proposers: Mapping[Operator, Proposer] | None = None,
    evaluator: KnownEvaluator | None = None,
    starts: tuple[Kernel, ...] = (kernel(), kernel(TILE=16)),
    observer: Observer | None = None,
    record: Path | None = None,
    replay: Path | None = None,
) -> StopReason:
    """A session at the archive's run, or at a new one."""
    settings, make = choose_models(settings, record=record, replay=replay)
    archive = path if isinstance(path, Archive) else Archive(path)
    run = archive.runs.get() if archive.runs.summaries() else open_run(archive, settings)
    replies = archive.replies(run)
    proposers = proposers or build_proposers(settings, cached(make, replies) if record else make)
    check_strategy(settings, proposers)
    try:
        with recorded(record, settings.llm, replies):
            return search(
                archive,
                run,
                settings,
                evaluator or KnownEvaluator(),
                proposers=proposers,
                starts=starts,
                confirmer=KnownConfirmer(),
                width=2,
                observer=observer,
            ).run()
    finally:
        give_up(proposers)
        if archive is not path:
            archive.close()


def content(path: Path) -> dict[str, Any]:
    """Everything in an archive that is not about how long something took."""
    with Archive(path, create=False) as archive:
        run = archive.runs.get()
        births = archive.runs.births(run.id)
        return {
            "stopped": archive.runs.summary(run).stopped,
            "births": sorted((replace(birth, seconds=0.0) for birth in births), key=lambda birth: birth.id),
            "kernels": {birth.kernel: archive.kernels.get(birth.kernel).source for birth in births if birth.kernel},
            "ideas": archive.runs.ideas(run.id),
            "verdicts": archive.runs.evaluations(run.id),
            "placements": archive.runs.placements(run.id),
            "confirmed": [(one.generation, one.purpose, one.kernel) for one in archive.runs.confirmations(run.id)],
        }


@pytest.fixture
def no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
