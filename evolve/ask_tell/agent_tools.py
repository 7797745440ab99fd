"""The tools of `kbevolve mcp`: what a coding agent may do with an archive, as functions of plain values.

The agent reads the docstrings of the methods. Wrong input is a `KBEvolveError` with one line on what to do instead.
"""

from pathlib import Path
from threading import Lock
from typing import Annotated, Any

from pydantic import Field

from kbevolve.archive.formatting import NOT_STOPPED
from kbevolve.archive.lineage import main_line
from kbevolve.archive.record_json import plain
from kbevolve.archive.records import Evaluation, Kernel
from kbevolve.archive.store import Archive
from kbevolve.configs.catalog import builtin_names, find_problem
from kbevolve.configs.errors import UsageError
from kbevolve.evaluators.device.devices import find_device
from kbevolve.evolve.ask_tell.answers import GivenAnswer, answer
from kbevolve.evolve.ask_tell.ask import ask, check_askable
from kbevolve.evolve.ask_tell.payload import payload_of
from kbevolve.evolve.exports.export import check_output, choose, measure_and_write
from kbevolve.evolve.runs.evaluators import open_judges
from kbevolve.evolve.runs.session import open_run, settings_of
from kbevolve.evolve.runs.settings import settings_and_devices

RunId = Annotated[str, Field(description="A run's id, the start of it, or 'latest'.")]
Count = Annotated[int, Field(ge=0, description="The largest number of questions; each has its whole prompt.")]
Judge = Annotated[
    bool, Field(description="Judge kernels here, in up to a minute each; false leaves them for another machine.")
]
ProblemName = Annotated[
    str, Field(description="A built-in problem such as L1/softmax, or the path of a file in KernelBench's format.")
]
KernelId = Annotated[str, Field(description="A kernel's id, or the start of it.")]


