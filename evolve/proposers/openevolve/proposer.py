"""The proposer that runs OpenEvolve: every program it writes is a child, and its score is from the judge's verdict."""

from collections.abc import Mapping

from kbevolve.archive.records import BirthState, Evaluation, Kernel, Verdict
from kbevolve.configs.errors import ProposerError
from kbevolve.configs.settings import Libraries, Precision, Settings
from kbevolve.evaluators.feedback.message import feedback
from kbevolve.evolve.llm.client import LanguageModel, ModelMaker, end_requests
from kbevolve.evolve.llm.rate_limit import RateLimit
from kbevolve.evolve.proposers.base import Brief, Proposal
from kbevolve.evolve.proposers.codegen import prompts
from kbevolve.evolve.proposers.codegen.facts import card_lines
from kbevolve.evolve.proposers.openevolve.process import ModelQuestion, OpenEvolveProcess
from kbevolve.evolve.state.attempts import Attempt

#: How its prompts introduce the program to change (``diff_user.txt`` of version 0.4.0).
CURRENT = "# Current Program\n```python\n"


class OpenEvolveProposer:
    """Implements `Proposer` for one run, which asks for its children one after another.

    Args:
        models: by name.
        weights: of these names.
        precision: the precision that the task asks for.
        libraries: those that its kernels may call.
        seed: of the run.
    """

    def __init__(
        self,
        models: Mapping[str, LanguageModel],
        weights: Mapping[str, float],
        *,
        precision: Precision,
        libraries: Libraries = "full",
        seed: int,
    ) -> None:
        self._models, self._weights = models, weights
        self._precision: Precision = precision
        self._libraries: Libraries = libraries
        self._seed = seed
        self._process: OpenEvolveProcess | None = None
        #: The question that it waits on.
        self._question: ModelQuestion | str | None = None
        #: Source of every program it has -> kernel id, to find the one that a prompt is about.
        self._programs: dict[str, str] = {}
        #: It has no results yet from this generation on.
        self._since = 1
        #: Whether it already has the model's answer for the newest child.
        self._live = False

    def propose(self, brief: Brief) -> Proposal:
        """Its next program.

        Raises:
            ProposerError: the model cannot be reached, its process has ended, or it does not repeat the archive's
                questions.
        """
        process = self._process or self._start(brief)
        for attempt in brief.learnt.attempts(self._since):
            self._since = attempt.birth.generation + 1
            if attempt.birth.prompt:
                self._replay(process, attempt, brief)
        asked = self._question
        if not isinstance(asked, ModelQuestion):
            raise ProposerError("OpenEvolve waits for a score that is missing; `kbevolve resume` starts it again")
        name = f"program {self._since} of OpenEvolve, seed {self._seed}"
        reply = self._models[asked.model].complete(asked.system, asked.messages, child=name)
        parent = self._parent(asked)
        process.answer(reply.answer)
        self._next(process)
        self._live = True
        written = self._question
        kernel, state = None, BirthState.NO_CODE
        note = "OpenEvolve found no change in the answer that it could apply"
        if isinstance(written, str):
            kernel = Kernel.from_source(written)
            state = BirthState.DUPLICATE if brief.known(kernel.id) else BirthState.CREATED
            edits = reply.answer.count("<<<<<<< SEARCH")
            note = f"{edits} edit{'' if edits == 1 else 's'} (OpenEvolve)"
        return Proposal(
            state=state,
            kernel=kernel,
            parents=(parent,) if parent else None,
            note=note,
            prompt=asked.text,
            reply=reply.answer,
            model=reply.model,
            prompt_tokens=reply.prompt_tokens,
            completion_tokens=reply.completion_tokens,
        )

    def close(self) -> None:
        """End its process and cancel all requests."""
        for model in self._models.values():
            end_requests(model)
        if self._process is not None:
            self._process.close()

    # ---- what it receives ----------------------------------------------------------------------------------------

    def _start(self, brief: Brief) -> OpenEvolveProcess:
        """Start it with a program and that program's score."""
        start = brief.parents[0]
        process = self._process = OpenEvolveProcess(
            program=start.kernel.source,
            system=f"{prompts.system(brief, self._precision, self._libraries)}\n{_task(brief)}",
            models=self._weights,
            seed=self._seed,
        )
        self._next(process)
        self._score(process, start.evaluation, brief)
        return process

    def _replay(self, process: OpenEvolveProcess, attempt: Attempt, brief: Brief) -> None:
        """Send a child's score; and first the model's answer, for a child that an earlier process asked for."""
        if not self._live:
            asked = self._question
            if not isinstance(asked, ModelQuestion) or asked.text != attempt.birth.prompt:
                raise ProposerError(
                    f"OpenEvolve does not repeat its question for {attempt.birth.id}; resume the run with the "
                    "openevolve version that started it, or start a new run"
                )
            process.answer(attempt.birth.reply)
            self._next(process)
        self._live = False
        if isinstance(self._question, str):
            self._score(process, attempt.evaluation, brief)

    def _score(self, process: OpenEvolveProcess, evaluation: Evaluation | None, brief: Brief) -> None:
        works = evaluation is not None and evaluation.verdict is Verdict.CORRECT
        shown = (evaluation.timing.speedup_low or 0.0) if evaluation and works else 0.0
        text = feedback(evaluation, card=brief.task.card) if evaluation else ""
        # The low end of the interval, as for every other strategy.
        process.score({"combined_score": shown, "correct": float(works)}, {"feedback": text} if text else {})
        self._next(process)

    def _next(self, process: OpenEvolveProcess) -> None:
        self._question = process.next()
        if isinstance(self._question, str):
            self._programs[self._question] = Kernel.from_source(self._question).id

    # ---- what its prompts contain --------------------------------------------------------------------------------

    def _parent(self, asked: ModelQuestion) -> str | None:
        """Kernel id of the program that a prompt asks to change; None when the prompt does not show it."""
        current = asked.messages[-1].content.rpartition(CURRENT)[2]
        found = [source for source in self._programs if current.startswith(source)]
        return self._programs[max(found, key=len)] if found else None


def openevolve_proposer(settings: Settings, make: ModelMaker) -> OpenEvolveProposer | None:
    """The proposer for the models of the settings; None when they name none."""
    rate_limit = RateLimit.of(settings.llm)
    weights = {model.name: model.weight for model in settings.llm.models}
    made = {(one.model or one.provider): make(one, rate_limit) for one in settings.llm.each()}
    models = {name: model for name, model in made.items() if model}
    if not models:
        return None
    return OpenEvolveProposer(
        models,
        {name: weights.get(name, 1.0) for name in models},
        precision=settings.evaluation.precision,
        libraries=settings.evaluation.allow_library,
        seed=settings.search.seed,
    )


def _task(brief: Brief) -> str:
    source = brief.task.problem.source_for(brief.task.device_type)
    lines = card_lines(brief.task.card) if brief.task.card else []
    return "\n".join([f"# The problem: {brief.task.problem.name}", "```python", source.strip(), "```", *lines]) + "\n"
