"""The loop: ask for children, judge them, tell the islands, confirm the best; and again when a run is resumed.

A run is a pure function of its seed and of the judge's answers. What is asked for in generation g rests on what was
known when g began, so the islands can be asked in any order; every fact is in the archive before the next step is
taken. Resuming replays the archive up to its last generation and enters that generation again: births that are
there are not asked for, evaluations and contests that are there are not made, so nothing is paid for twice.
"""

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from itertools import groupby
from time import perf_counter
from typing import Any

from kbevolve.archive.records import (
    Birth,
    BirthState,
    Evaluation,
    Idea,
    Kernel,
    Operator,
    Placement,
    ProblemCard,
    Run,
    StopReason,
    Verdict,
)
from kbevolve.archive.store import Archive
from kbevolve.configs.problem import Problem
from kbevolve.configs.settings import Settings
from kbevolve.evaluators.evaluator import Confirmer, Evaluator
from kbevolve.evolve.breeding import Breeding
from kbevolve.evolve.brief import Brief, Proposal, Proposer
from kbevolve.evolve.confirming import Confirming
from kbevolve.evolve.events import Event, Observer
from kbevolve.evolve.operators import MENDABLE
from kbevolve.evolve.population import Population
from kbevolve.evolve.reference import as_model_new
from kbevolve.evolve.starting import StartingKernel
from kbevolve.islands.island import Entry
from kbevolve.islands.migration import ring

#: Generations in a row in which no island had anything new, after which a run stops: one may be bad luck.
EXHAUSTED_GENERATIONS = 3


