"""Compiles Triton kernels for workers: what to compile, checked and named by its content, and the process that does it.

Workers of one problem ask for the same kernels again and again: a child differs from its parent in a tunable or two.
"""

import base64
import functools
import importlib.util
import json
import re
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Self

from kbevolve.archive.records import Verdict
from kbevolve.configs.errors import EvaluatorError
from kbevolve.evaluators.builds.build_request import digest
from kbevolve.evaluators.rejection import Rejection, reading_a_reply
from kbevolve.evaluators.sandbox.build_protocol import BuilderUnavailable, BuildResult, FailureReason
from kbevolve.evaluators.sandbox.worker import Worker

#: Characters of a kernel: those of our templates have 20,000 to 150,000.
_MOST_TEXT = 4 << 20
#: Bytes of a product.
_MOST_PRODUCT = 6 << 20
#: Characters of all options together.
_MOST_OPTIONS = 10_000
_LANGUAGES = ("TRITON", "GLUON")
_OPTION = re.compile(r"[a-z][a-z0-9_]{0,63}")
#: What decides about the product besides the request, below Triton's folder.
_TOOLS = ("_C/libtriton.so", "backends/nvidia/bin/ptxas", "backends/nvidia/compiler.py")
#: Increased when the same request would give another product.
_RECIPE = 1

#: Offers a confined process that compiles one kernel; entered where that begins. EvaluatorError when there is none.
OfferCompiler = Callable[[], AbstractContextManager[Worker]]


@dataclass(frozen=True, slots=True, kw_only=True)
class TritonRequest:
    """One kernel, as `worker.triton_compiler.compiled` takes it."""

    ir: str
    language: str
    #: As JSON, with its names in order.
    options: str
    arch: int

    @classmethod
    def from_json(cls, tree: Mapping[str, Any]) -> Self:
        """The request of an untrusted process; BuilderUnavailable for a field of another type, or too much of one."""
        match tree:
            case {"ir": str(ir), "language": str(language), "options": dict(options), "arch": int(arch)}:
                text = json.dumps(options, sort_keys=True)
                usual = language in _LANGUAGES and len(ir) <= _MOST_TEXT and len(text) <= _MOST_OPTIONS
                if usual and all(_OPTION.fullmatch(name) and _is_plain(value) for name, value in options.items()):
                    return cls(ir=ir, language=language, options=text, arch=arch)
        raise BuilderUnavailable("no Triton kernel that the judge compiles")

    def key(self) -> str:
        """Names the product: the same for the same content and the same Triton."""
        return digest(_RECIPE, triton_version(), asdict(self))

    def compile(self, compiler: AbstractContextManager[Worker], *, seconds: float) -> BuildResult:
        """Compile it in a process of its own. What fails, the worker tries itself, for Triton's own error.

        Raises:
            BuilderUnavailable: the process did not start.
        """
        try:
            with compiler as worker:
                began = worker.clock
                found = self._compiled_by(worker, seconds)
                return replace(found, seconds=worker.clock - began)
        except EvaluatorError as failure:
            raise BuilderUnavailable(str(failure)) from None

    def _compiled_by(self, worker: Worker, seconds: float) -> BuildResult:
        wanted = {**asdict(self), "options": json.loads(self.options)}
        try:
            reply = worker.ask({"request": "compile", "triton": wanted}, seconds=seconds)
            with reading_a_reply():
                if reply["ok"] is not True:
                    return BuildResult(product=None, log=str(reply["text"]))
                product = base64.b64decode(reply["product"], validate=True)
        except Rejection as failure:
            late = failure.verdict is Verdict.TIMED_OUT
            why = FailureReason.TIME if late else FailureReason.ERROR
            return BuildResult(product=None, log=failure.message, why=why)
        if len(product) > _MOST_PRODUCT:
            return BuildResult(product=None, log="what was compiled is too large")
        return BuildResult(product=product, reads={})


@functools.cache
def triton_version() -> str:
    """Names the installed Triton: its folder, and the sizes and times of what compiles."""
    found = importlib.util.find_spec("triton")
    if found is None or not found.origin:
        raise BuilderUnavailable("Triton is not installed")
    folder = Path(found.origin).parent
    stats = [(folder / name).stat() for name in _TOOLS if (folder / name).is_file()]
    return digest(str(folder), [(stat.st_size, stat.st_mtime_ns) for stat in stats])


def _is_plain(value: Any) -> bool:
    if isinstance(value, list):
        return all(isinstance(one, str) for one in value)
    return value is None or isinstance(value, bool | int | float | str)
