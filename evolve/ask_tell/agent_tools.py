"""What a coding agent may do with an archive, as functions of plain values: the tools of `kbevolve mcp`.

Each docstring is what the agent reads. What it asks wrongly, or what cannot be done, is a `KBEvolveError` whose one
line says what to do instead.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from threading import Lock
from typing import Annotated, Any

from pydantic import Field

from kbevolve.archive.lineage import main_line
from kbevolve.archive.record_json import plain
from kbevolve.archive.records import Kernel, Verdict
from kbevolve.archive.store import Archive
from kbevolve.configs.catalog import find_problem
from kbevolve.configs.errors import UsageError
from kbevolve.evaluators.device.devices import find_device
from kbevolve.evolve.ask_tell.answers import Told, answer
from kbevolve.evolve.ask_tell.ask import ask, check_askable
from kbevolve.evolve.ask_tell.payload import sheet
from kbevolve.evolve.runs.evaluators import open_judges
from kbevolve.evolve.runs.export import check_output, choose, measure_and_write, plain_judge
from kbevolve.evolve.runs.session import open_run, settings_of
from kbevolve.evolve.runs.settings import settings_and_devices

RunId = Annotated[str, Field(description="A run's id, the start of it, or 'latest'.")]
Count = Annotated[int, Field(ge=0, description="Questions at most; each comes with its whole prompt.")]
Judge = Annotated[
    bool,
    Field(
        description="Judge kernels here, which takes from seconds to a minute each; false leaves them waiting for a "
        "machine that has the device."
    ),
]


class AgentTools:
    """The tools, on one archive.

    Args:
        archive: the file; it is made by the first run.
        device: where kernels are judged: auto, cpu, cuda or cuda:N.
    """

    def __init__(self, archive: Path, device: str) -> None:
        self._path = archive
        self._device = device
        #: What happened last, for whoever waits.
        self.doing = ""
        #: One sitting at a time: the lock of `alone_at` keeps processes apart, not the threads of this one.
        self._sitting = Lock()

    def runs(self) -> dict[str, Any]:
        """List the runs of the archive, newest first: problem, state, how many kernels, the best one's speedup."""
        with self._open() as archive:
            return {
                "runs": [
                    plain(
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
                            "state": one.stopped.value if one.stopped else "under way, or its process was killed",
                        }
                    )
                    for one in archive.runs()
                ]
            }

    def begin(
        self,
        problem: Annotated[
            str,
            Field(description="A built-in problem such as L1/softmax, or the path of a file in KernelBench's format."),
        ],
        generations: Annotated[int, Field(ge=1, description="Generations; every island bears a child in each.")] = 20,
        islands: Annotated[int, Field(ge=1, le=64, description="Populations that evolve side by side.")] = 1,
        settings: Annotated[
            dict[str, Any] | None,
            Field(
                description='Other settings by dotted name, e.g. {"evaluation.precision": "tf32", "search.seed": 7}.'
            ),
        ] = None,
        count: Count = 1,
    ) -> dict[str, Any]:
        """Begin a run whose children you write. Its starting kernels are judged at once, which takes a minute or so;
        then you get the first questions, as `ask` gives them."""
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
        with self._sitting, Archive(self._path) as archive:
            run = open_run(archive, found, devices.device, chosen)
            return sheet(archive, ask(archive, run, chosen, devices=devices, say=self._show()), count=count)

    def ask(
        self,
        run: RunId = "latest",
        count: Count = 1,
        fresh: Annotated[bool, Field(description="Only questions that nobody was handed before.")] = False,
        judge: Judge = True,
    ) -> dict[str, Any]:
        """Go on with a run and get its open questions, each with id, stage, operator, parents and the prompt that a
        model would get (`system` and `messages`). A question of stage `idea` wants ideas in words; one of stage `code`
        wants a whole ModelNew file or SEARCH/REPLACE blocks. `news` says what came of earlier answers: verdict, message
        and speedup over eager PyTorch. Asking again repeats what is still open, under the same ids."""
        with self._sitting, self._open() as archive:
            return self._go_on(archive, run, count=count, fresh=fresh, judge=judge)

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
            str | None, Field(description="Instead: a whole answer in text, just as the prompt asks for it.")
        ] = None,
        passed: Annotated[bool, Field(description="Instead: no answer; nothing comes of this child.")] = False,
        by: Annotated[str, Field(description="Your name, kept with the kernel.")] = "agent",
        judge: Judge = True,
        count: Count = 1,
    ) -> dict[str, Any]:
        """Answer a question; the run goes on at once. You get what `ask` gives: in `news` what came of the answer
        (verdict, message, speedup), in `questions` what is asked next. A file that cannot be used is asked for once
        more; a kernel that fails comes back as a repair with the judge's message. The first answer to a question
        counts."""
        told = Told(question=question, idea=idea, code=code, reply=reply, passed=passed, by=by)
        with self._sitting, self._open() as archive:
            receipt = answer(archive, [told])
            if receipt.refused:
                raise UsageError(f"{question}: refused: {receipt.refused[0].why}")
            return self._go_on(archive, receipt.runs[0], count=count, fresh=False, judge=judge)

    def evaluate(
        self,
        problem: Annotated[
            str, Field(description="A built-in problem, or the path of a file in KernelBench's format.")
        ],
        code: Annotated[str, Field(description="A whole ModelNew file.")],
        precision: Annotated[str, Field(description="What the task asks for: fp32, tf32, fp16 or bf16.")] = "fp32",
    ) -> dict[str, Any]:
        """Judge a kernel without any run: verdict, message, errors, times and speedup over eager PyTorch. Nothing is
        written down. Use it to try something before you answer with it."""
        found = find_problem(problem)
        overrides = {"device": self._device, "evaluation.precision": precision}
        settings, devices = settings_and_devices(overrides=overrides)
        with open_judges(devices, settings) as judges:
            evaluation = judges.evaluate(found, Kernel.from_source(code))
        facts: dict[str, Any] = {name: value for name, value in plain(evaluation).items() if name != "blocks"}
        return facts

    def kernel(self, kernel: Annotated[str, Field(description="A kernel's id, or the start of it.")]) -> dict[str, Any]:
        """Show a kernel: its source, what it is written in, and every evaluation of it."""
        with self._open() as archive:
            found = archive.kernel(kernel)
            evaluations = [
                {name: value for name, value in plain(one).items() if name != "blocks"}
                for one in archive.evaluations_of(found.id)
            ]
            return {
                "kernel": found.id,
                "backend": found.backend.value,
                "source": found.source,
                "evaluations": evaluations,
            }

    def lineage(
        self, kernel: Annotated[str, Field(description="A kernel's id, or the start of it.")]
    ) -> dict[str, Any]:
        """Show how a kernel came to be: itself, its parent, that one's parent and so on, each with the idea behind it,
        who wrote it, and its speedup over eager."""
        with self._open() as archive:
            found = archive.kernel(kernel)
            births = archive.births_of(found.id)
            if not births:
                raise UsageError(f"kernel {found.id} has no birth here; it was only evaluated")
            run = births[0].run
            evaluations, ideas = archive.evaluations(run), archive.ideas(run)
            line = []
            for birth in main_line(found.id, archive.births(run, texts=False)):
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
        problem: Annotated[str, Field(description="The problem, by the name that its run was begun with.")],
        file: Annotated[str, Field(description="The file to write; its folder must be there.")],
        kernel: Annotated[str | None, Field(description="This kernel instead of the problem's best.")] = None,
        overwrite: Annotated[bool, Field(description="Write over the file if it is there.")] = False,
    ) -> dict[str, Any]:
        """Write the best kernel of a problem as a self-contained ModelNew file. It is measured again first; if it is
        not correct any more, nothing is written."""
        output = Path(file)
        check_output(output, force=overwrite)
        with self._open() as archive:
            archive.latest_run_of(problem)
            device = find_device(self._device)
            choice = choose(archive, problem, device, which=kernel)
            evaluation = measure_and_write(archive, choice, device, plain_judge, output)
        written = evaluation.verdict is Verdict.CORRECT
        facts: Mapping[str, Any] = plain(evaluation)
        return {
            "kernel": choice.kernel.id,
            "file": str(output.absolute()) if written else None,
            **{name: facts[name] for name in ("verdict", "message", "speedup", "speedup_low", "speedup_high")},
        }

    def _open(self) -> Archive:
        return Archive(self._path, create=False)

    def _go_on(self, archive: Archive, which: str, *, count: int, fresh: bool, judge: bool) -> dict[str, Any]:
        run = archive.run(which)
        asked = ask(archive, run, settings_of(run, {}), judge=judge, say=self._show())
        return sheet(archive, asked, count=count, fresh=fresh)

    def _show(self) -> Callable[[str], None]:
        def show(line: str) -> None:
            self.doing = line

        show("")
        return show
