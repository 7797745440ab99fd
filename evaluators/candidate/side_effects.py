"""How a call behaves beside what it computes; looked at in tried and in timed calls alike."""

from kbevolve.archive.records import Verdict
from kbevolve.evaluators.candidate.remote import Call
from kbevolve.evaluators.correctness.prepared import PreparedProblem
from kbevolve.evaluators.rejection import Rejection

#: What a call may not leave changed (`worker.integrity`), in words for its author.
_FORBIDDEN_CHANGES = {
    "torch function mode": "leaves a torch function mode active",
    "torch dispatch mode": "leaves a torch dispatch mode active",
    "default dtype": "leaves torch's default dtype changed",
    "precision flags": "leaves torch's precision flags changed",
    "no account": "its process gave no account of its state",
}


def check_conduct(call: Call, prepared: PreparedProblem) -> None:
    """Refuse what no call may do.

    Raises:
        Rejection: it left its process changed, wrote to an input, or returned an input's memory.
    """
    for change in call.changes:
        if change in _FORBIDDEN_CHANGES:
            raise Rejection(Verdict.REFUSED, f"not accepted: forward() {_FORBIDDEN_CHANGES[change]}; set it back")
    if call.changed_input and not prepared.in_place:
        raise Rejection(Verdict.WRONG, "forward() changed its input; write to memory of your own")
    if call.aliases_input and not prepared.aliasing:
        raise Rejection(
            Verdict.WRONG, "forward() returned memory of its input; the reference returns memory of its own"
        )


def left_threads(call: Call) -> bool:
    """Whether Python threads that were not there before the candidate still run. No fault, but worth a tag."""
    return "Python threads" in call.changes
