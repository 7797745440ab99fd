"""Whether a kernel leaves its work to a library: by what its own libraries import, and by what a call ran.

The lint reads the source alone, which can hide a name. The worker's report may be false, so it refuses and never
acquits.
"""

import re
from collections.abc import Iterable
from dataclasses import replace

from kbevolve.archive.records import Evaluation, Verdict
from kbevolve.evaluators.candidate.process import CandidateProcess
from kbevolve.evaluators.correctness.prepared import PreparedProblem
from kbevolve.evaluators.lint.operations import operation_weight
from kbevolve.evaluators.lint.report import library_refusal
from kbevolve.evaluators.rejection import Rejection

#: How the names of torch's operations begin.
_OPERATION = "aten::"
#: Tags of heavy operations and of light ones.
_TAGS = ("library-heavy", "library-light")
#: Operations that views, numbers and allocations run under other names than people call them by.
_FREE = frozenset(
    [
        "slice",
        "lift",
        "lift_fresh",
        "numpy_T",
        "matrix_H",
        "_local_scalar_dense",
        "_reshape_alias",
        "sym_size",
        "_conj",
        "_neg_view",
    ]
)
#: Functions and kernels of vendors' libraries.
_VENDOR = re.compile(
    r"cublas|cudnn|cufft|cusolver|cusparse|cblas_|dnnl_|mkl_|LAPACKE_|nvjet|cutlass|[sdcz]ge(mm|mv)_$"
    r"|\b(ampere|volta|turing|hopper|maxwell)_\w*(gemm|conv|dgrad|wgrad|fprop)|\bsm\d{2,3}_xmma",
    re.IGNORECASE,
)


def check_library_use(
    candidate: CandidateProcess, prepared: PreparedProblem, found: Evaluation, allow_library: str
) -> Evaluation:
    """The evaluation with the tags of what the kernel's own libraries import.

    Args:
        candidate: after its trials.
        prepared: its problem.
        found: its evaluation so far.
        allow_library: "full", "partial" or "none" (`EvaluationSettings.allow_library`).

    Raises:
        Rejection: it computes by a library where the policy forbids that.
    """
    imported = {f"{_OPERATION}{name}" for build in candidate.worker.built for name in build.imports}
    tags = [tag for tag, names in zip(_TAGS, by_weight(imported), strict=True) if names and tag not in found.tags]
    found = replace(found, tags=(*found.tags, *tags))
    if allow_library == "full":
        return found
    with candidate.on_device():
        ran = candidate.operations(prepared.first_inputs())
    own = [kernel.name for build in candidate.worker.built for kernel in build.resources]
    foreign = [name for name in ran if not any(_plain_name(name) in mangled for mangled in own)]
    refusal = library_refusal(*by_weight([*imported, *foreign]), allow_library)
    if refusal:
        raise Rejection(Verdict.REFUSED, refusal, tags=found.tags)
    return found


def by_weight(names: Iterable[str]) -> tuple[list[str], list[str]]:
    """The heavy and the light ones among names of operations (``aten::mm``) and of launches on a device."""
    heavy: list[str] = []
    light: list[str] = []
    for name in sorted(set(names)):
        operation = name.removeprefix(_OPERATION)
        weight = "heavy" if _VENDOR.search(name) else _weight(operation) if operation != name else ""
        if weight:
            (heavy if weight == "heavy" else light).append(operation)
    return heavy, light


def _weight(operation: str) -> str:
    """How much an operation computes; its overload may follow its name, as in ``mm_out`` and ``select_int``."""
    parts = operation.split("_")
    names = ["_".join(parts[:count]) for count in range(len(parts), 0, -1)]
    weights = ["" if name in _FREE else operation_weight(name) for name in names if name.strip("_")]
    return "heavy" if "heavy" in weights else "" if "" in weights else "light"


def _plain_name(launch: str) -> str:
    """The name of a kernel without result, namespaces, template arguments and parameters."""
    return re.split(r"[<(]", launch.removeprefix("void "))[0].rpartition("::")[2]
