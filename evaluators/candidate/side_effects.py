"""What a call does besides its computation; checked after trial calls and timed calls alike."""

from kbevolve.archive.records import Verdict
from kbevolve.evaluators.candidate.call import Call
from kbevolve.evaluators.correctness.prepared import PreparedProblem
from kbevolve.evaluators.rejection import Rejection

#: What a call may not leave changed (`worker.integrity`), in words for the kernel's author.
_FORBIDDEN_CHANGES = {
    "torch function mode": "leaves a torch function mode active",
    "torch dispatch mode": "leaves a torch dispatch mode active",
    "default dtype": "leaves torch's default dtype changed",
    "precision flags": "leaves torch's precision flags changed",
    "floating-point modes": "leaves the processor's floating-point modes changed",
    "no account": "did not report the state of its process",
}

#: Why a kernel is wrong that returns memory which its later calls write to.
OVERWRITTEN = "an output changed when forward() was called again; return memory of its own from each call"


def check_side_effects(call: Call, prepared: PreparedProblem) -> None:
    """Reject a call that did what no call may do.

    Raises:
        Rejection: the call left its process changed, wrote to an input, or returned an input's memory.
    """
    for change in call.changes:
        if change in _FORBIDDEN_CHANGES:
            raise Rejection(Verdict.REFUSED, f"not accepted: forward() {_FORBIDDEN_CHANGES[change]}; set it back")
    if call.changed_inputs - set(prepared.written_inputs):
        raise Rejection(Verdict.WRONG, "forward() changed its input; write the result to a new tensor")
    if any(not prepared.aliasing[index : index + 1] == (True,) for index in call.aliases_input):
        raise Rejection(
            Verdict.WRONG, "forward() returned memory of its input; return a new tensor, as the reference does"
        )


def leaks_threads(call: Call) -> bool:
    """Whether Python threads that the candidate started still run. That is allowed, and tagged."""
    return "Python threads" in call.changes
