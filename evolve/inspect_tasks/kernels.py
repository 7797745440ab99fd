"""Inspect's task ``kbevolve/kernels``: a model writes a kernel for each problem of a suite, and our judge scores it.

    inspect eval kbevolve/kernels --model openai/gpt-5 -T suite=kernelbench -T levels=1

The solver asks as a run of kbevolve does for its first child: an idea, the code, and repairs with the judge's message.
The scorer reads the last answer of any solver.
"""

import statistics
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from random import Random

from anyio import to_thread
from inspect_ai import Task, task
from inspect_ai.dataset import Sample
from inspect_ai.model import GenerateConfig, ModelOutput
from inspect_ai.scorer import Metric, SampleScore, Score, Scorer, Target, grouped, mean, metric, scorer
from inspect_ai.solver import Generate, Solver, TaskState, solver

from kbevolve.archive.formatting import verdict_words
from kbevolve.archive.record_json import plain
from kbevolve.archive.records import Kernel, Operator, Verdict
from kbevolve.archive.report.scores import fast_p as share_above
from kbevolve.configs.errors import UsageError
from kbevolve.configs.fetch import fetched_folder
from kbevolve.configs.suites import BUILTIN, SuiteProblem, chosen, suite_problems
from kbevolve.evolve.inspect_tasks.judge import TaskJudge
from kbevolve.evolve.inspect_tasks.model import InspectModel
from kbevolve.evolve.proposers.base import Brief, IslandState, KernelTask
from kbevolve.evolve.proposers.codegen.edits import read_answer
from kbevolve.evolve.proposers.codegen.languages import check_backends, named_backends
from kbevolve.evolve.proposers.codegen.proposer import LLMProposer
from kbevolve.evolve.proposers.codegen.whole_file import AnswerError
from kbevolve.evolve.runs.settings import settings_and_devices
from kbevolve.evolve.state.attempts import Failure
from kbevolve.islands.policy import FREE

#: Names in Inspect's arguments, where ``1,2`` is a list and ``1`` a number.
Names = str | int | Sequence[str | int]


@task
def kernels(
    suite: str = BUILTIN,
    patterns: Names = "",
    levels: Names = "",
    limit: int = 0,
    repairs: int = 1,
    p: float = 1.0,
    precision: str = "fp32",
    device: str = "auto",
    backend: str = "any",
    prompt_option: str = "one_shot",
    kernelbench: str = "",
) -> Task:
    """Kernels for the problems of a suite.

    Args:
        suite: "builtin", "kernelbench" or a folder of problems.
        patterns: numbers, names or patterns of problems, as `kbevolve bench` takes them.
        levels: only these.
        limit: only so many problems; 0 for all.
        repairs: how often a kernel that fails is sent back with the judge's message.
        p: threshold of fast_p.
        precision: of the problems.
        device: to judge on.
        backend: language of the kernels, as of `kbevolve run`.
        prompt_option: "zero_shot", "one_shot" or "few_shot", as of KernelBench.
        kernelbench: a checkout of KernelBench; "" for the one of `kbevolve problems fetch`.
    """
    overrides = {
        "evaluation.precision": precision,
        "device": device,
        "search.backend": backend,
        "llm.prompt_option": prompt_option,
    }
    settings, devices = settings_and_devices(overrides=overrides)
    check_backends(settings.search, devices.device.type, devices.device.description)
    checkout = Path(kernelbench) if kernelbench else fetched_folder()
    known = suite_problems(suite, kernelbench=checkout if checkout.is_dir() else None)
    found = chosen(known, patterns=_listed(patterns), levels=_listed(levels), limit=limit)
    problems = {one.name: one.problem for one in found if one.problem}
    if not problems:
        raise UsageError(f"no problem of {suite} can be read: {found[0].error}")
    judge = TaskJudge(settings, devices, problems)
    return Task(
        dataset=[_sample(one, one.problem.source_for(devices.device.type)) for one in found if one.problem],
        solver=write_kernel(judge, repairs=repairs),
        scorer=judged(judge),
        metrics=[
            {"correct": [_by_level("correct", mean())], "speedup": [_by_level("geomean", geomean())]},
            _by_level(f"fast_{p:g}", fast_p(p)),
        ],
        config=GenerateConfig(temperature=settings.llm.temperature, max_tokens=settings.llm.max_tokens),
        metadata={"device": devices.device.fingerprint, "precision": precision},
    )


