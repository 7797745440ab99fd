"""A kernel that was measured for an export: what every format is made from."""

import re
from dataclasses import dataclass

from jinja2 import Environment, PackageLoader, StrictUndefined

from kbevolve.archive.export import PROVENANCE_END
from kbevolve.archive.records import Evaluation, Kernel, Run
from kbevolve.configs.errors import UsageError
from kbevolve.configs.problem import Problem
from kbevolve.evaluators.candidate.trials import OWN_NAMES, PREPACKED_TAG
from kbevolve.evaluators.device.devices import Device

#: Why a kernel cannot get weights from outside in every call.
_OWN_WEIGHTS = {
    PREPACKED_TAG: "it keeps its weights from an earlier call",
    OWN_NAMES: "its weights have other names than the reference's",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredKernel:
    """A kernel, its new evaluation, and what people want to know about it."""

    kernel: Kernel
    problem: Problem
    run: Run
    device: Device
    evaluation: Evaluation
    #: The ModelNew file under a block of comments with its provenance (`archive.export`).
    text: str
    #: The last part of the output's path.
    output_name: str
    #: What the receiver calls the task; "" for a format that names none.
    task: str = ""

    @property
    def header(self) -> str:
        """The block of comments alone."""
        end = self.text.index(f"{PROVENANCE_END}\n") + len(PROVENANCE_END)
        return self.text[:end]

    @property
    def name(self) -> str:
        """The problem's name in small letters, digits and underscores, e.g. ``l1_matmul``."""
        return re.sub(r"\W+", "_", self.run.problem_name, flags=re.ASCII).strip("_").lower()

    @property
    def gpu(self) -> str:
        """The GPU's model as platforms name it, e.g. ``H200`` or ``GeForce_RTX_4090``; "" on a CPU."""
        if self.device.type == "cpu":
            return ""
        full = self.device.fingerprint.split("/")[1]
        short = re.search(r"\b[A-Z]+\d+[A-Z]*\b", full)
        return short[0] if short else full.removeprefix("NVIDIA ").replace(" ", "_")

    @property
    def reference(self) -> str:
        """The problem's file with the sizes that were measured."""
        return self.problem.source_for(self.device.type)

    @property
    def dtype(self) -> str:
        """Name of the type that floating-point inputs and weights have, e.g. ``float32``."""
        return {"fp16": "float16", "bf16": "bfloat16"}.get(self.evaluation.precision, "float32")

    def check_weights(self) -> None:
        """Check that the kernel follows weights that it gets in each call.

        Raises:
            UsageError: it does not.
        """
        for tag, why in _OWN_WEIGHTS.items():
            if tag in self.evaluation.tags:
                raise UsageError(
                    f"kernel {self.kernel.id} cannot be exported so: {why}; export it as modelnew, or name another "
                    "with --kernel"
                )

    def fill(self, template: str, **values: object) -> str:
        """A file from a template beside this module; `self` is `found` in it."""
        return _templates.get_template(template).render(found=self, **values)


_templates = Environment(
    loader=PackageLoader("kbevolve.evolve.exports"),
    undefined=StrictUndefined,
    keep_trailing_newline=True,
    trim_blocks=True,
)
