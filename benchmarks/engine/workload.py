"""The run that is measured: its problem, its kernels, and instant verdicts."""

from functools import cache
from typing import Any

from kbevolve.archive.identity import digest
from kbevolve.archive.parts import grouped
from kbevolve.archive.records import (
    Backend,
    Evaluation,
    Kernel,
    Run,
    Verdict,
)
from kbevolve.archive.store import Archive
from kbevolve.configs.catalog import find_problem
from kbevolve.configs.problem import Problem
from kbevolve.configs.seeds import seed_files
from kbevolve.configs.settings import Settings

DEVICE = "benchmark"
ISLANDS = 4
SEED = 0
#: Of every ten children one is wrong.
WRONG = 0.1

#: Skeletons of the kernels in bulk; each falls in a niche of its own. Already normalised: no comment, no blank line.
SKELETONS = tuple(
    f"""import torch
import triton
import triton.language as tl
NUMBER = {{number}}
@triton.jit
def kernel(x, out, n, BLOCK: tl.constexpr):
    start = tl.program_id(0) * BLOCK
    at = start + tl.arange(0, BLOCK)
    {body}
    tl.store(out + at, value, mask=at < n)
class ModelNew(torch.nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        kernel[(x.numel() // 128,)](x, out, x.numel(), BLOCK=128)
        return out
"""
    for body in (
        "value = tl.load(x + at)",
        "value = tl.sum(tl.load(x + at))",
        "value = tl.dot(tl.load(x + at), tl.load(x + at))",
        "value = tl.load(x + at, eviction_policy='evict_first')",
    )
)


def chosen(generations: int) -> Settings:
    """Without migration, so that the bulk path knows every placement; no kernel improves on another for long."""
    search = {"generations": generations, "islands": ISLANDS, "migration_every": 0, "seed": SEED, "patience": 0}
    return Settings.from_tree({"search": search})


def problem() -> Problem:
    """Any; no kernel is judged."""
    return find_problem("L1/gelu")


def open_run(archive: Archive) -> Run:
    """The run, at its beginning."""
    archive.add_problem(problem())
    run = Run(
        id="engine",
        problem_name=problem().name,
        problem=problem().id,
        device=DEVICE,
        seed=SEED,
        settings=chosen(0).model_dump_json(),
    )
    archive.add_run(run)
    return run


def evaluation_of(kernel: Kernel) -> Evaluation:
    """The instant verdict: decided by the kernel's id. The starting kernel is correct."""
    draw = int(kernel.id, 16) / 2**64
    if kernel.id == start().id:
        draw = max(draw, WRONG)
    facts: dict[str, Any] = dict(kernel=kernel.id, problem=problem_id(), device=DEVICE, precision="fp32")
    if draw < WRONG:
        return grouped(Evaluation, **facts, verdict=Verdict.WRONG, message="error 3.1e-01 against the fp64 truth")
    return grouped(
        Evaluation,
        **facts,
        verdict=Verdict.CORRECT,
        time_ms=1 / draw,
        reference_ms=1.0,
        speedup=draw,
        speedup_low=draw * 0.99,
        speedup_high=draw * 1.01,
    )


@cache
def problem_id() -> str:
    """Id of the problem, whose file is not read a million times."""
    return problem().id


@cache
def start() -> Kernel:
    """The starting kernel of every island."""
    (file,) = (file for file in seed_files("L1/gelu", "cuda") if "triton" in file.name)
    return Kernel.from_source(file.read_text(encoding="utf-8"))


def bulk_kernel(number: int) -> Kernel:
    """A kernel of the bulk path."""
    source = SKELETONS[number % len(SKELETONS)].format(number=number)
    return Kernel(id=digest(source), backend=Backend.TRITON, source=source)
