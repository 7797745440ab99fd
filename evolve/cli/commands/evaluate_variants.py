"""`kbevolve evaluate --shapes` and `--opinfo`: is a kernel right beyond its problem's file?"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kbevolve.archive.records import Kernel
from kbevolve.configs.errors import UsageError
from kbevolve.configs.problem import Problem
from kbevolve.configs.settings import Settings
from kbevolve.evaluators.fleet.judge_host import make_judge
from kbevolve.evolve.cli.render.console import Console
from kbevolve.evolve.cli.render.json import print_json_line
from kbevolve.evolve.cli.render.variants import VariantProgress, print_variants, variant_json
from kbevolve.evolve.runs.evaluators import JudgeDevices

if TYPE_CHECKING:
    from kbevolve.evaluators.generality.sizes import Sizes
    from kbevolve.evaluators.generality.variants import Variant, VariantVerdict

#: What --shapes holds when it is given without sizes.
DRAWN = "drawn"


@dataclass(frozen=True, slots=True, kw_only=True)
class VariantTask:
    """One kernel that is to be judged on variants of a problem, on the first of the devices."""

    problem: Problem
    kernel: Kernel
    devices: JudgeDevices
    settings: Settings

    def __post_init__(self) -> None:
        if self.devices.cluster is not None:
            raise UsageError("--shapes and --opinfo judge on this machine; leave out --workers ray")

    @property
    def device_type(self) -> str:
        """``"cpu"`` or ``"cuda"``."""
        return self.devices.devices[0].type

    def facts(self) -> dict[str, str]:
        """What the result is about, for scripts."""
        return {
            "kernel": self.kernel.id,
            "problem": self.problem.id,
            "problem_name": self.problem.name,
            "device": self.devices.device.fingerprint,
            "precision": self.settings.evaluation.precision,
        }

    def judge(self, variants: Sequence["Variant"]) -> "list[VariantVerdict]":
        """The verdict on each; they are noted on standard error one by one."""
        from kbevolve.evaluators.generality.variants import judge_variants

        early = self.devices.fork_server
        with make_judge(
            self.devices.devices[0], self.settings.evaluation, self.settings.work, fork_server=early
        ) as judge:
            return judge_variants(judge, self.kernel, variants, VariantProgress(len(variants)))


def evaluate_shapes(task: VariantTask, shapes: Sequence[str], *, seed: int, check: bool, as_json: bool) -> int:
    """Judge at the problem's own sizes, then at those given, or else drawn; print; the exit code."""
    from kbevolve.evaluators.generality.shapes import ShapeReport, drawn_sizes, given_sizes, own_sizes

    problem, kind = task.problem, task.device_type
    given = [parse_sizes(text) for text in shapes if text != DRAWN]
    others = [given_sizes(problem, kind, sizes) for sizes in given]
    if DRAWN in shapes:
        others += drawn_sizes(problem, kind, seed=seed)
    report = ShapeReport(task.judge([own_sizes(problem), *others]))
    if as_json:
        own = variant_json(report.verdicts[0])
        facts = {"verdict": own["verdict"], "message": own["message"], "tags": report.tags}
        facts |= {"shape_general": report.is_general, "sizes": [variant_json(one) for one in report.verdicts]}
        print_json_line(task.facts() | facts)
    else:
        fields = {"problem": problem.name, "result": report.summary, "tags": ", ".join(report.tags)}
        print_variants(Console(), report.verdicts, "sizes", fields)
    return 1 if check and not report.is_general else 0


def evaluate_samples(task: VariantTask, *, check: bool, as_json: bool) -> int:
    """Judge on PyTorch's samples of the problem's operator; print; the exit code."""
    from kbevolve.evaluators.generality.samples import select_samples
    from kbevolve.evaluators.generality.variants import correct_and_judged

    found = select_samples(task.problem, task.device_type, task.settings.evaluation.precision)
    verdicts = task.judge(found.variants) if found.variants else []
    correct, judged = correct_and_judged(verdicts)
    if as_json:
        facts = {"operator": found.operator, "correct": correct, "judged": judged, "skipped": found.skipped}
        print_json_line(task.facts() | facts | {"samples": [variant_json(one) for one in verdicts]})
    else:
        fields = {
            "operator": found.operator,
            "result": f"right on {correct} of {judged} samples",
            "skipped": "\n".join(f"{count}: {reason}" for reason, count in found.skipped.items()),
        }
        print_variants(Console(), verdicts, "inputs", fields)
    return 1 if check and not 0 < judged == correct else 0


def parse_sizes(text: str) -> "Sizes":
    """``N=513,M=64`` as a mapping.

    Raises:
        UsageError: it is not of this form, or a size is no positive whole number.
    """
    sizes = {}
    for part in text.split(","):
        name, equals, size = (word.strip() for word in part.partition("="))
        if not equals or not name.isidentifier() or not size.isdecimal() or not int(size):
            raise UsageError(
                f"--shapes {text}: {part.strip() or 'nothing'} is not NAME=SIZE; write --shapes N=513,M=64, or "
                "--shapes alone behind FILE, for sizes that are drawn"
            )
        sizes[name] = int(size)
    return sizes