class AgentTools:
    """The tools, on one archive.

    Args:
        archive: the file; the first run creates it.
        device: of the judges: auto, cpu, cuda or cuda:N.
    """

    def __init__(self, archive: Path, device: str) -> None:
        self._path = archive
        self._device = device
        #: The newest step, for progress messages.
        self.doing = ""
        #: One session at a time: `run_lock` excludes other processes, not other threads of this one.
        self._session = Lock()

    def problems(self) -> dict[str, Any]:
        """List the built-in problems, for `begin`: name, and what it computes. `begin` also takes a file's path."""
        found = (find_problem(name) for name in builtin_names())
        return {"problems": [{"problem": one.name, "summary": one.summary} for one in found]}

    def runs(self) -> dict[str, Any]:
        """List the runs of the archive, newest first: problem, state, how many kernels, the best one's speedup."""
        with self._open() as archive:
            runs = [
                {
                    "run": one.run.id,
                    "problem": one.run.problem_name,
                    "device": one.run.device,
                    "generation": one.generations,
                    "evaluated": one.evaluated,
                    "correct": one.correct,
                    "best_kernel": one.best_kernel,
                    "best_speedup": one.best_speedup,
                    "confirmed": one.champion is not None,
                    "state": one.stopped.value if one.stopped else NOT_STOPPED,
                }
                for one in archive.runs.summaries()
            ]
            return {"runs": runs}

    def begin(
        self,
        problem: ProblemName,
        generations: Annotated[int, Field(ge=1, description="Generations; every island creates a child in each.")] = 20,
        islands: Annotated[int, Field(ge=1, le=64, description="Populations that evolve side by side.")] = 1,
        settings: Annotated[
            dict[str, Any] | None,
            Field(
                description='Other settings by dotted name, e.g. {"evaluation.precision": "tf32", "search.seed": 7}.'
            ),
        ] = None,
        count: Count = 1,
    ) -> dict[str, Any]:
        """Begin a run whose children you write. First its starting kernels are judged, about a minute; then you get the
        first questions, as from `ask`."""
        overrides = {
            "device": self._device,
            "search.generations": generations,
            "search.islands": islands,
            **(settings or {}),
            "proposer": "ask",
        }
        found = find_problem(problem)
        chosen, devices = settings_and_devices(overrides=overrides)
        check_askable(chosen)
        with self._session, Archive(self._path) as archive:
            self.doing = ""
            run = open_run(archive, found, devices.device, chosen)
            result = ask(archive, run, chosen, devices=devices, say=self._say)
            return payload_of(archive, result, count=count)

    def ask(
        self,
        run: RunId = "latest",
        count: Count = 1,
        fresh: Annotated[bool, Field(description="Only questions that were not asked before.")] = False,
        judge: Judge = True,
    ) -> dict[str, Any]:
        """Continue a run and get its open questions, each with id, stage, operator, parents and the prompt that a model
        would get (`system` and `messages`). A question of stage `idea` wants ideas in words; one of stage `code` wants
        a whole ModelNew file or SEARCH/REPLACE blocks. `news` has the results of earlier answers: verdict, message and
        speedup over eager PyTorch. Asking again repeats open questions under the same ids."""
        with self._session, self._open() as archive:
            return self._continue(archive, run, count=count, fresh=fresh, judge=judge)

    def tell(
        self,
        question: Annotated[str, Field(description="Id of the question, as `ask` gave it.")],
        idea: Annotated[
            str | None,
            Field(description="For stage idea: 'TITLE: WHY IT IS FASTER', or the JSON that the prompt asks for."),
        ] = None,
        code: Annotated[
            str | None,
            Field(description="A whole ModelNew file. For stage code; or with `idea`, to answer both stages at once."),
        ] = None,
        reply: Annotated[
            str | None, Field(description="Instead: a whole answer in text, exactly as the prompt asks for it.")
        ] = None,
        passed: Annotated[bool, Field(description="Instead: no answer; this child ends without one.")] = False,
        by: Annotated[str, Field(description="Your name, kept with the kernel.")] = "agent",
        judge: Judge = True,
        count: Count = 1,
    ) -> dict[str, Any]:
        """Answer a question; the run continues at once. You get the same as from `ask`: `news` has the result of your
        answer (verdict, message, speedup), `questions` the next questions. A useless file is asked for once more; a
        kernel that fails is asked for again as a repair, with the judge's message. The first answer to a question
        counts."""
        given = GivenAnswer(question=question, idea=idea, code=code, reply=reply, passed=passed, by=by)
        with self._session, self._open() as archive:
            report = answer(archive, [given])
            if report.refused:
                raise UsageError(f"{question}: refused: {report.refused[0].why}")
            return self._continue(archive, report.runs[0], count=count, fresh=False, judge=judge)

    def evaluate(
        self,
        problem: ProblemName,
        code: Annotated[str, Field(description="A whole ModelNew file.")],
        precision: Annotated[str, Field(description="What the task asks for: fp32, tf32, fp16 or bf16.")] = "fp32",
    ) -> dict[str, Any]:
        """Judge a kernel outside any run: verdict, message, errors, times and speedup over eager PyTorch. Nothing is
        kept. Use it to try a kernel before you answer with it."""
        found = find_problem(problem)
        overrides = {"device": self._device, "evaluation.precision": precision}
        settings, devices = settings_and_devices(overrides=overrides)
        with open_judges(devices, settings) as judges:
            evaluation = judges.evaluate(found, Kernel.from_source(code))
        return _facts(evaluation)

    def kernel(self, kernel: KernelId) -> dict[str, Any]:
        """Show a kernel: its source, its backend, and all its evaluations."""
        with self._open() as archive:
            found = archive.kernels.get(kernel)
            return {
                "kernel": found.id,
                "backend": found.backend.value,
                "source": found.source,
                "evaluations": [_facts(one) for one in archive.kernels.evaluations(found.id)],
            }

    def lineage(self, kernel: KernelId) -> dict[str, Any]:
        """Show the lineage of a kernel: itself, its parent, that one's parent and so on, each with its idea, its author
        and its speedup over eager."""
        with self._open() as archive:
            found = archive.kernels.get(kernel)
            births = archive.kernels.births(found.id)
            if not births:
                raise UsageError(f"kernel {found.id} has no lineage here; it was only evaluated")
            run = births[0].run
            evaluations, ideas = archive.runs.evaluations(run), archive.runs.ideas(run)
            line = []
            for birth in main_line(found.id, archive.runs.births(run, texts=False)):
                evaluation, idea = evaluations.get(birth.kernel or ""), ideas.get(birth.idea or "")
                line.append(
                    {
                        "kernel": birth.kernel,
                        "child": birth.id.partition("/")[2],
                        "operator": birth.operator.value,
                        "parents": list(birth.parents),
                        "by": birth.model,
                        "idea": f"{idea.title}: {idea.mechanism}" if idea else None,
                        "note": birth.note,
                        "verdict": plain(evaluation.verdict) if evaluation else None,
                        "speedup": evaluation.timing.speedup if evaluation else None,
                    }
                )
            return {"run": run, "lineage": line}

    def export(
        self,
        problem: Annotated[str, Field(description="The problem, by the name that its run has.")],
        file: Annotated[str, Field(description="The file to write; its folder must exist.")],
        kernel: Annotated[str | None, Field(description="This kernel instead of the problem's best.")] = None,
        overwrite: Annotated[bool, Field(description="Write over the file if it exists.")] = False,
    ) -> dict[str, Any]:
        """Write the best kernel of a problem as a self-contained ModelNew file. It is measured again first; if it is
        no longer correct or its speedup does not hold, nothing is written, and `doubt` says why."""
        output = Path(file)
        check_output(output, force=overwrite)
        with self._open() as archive:
            archive.runs.latest_of(problem)
            device = find_device(self._device)
            choice = choose(archive, problem, device, which=kernel)
            verified = measure_and_write(archive, choice, device, output)
        names = ("verdict", "message", "speedup", "speedup_low", "speedup_high")
        facts = {name: value for name, value in _facts(verified.now).items() if name in names}
        written = None if verified.doubt else str(output.absolute())
        return {"kernel": choice.kernel.id, "file": written, "doubt": verified.doubt, **facts}

    def _open(self) -> Archive:
        return Archive(self._path, create=False)

    def _continue(self, archive: Archive, which: str, *, count: int, fresh: bool, judge: bool) -> dict[str, Any]:
        self.doing = ""
        run = archive.runs.get(which)
        result = ask(archive, run, settings_of(run, {}), judge=judge, say=self._say)
        return payload_of(archive, result, count=count, fresh=fresh)

    def _say(self, line: str) -> None:
        self.doing = line


def _facts(evaluation: Evaluation) -> dict[str, Any]:
    """An evaluation without its blocks of times, which are long."""
    return {name: value for name, value in plain(evaluation).items() if name != "blocks"}
