"""Correctness alone: a problem's trials with one kernel, without card, reference's worker and timing."""

import time
from dataclasses import replace

from kbevolve.archive.records import Evaluation, Kernel, changed
from kbevolve.configs.errors import EvaluatorError
from kbevolve.configs.problem import Problem
from kbevolve.evaluators.correctness.prepared import PreparedProblem
from kbevolve.evaluators.judging.context import JudgeContext, start_candidate
from kbevolve.evaluators.judging.pipeline import check_contestant


def check_alone(judge: JudgeContext, problem: Problem, kernel: Kernel) -> Evaluation:
    """The verdict of the trials, by the rules and in the processes of every evaluation.

    Raises:
        EvaluatorError: the reference fails, or no kernel can be told from one that ignores its input.
    """
    started = time.perf_counter()
    with judge.gate.exclusive():
        prepared = PreparedProblem(problem, judge.device, judge.settings)
    if prepared.degenerate and not judge.settings.force:
        raise EvaluatorError(f"{problem.name}: degenerate: {prepared.degenerate}; --force judges it nevertheless")
    candidate = start_candidate(judge, prepared, kernel.source)
    try:
        found, _ = check_contestant(judge, prepared, candidate, kernel)
    finally:
        candidate.close()
    tags = dict.fromkeys((*found.tags, *prepared.tags))
    return changed(replace(found, tags=tuple(tags)), seconds=time.perf_counter() - started)
