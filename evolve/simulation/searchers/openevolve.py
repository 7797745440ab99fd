"""OpenEvolve's own ProgramDatabase as a searcher: its code decides parents, inspirations, islands, grid and migration.

It receives programs as texts, one line a gene, because it looks at their length and at how much they differ; their
fitness is the speedup. It draws from Python's global generator, so each episode seeds that generator and restores it
after each call. The order of calls is that of its controller (``process_parallel.py`` of version 0.4.0): sample from
the island whose turn it is, add the child there, count the island's generation, migrate when that is due.
"""

import logging
import math
import random
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

from kbevolve.archive.records import Operator
from kbevolve.evolve.simulation.landscape import Program
from kbevolve.evolve.simulation.searcher import Observation, Setup
from kbevolve.evolve.simulation.searchers.baselines import FirstLook, favourite
from kbevolve.evolve.simulation.simulated_llm import Task

INSPIRATIONS = 5


class OpenEvolveSearcher(FirstLook):
    """The database with its default configuration."""

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self._random = random.Random(setup.seed).getstate()
        self._turn = 0
        config, database, self._program = _openevolve()
        with self._own_generator():
            self._database = database(config(log_prompts=False, random_seed=setup.seed))
        self._islands = self._database.config.num_islands
        self._parent = ""

    def task(self, spent: int) -> Task:
        """An edit of the parent that the database samples."""
        with self._own_generator():
            parent, shown = self._database.sample_from_island(self._turn % self._islands, INSPIRATIONS)
        self._parent = parent.id
        program = _program(parent.code)
        return Task(
            operator=Operator.MUTATE,
            parents=(program,),
            idea=favourite(self._setup, program, self._turn),
            inspirations=tuple(_program(one.code) for one in shown),
        )

    def observe(self, found: Observation) -> None:
        """A valid child is added to the island that it was sampled from."""
        super().observe(found)
        if found.score is not None and not found.duplicate:
            self._add(found)
        if found.task is None:
            return
        island = self._turn % self._islands
        self._turn += 1
        with self._own_generator():
            self._database.increment_island_generation(island)
            if self._database.should_migrate():
                self._database.migrate_programs()

    def _add(self, found: Observation) -> None:
        program = self._program(
            id=f"{self._turn}-{len(self._database.programs)}",
            code=_text(self._setup, found.program),
            parent_id=self._parent or None,
            metrics={"combined_score": math.exp(found.score or 0.0)},
        )
        with self._own_generator():
            self._database.add(
                program, iteration=self._turn, target_island=None if found.task is None else self._turn % self._islands
            )

    @contextmanager
    def _own_generator(self) -> Iterator[None]:
        ours = random.getstate()
        random.setstate(self._random)
        try:
            yield
        finally:
            self._random = random.getstate()
            random.setstate(ours)


@cache
def _openevolve() -> tuple[Any, Any, Any]:
    """openevolve costs half a second to import and writes a line for every program."""
    from openevolve.config import DatabaseConfig
    from openevolve.database import Program as TheirProgram
    from openevolve.database import ProgramDatabase

    logging.getLogger("openevolve").setLevel(logging.ERROR)
    return DatabaseConfig, ProgramDatabase, TheirProgram


def _text(setup: Setup, program: Program) -> str:
    """A program as a text of the length that its choices give it."""
    genes = zip(setup.landscape.genes, program, strict=True)
    return "".join(f"{gene.name} = {choice}{' step' * choice}\n" for gene, choice in genes)


def _program(text: str) -> Program:
    return tuple(int(line.split(" = ")[1].split()[0]) for line in text.splitlines())
