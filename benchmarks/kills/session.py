"""One session of a run in a process of its own, built as `kbevolve run` and `kbevolve resume` build it."""

import json
import os
import sys
import time
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from kbevolve.archive.records import Run
from kbevolve.archive.store import Archive
from kbevolve.configs.catalog import find_problem
from kbevolve.configs.settings import LLMSettings, Settings
from kbevolve.evaluators.device.devices import Device
from kbevolve.evolve.llm.client import LanguageModel, Message, ModelMaker, Reply, build_language_model, end_requests
from kbevolve.evolve.llm.rate_limit import RateLimit
from kbevolve.evolve.llm.replies import cached
from kbevolve.evolve.proposers.factory import build_proposers
from kbevolve.evolve.proposers.interactive import Interaction
from kbevolve.evolve.runs.evaluators import JudgeDevices
from kbevolve.evolve.runs.session import open_run, run_session, settings_of
from kbevolve.evolve.state.context import RunContext

PROBLEM = "L1/gelu"
#: What is noted of an answer: it has reached the process, and the search gets it.
ARRIVED, HANDED_ON = "arrived", "handed on"
DEVICE = Device(type="cpu", index=0, fingerprint="cpu/fictitious", description="a device that is not there")


def settings_for(base: str, seed: int) -> Settings:
    """A run of three islands whose generations overlap, with repairs, migration and contests."""
    search = {"generations": 8, "islands": 3, "lookahead": 1, "migration_every": 3, "seed": seed, "repair_turns": 1}
    return Settings.from_tree(
        {
            "search": search,
            "llm": {"model": "scripted-1", "api_base": base, "retries": 0},
            "evaluation": {"confirm_rounds": 2, "finalists": 2, "baselines": False},
            "work": {"width": 3},
            "inductor_seed": False,
        }
    )


def begin(archive: Path, settings: Settings) -> None:
    """Write down a new run."""
    with Archive(archive) as opened:
        open_run(opened, find_problem(PROBLEM), DEVICE, settings)


def start(archive: Path, answers: Path, key: str) -> int:
    """Begin a session of the archive's run in a new process; its id. It ends with code 0 once the run is over.

    The process is forked, so that it begins with nothing but what was imported: a start costs milliseconds.

    Args:
        archive: where the run is.
        answers: a file to which the process adds every answer of a model twice: when it has it, before it does anything
            else, and when the search gets it.
        key: the name of the session for the endpoint.
    """
    process = os.fork()
    if process == 0:
        _work(archive, answers, key)
    return process


@dataclass(frozen=True, slots=True, kw_only=True)
class _Watched:
    """A model whose answers are noted, with where that was and when."""

    model: LanguageModel
    noted: int
    where: str

    def complete(self, system: str, messages: Sequence[Message], *, child: str = "") -> Reply:
        reply = self.model.complete(system, messages, child=child)
        line = json.dumps({"what": self.where, "at": time.time(), "request": named_in(reply.text)}) + "\n"
        os.write(self.noted, line.encode())
        return reply

    def close(self) -> None:
        end_requests(self.model)


def _watched(make: ModelMaker, noted: int, where: str) -> ModelMaker:
    def made(settings: LLMSettings, rate_limit: RateLimit) -> LanguageModel | None:
        model = make(settings, rate_limit)
        return model and _Watched(model=model, noted=noted, where=where)

    return made


def named_in(text: str) -> str:
    """The request that an answer of the scripted model says it answers."""
    return text.split()[1].rstrip(":")


def _work(path: Path, answers: Path, key: str) -> NoReturn:
    code = 1
    try:
        os.environ["OPENAI_API_KEY"] = key
        noted = os.open(answers, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        make = _watched(build_language_model, noted, ARRIVED)
        with Archive(path, create=False) as archive:
            run: Run = archive.runs.get()
            settings = settings_of(run, {})
            proposers = build_proposers(
                settings,
                _watched(cached(make, archive.replies(run)), noted, HANDED_ON),
                Interaction(questions=archive.questions(run)),
            )
            problem = archive.problems.get(run.problem)
            run_session(
                RunContext(archive=archive, run=run, problem=problem, device=DEVICE, settings=settings),
                JudgeDevices(devices=(DEVICE,), device=DEVICE),
                judge="benchmarks.kills.judge:FictitiousJudge",
                proposers=proposers,
            )
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)