class Search:
    """One run.

    Args:
        archive: where everything is written, and what a resumed run is read from.
        run: the run's record, already in the archive.
        problem: its problem.
        device_type: "cpu" or "cuda".
        device: one line about the device, for prompts.
        settings: all settings.
        proposers: who carries out which operator; without MUTATE the run is an offline one.
        evaluator: the judge.
        starts: the starting kernels of each island.
        card: what the judge found out about the problem, for prompts.
        confirmer: measures would-be champions again; None publishes what the first evaluation found.
        observer: told of every step.
    """

    def __init__(
        self,
        *,
        archive: Archive,
        run: Run,
        problem: Problem,
        device_type: str,
        device: str,
        settings: Settings,
        proposers: Mapping[Operator, Proposer],
        evaluator: Evaluator,
        starts: Sequence[Sequence[StartingKernel]],
        card: ProblemCard | None = None,
        confirmer: Confirmer | None = None,
        observer: Observer = lambda event: None,
    ) -> None:
        self.archive = archive
        self.record = run
        self.problem = problem
        self.settings = settings
        self.proposers = proposers
        self.evaluator = evaluator
        self.starts = starts
        self.observer = observer
        self.population = Population(settings.search.islands)
        self.breeding = Breeding(
            problem=problem,
            device_type=device_type,
            device=device,
            settings=settings.search,
            proposers=proposers,
            card=card,
        )
        self.confirming = Confirming(
            archive=archive,
            run=run,
            problem=problem,
            confirmer=confirmer,
            settings=settings.evaluation,
            reference=Kernel.from_source(as_model_new(problem.source_for(device_type))).id,
            announce=lambda generation, kernels: self._tell(generation, contest=kernels),
        )
        # What the archive holds of this run, so that entering a generation again adds nothing twice.
        self._births: dict[str, Birth] = {}
        self._kernels: dict[str, Kernel] = {}
        self._ideas: dict[str, Idea] = {}
        self._placements: set[Placement] = set()

    def run(self) -> StopReason:
        """Breed until there is a reason to stop, which is written into the archive, too.

        Raises:
            KeyboardInterrupt: the user had enough; everything that was finished is in the archive.
            ProposerError, EvaluatorError, ArchiveError: the rig is broken; likewise.
        """
        first = generation = self._replay()
        for generation in range(first, self.settings.search.generations + 1):
            self._tell(generation)
            for birth in self._bear(generation):
                self._judge_and_mend(birth)
            self._migrate(generation)
            self.confirming.challenge(self.population, generation)
            reason = self._reason_to_stop(generation)
            if reason is not None:
                break
        else:
            reason = StopReason.GENERATIONS
        if reason in (StopReason.GENERATIONS, StopReason.EXHAUSTED):
            self.confirming.final(self.population, generation)
        self._tell(generation)
        self.archive.add_stop(self.record.id, reason)
        return reason

    # ---- before: what the archive knows ----------------------------------------------------------------------------

    def _replay(self) -> int:
        """Tell the population all finished generations; the generation to go on with."""
        births = self.archive.births(self.record.id)
        if not births:
            return 0
        births.sort(key=lambda birth: (birth.generation, birth.island, birth.slot))
        last = births[-1].generation
        self._births = {birth.id: birth for birth in births}
        self._kernels = self.archive.kernels(self.record.id)
        self._ideas = self.archive.ideas(self.record.id)
        placements = self.archive.placements(self.record.id)
        self._placements = set(placements)
        evaluations = self.archive.evaluations(self.record.id)
        self.confirming.recall()
        for generation, born in groupby(births, key=lambda birth: birth.generation):
            if generation < last:
                for birth in born:
                    self._take_note(birth, evaluations.get(birth.kernel) if birth.kernel else None)
                for placement in placements:
                    if placement.generation == generation and placement.via == "migration":
                        self.population.enter(placement.island, placement.kernel)
        return last

    # ---- ask -------------------------------------------------------------------------------------------------------

    def _bear(self, generation: int) -> list[Birth]:
        """The children of a generation, in the order of the islands, each in the archive."""
        if generation == 0:
            return [
                self._births.get(self._key(0, island, slot)) or self._record_start(island, slot, start)
                for island, starts in enumerate(self.starts)
                for slot, start in enumerate(starts)
            ]
        born = {island: self._births.get(self._key(generation, island, 0)) for island in range(self._width)}
        asked: dict[int, Brief] = {}
        for island in range(self._width):
            if born[island] is not None:
                continue
            brief = self.breeding.brief(
                self.population, generation=generation, island=island, known=self._known_before(island, born)
            )
            if brief is None:
                note = "no kernel on this island that could breed"
                nothing = Proposal(state=BirthState.EXHAUSTED, note=note, parents=())
                born[island] = self._record(nothing, Operator.TUNE, (generation, island, 0), (), 0.0)
            elif self.proposers[brief.operator] is self.proposers[Operator.TUNE]:
                born[island] = self._ask(brief, (generation, island, 0))
            else:
                asked[island] = brief
        born.update(self._ask_at_once(asked, generation))
        return [birth for _, birth in sorted(born.items()) if birth is not None]

    def _ask_at_once(self, briefs: Mapping[int, Brief], generation: int) -> dict[int, Birth]:
        """Ask models for several islands side by side; each answer is in the archive as soon as it is here."""
        if not briefs:
            return {}
        born: dict[int, Birth] = {}
        broken: Exception | None = None
        started = perf_counter()
        pool = ThreadPoolExecutor(max_workers=len(briefs), thread_name_prefix="propose")
        try:
            asked = {
                pool.submit(self.proposers[brief.operator].propose, brief): island for island, brief in briefs.items()
            }
            for answer in as_completed(asked):
                island = asked[answer]
                try:
                    proposal = answer.result()
                except Exception as error:  # the other islands' answers are paid for: keep them first
                    broken = broken or error
                    continue
                parents = tuple(parent.kernel.id for parent in briefs[island].parents)
                place = (generation, island, 0)
                seconds = perf_counter() - started
                born[island] = self._record(proposal, briefs[island].operator, place, parents, seconds)
        finally:
            pool.shutdown(wait=False, cancel_futures=True)
        if broken is not None:
            raise broken
        return born

    def _ask(self, brief: Brief, place: tuple[int, int, int], parents: tuple[str, ...] | None = None) -> Birth:
        started = perf_counter()
        proposal = self.proposers[brief.operator].propose(brief)
        known = parents if parents is not None else tuple(parent.kernel.id for parent in brief.parents)
        return self._record(proposal, brief.operator, place, known, perf_counter() - started)

    def _record_start(self, island: int, slot: int, start: StartingKernel) -> Birth:
        proposal = Proposal(state=BirthState.BORN, kernel=start.kernel, note=start.note)
        return self._record(proposal, Operator.SEED, (0, island, slot), (), 0.0)

    def _record(
        self,
        proposal: Proposal,
        operator: Operator,
        place: tuple[int, int, int],
        parents: tuple[str, ...],
        seconds: float,
    ) -> Birth:
        """Write a birth down before anything is run.

        A duplicate is a kernel that the run had when the generation began: twins within a generation depend on the
        order of the answers, and a resumed run must find what the undisturbed one found.
        """
        generation, island, slot = place
        kernel, idea = proposal.kernel, proposal.idea
        duplicate = kernel is not None and self.population.knows(kernel.id)
        birth = Birth(
            run=self.record.id,
            generation=generation,
            island=island,
            slot=slot,
            operator=operator,
            state=BirthState.DUPLICATE if duplicate else proposal.state,
            parents=proposal.parents if proposal.parents is not None else parents,
            kernel=kernel.id if kernel else None,
            idea=idea.id if idea else None,
            note=proposal.note,
            prompt=proposal.prompt,
            reply=proposal.reply,
            model=proposal.model,
            prompt_tokens=proposal.prompt_tokens,
            completion_tokens=proposal.completion_tokens,
            seconds=round(seconds, 3),
        )
        self.archive.add_birth(birth, kernel=kernel, idea=idea)
        self._births[birth.id] = birth
        if kernel is not None:
            self._kernels.setdefault(kernel.id, kernel)
        if idea is not None:
            self._ideas.setdefault(idea.id, idea)
        return birth

    def _known_before(self, island: int, born: Mapping[int, Birth | None]) -> Callable[[str], bool]:
        """Whether the run had a kernel when the generation began, or an island before this one has just borne it."""
        siblings = {birth.kernel for index, birth in born.items() if index < island and birth is not None}
        return lambda kernel_id: self.population.knows(kernel_id) or kernel_id in siblings

    # ---- judge and tell --------------------------------------------------------------------------------------------

    def _judge_and_mend(self, birth: Birth) -> None:
        """Judge a child; as long as it fails and repair turns are left, have it mended and judge again."""
        made_by_model = birth.operator not in (Operator.SEED, Operator.TUNE)
        while True:
            evaluation = self._judge(birth)
            turns = self.settings.search.repair_turns if made_by_model and Operator.REPAIR in self.proposers else 0
            fresh = birth.state is BirthState.BORN  # a duplicate had its turns when it was born
            if not fresh or evaluation is None or evaluation.verdict not in MENDABLE or birth.slot >= turns:
                return
            mended = self._births.get(self._key(birth.generation, birth.island, birth.slot + 1))
            if mended is None:
                failure = self.population.failure(birth)
                brief = self.breeding.repair(self.population, birth, failure, known=self.population.knows)
                assert birth.kernel is not None, "only a birth with a kernel can have failed"
                mended = self._ask(
                    brief, (birth.generation, birth.island, birth.slot + 1), (birth.kernel, *birth.parents)
                )
            birth = mended

    def _judge(self, birth: Birth) -> Evaluation | None:
        """The judge's finding about a birth's kernel, told to the population and the observer."""
        evaluation, remembered = None, False
        if birth.kernel is not None:
            evaluation = self._remembered(birth.kernel)
            remembered = evaluation is not None
            if evaluation is None:
                self._tell(birth.generation, birth=birth)
                evaluation = self.evaluator.evaluate(self.problem, self._kernels[birth.kernel])
                self.archive.add_evaluation(evaluation)
        entry = self._take_note(birth, evaluation)
        self._tell(birth.generation, birth=birth, evaluation=evaluation, remembered=remembered, entry=entry, done=True)
        return evaluation

    def _remembered(self, kernel_id: str) -> Evaluation | None:
        """What this archive knows of a kernel on this problem and device, from this run or from another."""
        return self.population.evaluations.get(kernel_id) or self.archive.evaluation(
            kernel_id, self.problem.id, self.record.device, self.settings.evaluation.precision
        )

    def _take_note(self, birth: Birth, evaluation: Evaluation | None) -> Entry:
        """Tell the population of a birth; a correct kernel arrives on its island."""
        kernel = self._kernels[birth.kernel] if birth.kernel else None
        self.population.observe(birth, kernel, self._ideas[birth.idea] if birth.idea else None, evaluation)
        if kernel is None or evaluation is None or evaluation.verdict is not Verdict.CORRECT:
            return Entry.NONE
        return self._settle(birth.island, kernel.id, birth.generation, "birth")

    def _settle(self, island: int, kernel_id: str, generation: int, via: str) -> Entry:
        """Let a kernel arrive on an island, and write down the niche it took, unless that is written already."""
        entry, niche = self.population.enter(island, kernel_id)
        placement = Placement(
            run=self.record.id, island=island, niche=niche, kernel=kernel_id, generation=generation, via=via
        )
        if entry is not Entry.NONE and placement not in self._placements:
            self.archive.add_placement(placement)
            self._placements.add(placement)
        return entry

    # ---- after a generation ----------------------------------------------------------------------------------------

    def _migrate(self, generation: int) -> None:
        every = self.settings.search.migration_every
        if generation and every and generation % every == 0:
            for migrant in ring(self.population.islands):
                self._settle(migrant.target, migrant.member.kernel.id, generation, "migration")

    def _reason_to_stop(self, generation: int) -> StopReason | None:
        if not self.population.history():
            return StopReason.NO_SEED
        recent = [birth for birth in self.population.births if birth.generation > generation - EXHAUSTED_GENERATIONS]
        if generation >= EXHAUSTED_GENERATIONS and all(birth.state is BirthState.EXHAUSTED for birth in recent):
            return StopReason.EXHAUSTED
        return None

    def _tell(self, generation: int, **facts: Any) -> None:
        champion = self.confirming.champion
        self.observer(Event(generation=generation, population=self.population, champion=champion, **facts))

    @property
    def _width(self) -> int:
        return self.settings.search.islands

    def _key(self, generation: int, island: int, slot: int) -> str:
        return f"{self.record.id}/g{generation}/i{island}/s{slot}"
