"""torch.compile in a process of its own, which generates a starting kernel beside the judge's work.

The process imports what it needs at once, but on a CPU, whose cores the judge measures on. It traces and generates
while it is asked for its kernel, and is paused while any kernel is timed on the device (`evaluators.program`).
"""

import json
import os
import tempfile
from pathlib import Path
from typing import Self

from kbevolve.configs.problem import Problem
from kbevolve.evaluators.device.devices import Device, visible_name
from kbevolve.evaluators.graph.records import Graph, UntraceableError
from kbevolve.evaluators.graph.regions import cut
from kbevolve.evaluators.graph.trace_json import from_tree
from kbevolve.evaluators.program import Program, ProgramError

#: Seconds that torch.compile may take, pauses not counted. On two cores a built-in problem takes 4 to 6, up to 23 when
#: they are busy (measured); the largest models of KernelBench have about a hundred layers to trace.
SECONDS = 180.0

#: The dtype in which the judge runs a task of each precision.
_DTYPES = {"fp32": "float32", "tf32": "float32", "fp16": "float16", "bf16": "bfloat16"}


class InductorError(Exception):
    """torch.compile gave no kernel; the message is one line. The run goes on without that starting kernel."""


class InductorProcess:
    """Runs the program `inductor` for one problem; leaving the context kills its process group."""

    def __init__(
        self,
        problem: Problem,
        device_type: str,
        *,
        precision: str = "fp32",
        device: Device | None = None,
        templates: bool = False,
        trace: bool = False,
    ) -> None:
        """Start it.

        Args:
            problem: the problem.
            device_type: ``"cpu"`` or ``"cuda"``.
            precision: the precision that the task asks for.
            device: on which kernels are timed meanwhile; None when nothing is timed here.
            templates: whether the code that templates are put into is wanted, too: `for_templates`, `fused`.
            trace: whether the reference's `graph` is wanted, too.
        """
        #: After `source`: why some of the code for templates is missing, in one line.
        self.failure = ""
        self._folder = tempfile.TemporaryDirectory(prefix="kbevolve-inductor-")
        self._problem = problem
        self._place = Path(self._folder.name)
        (self._place / "reference.py").write_text(problem.source_for(device_type), encoding="utf-8")
        wanted = [name for name, is_wanted in (("templates", templates), ("trace", trace)) if is_wanted]
        on_gpu = device is not None and device.type == "cuda"
        self._program = Program(
            "kbevolve.evolve.proposers.seeds.inductor",
            [str(self._place), device_type, _DTYPES[precision], *wanted],
            seconds=SECONDS,
            environment={"CUDA_VISIBLE_DEVICES": visible_name(device.index, os.environ)} if device and on_gpu else {},
            device=device,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._program.__exit__()
        self._folder.cleanup()

    @property
    def closed(self) -> bool:
        """Whether its context was left."""
        return self._program.closed

    def source(self) -> str:
        """Wait for the code that torch.compile generates for the problem, as a ModelNew file.

        Raises:
            InductorError: it failed, took too long or was ended, or its code needs more than one file.
        """
        why = "it succeeded but wrote no file"
        try:
            self._program.wait()
        except ProgramError as error:
            why = self.failure = str(error)
        kernel = self._read("kernel.py")
        if kernel is None:
            raise InductorError(why)
        return kernel

    def for_templates(self) -> str | None:
        """After `source`: the code that templates are put into (`inductor.captures`); None where it is the same."""
        return self._read("for_templates.py")

    def fused(self) -> str | None:
        """After `source`: the same with what follows a product in its call; None where nothing follows one."""
        return self._read("fused.py")

    def graph(self) -> Graph | None:
        """After `source`: the reference's regions; None where the process failed before it traced them.

        Raises:
            UntraceableError: it has none; one line says why.
        """
        trace, why = self._read("trace.json"), self._read("untraceable")
        if why is not None:
            raise UntraceableError(f"{self._problem.name} cannot be traced: {why}")
        return cut(from_tree(json.loads(trace))) if trace is not None else None

    def _read(self, name: str) -> str | None:
        """A file that the process has written."""
        path = self._place / name
        return path.read_text(encoding="utf-8") if path.exists() else None


def inductor_source(problem: Problem, device_type: str, *, precision: str = "fp32") -> str:
    """The code that torch.compile generates for a problem, as a ModelNew file; raises as `InductorProcess.source`."""
    with InductorProcess(problem, device_type, precision=precision) as process:
        return process.source()
