"""The prompt that begins a run, for a GPU that is known by its data sheet alone."""

from random import Random

from kbevolve.archive.records import Operator
from kbevolve.configs.hardware import DataSheet
from kbevolve.configs.playbook import load_playbook
from kbevolve.configs.problem import Problem
from kbevolve.configs.settings import Precision
from kbevolve.evolve.proposers.base import Brief, KernelTask
from kbevolve.evolve.proposers.codegen import prompts
from kbevolve.evolve.proposers.codegen.ideas import shortlist
from kbevolve.evolve.proposers.codegen.proposer import SHORTLIST


def first_prompt(problem: Problem, gpu: DataSheet, precision: Precision, *, count: int) -> tuple[str, str]:
    """System prompt, and the request for `count` ideas, before any kernel is measured."""
    brief = Brief(
        task=KernelTask(problem=problem, device_type="cuda", device=gpu.description),
        operator=Operator.REWRITE,
        parents=(),
        known=lambda kernel: False,
        rng=Random(0),
    )
    playbook = load_playbook()
    entries = playbook.ideas_for(problem.source, device_type="cuda", device=gpu.description)
    shown = shortlist(entries, brief, SHORTLIST)
    return prompts.system(brief, precision), prompts.ideas(brief, shown, playbook, count=count)