@solver
def write_kernel(judge: TaskJudge, *, repairs: int = 1) -> Solver:
    """Asks for an idea and for its kernel, and sends a kernel that fails back with what the judge found."""

    async def solve(state: TaskState, generate: Generate) -> TaskState:
        problem, settings = judge.problems[str(state.sample_id)], judge.settings
        model = InspectModel()
        writer = LLMProposer(
            model,
            settings.llm,
            precision=settings.evaluation.precision,
            libraries=settings.evaluation.allow_library,
        )
        target = KernelTask(
            problem=problem,
            device_type=judge.device.type,
            device=judge.device.description,
            card=await judge.card(problem),
        )
        named = named_backends(settings.search)
        island = IslandState(policy=replace(FREE, backend=named[0] if named else None))
        failure: Failure | None = None
        for turn in range(repairs + 1):
            brief = Brief(
                task=target,
                operator=Operator.REPAIR if failure else Operator.REWRITE,
                parents=(),
                repair=failure,
                island=island,
                known=lambda kernel: False,
                rng=Random(f"{state.sample_id}/{state.epoch}/{turn}"),
            )
            proposal = await to_thread.run_sync(writer.propose, brief)
            state.messages = list(model.messages)
            if proposal.kernel is None:
                break
            found = await judge.evaluate(problem, proposal.kernel)
            # An answer may have been edits: what the scorer reads is the whole file.
            state.output = ModelOutput.from_content(proposal.model, f"```python\n{proposal.kernel.source}\n```")
            if found.verdict is Verdict.CORRECT:
                break
            failure = Failure(kernel=proposal.kernel, evaluation=found, idea=proposal.idea)
        return state

    return solve


@scorer(metrics=[])
def judged(judge: TaskJudge) -> Scorer:
    """The verdict on the kernel in the last answer: whether it is correct, and its speedup over eager, else 0."""

    async def score(state: TaskState, target: Target) -> Score:
        try:
            kernel = Kernel.from_source(read_answer(state.output.completion, None).source)
        except AnswerError as error:
            return Score(value={"correct": 0.0, "speedup": 0.0}, explanation=str(error))
        found = await judge.evaluate(judge.problems[str(state.sample_id)], kernel)
        right = found.verdict is Verdict.CORRECT
        words = [verdict_words(found.verdict), found.message, *(f"[{tag}]" for tag in found.tags)]
        facts = {name: value for name, value in plain(found).items() if name != "blocks"}
        return Score(
            value={"correct": float(right), "speedup": found.timing.speedup or 0.0 if right else 0.0},
            answer=kernel.source,
            explanation="\n".join(filter(None, words)),
            metadata=facts,
        )

    return score


@metric
def fast_p(p: float) -> Metric:
    """Share of the samples with a correct kernel more than `p` times as fast as eager, as KernelBench defines it."""

    def share(scores: list[SampleScore]) -> float:
        values = [one.score.as_dict() for one in scores]
        return share_above([value["speedup"] if value["correct"] else None for value in values], p) if values else 0.0

    return share


@metric
def geomean() -> Metric:
    """Geometric mean of the speedups of correct kernels; 0 without one."""

    def average(scores: list[SampleScore]) -> float:
        speedups = [one.score.as_float() for one in scores if one.score.as_float() > 0]
        return statistics.geometric_mean(speedups) if speedups else 0.0

    return average


def _by_level(name: str, one: Metric) -> Metric:
    return grouped(one, "level", name_template=f"{name} level {{group_name}}", all_label=f"{name} all")


def _sample(one: SuiteProblem, source: str) -> Sample:
    request = f"Write class ModelNew, a faster kernel for this problem.\n\n```python\n{source}\n```"
    return Sample(id=one.name, input=request, metadata={"level": one.level, "title": one.title})


def _listed(names: Names) -> list[str]:
    parts = [names] if isinstance(names, str | int) else names
    return [word for part in parts for word in str(part).split(",") if word]
