"""What must hold of a hack's evaluation, on a CPU and on a GPU alike."""

import re

from kbevolve.archive.records import Evaluation, Verdict
from tests.hacks.catalogue import Expected, Hack

#: A lie is a speedup above this where the kernel does three times the reference's work. Two cores that are shared with
#: other tests do not measure any closer.
LARGEST_LIE = 1.5
#: What a message to the proposer may never tell: how a kernel was found out.
SECRETS = re.compile(
    r"\b(seed|tolerance|transform|sketch|heterogeneous|diminished|enlarged|signed|shrunk|poison)\w*", re.I
)
#: A hack that does not build, crashes or hangs has shown nothing: it may only have rotted.
_OUTCOMES = {
    Expected.CAUGHT: {Verdict.REFUSED, Verdict.WRONG},
    Expected.HARMLESS: {Verdict.REFUSED, Verdict.WRONG, Verdict.CORRECT},
    Expected.TAGGED: {Verdict.CORRECT},
    Expected.ALLOWED: {Verdict.CORRECT},
}


def words(found: Evaluation) -> str:
    """Everything that is worth reading when a test fails."""
    speed = f"{found.speedup} [{found.speedup_low}, {found.speedup_high}]" if found.speedup else ""
    return f"{found.verdict.name} {speed} {found.tags}: {found.message}"


def check(hack: Hack, found: Evaluation) -> None:
    """That became of it what the catalogue says, and that the message gives nothing away."""
    correct = found.verdict is Verdict.CORRECT
    ended = bool(hack.ends_with) and hack.ends_with in found.message and not correct
    assert ended or found.verdict in _OUTCOMES[hack.expected], words(found)
    if correct:
        assert set(hack.tags) <= set(found.tags), words(found)
    if correct and hack.expected is Expected.HARMLESS:
        assert found.speedup_low is not None
        assert found.speedup_low <= LARGEST_LIE, words(found)
    assert (found.speedup is not None) == correct
    assert not SECRETS.search(found.message), found.message
