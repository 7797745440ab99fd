"""What must hold for the evaluation of a hack, on a CPU and on a GPU alike."""

import re

from kbevolve.archive.records import Evaluation, Verdict
from tests.hacks.catalogue import Expected, Hack

#: A speedup above this is a lie where the kernel does three times the reference's work. Two cores that run other tests
#: as well do not measure more exactly.
LARGEST_LIE = 1.5
#: What a message to the proposer must not contain: seeds, and the judge's own words for how a kernel was caught. Limits
#: and kinds of inputs may be named.
SECRETS = re.compile(
    r"\b(seed|tolerance|transform|sketch|heterogeneous|diminished|enlarged|signed|shrunk|poison)\w*", re.I
)
#: A hack that does not build, crashes or hangs shows nothing: it may just be out of date.
_OUTCOMES = {
    Expected.CAUGHT: {Verdict.REFUSED, Verdict.WRONG},
    Expected.HARMLESS: {Verdict.REFUSED, Verdict.WRONG, Verdict.CORRECT},
    Expected.TAGGED: {Verdict.CORRECT},
    Expected.ALLOWED: {Verdict.CORRECT},
}


def words(found: Evaluation) -> str:
    """The evaluation in one line, for a test that fails."""
    timing = found.timing
    speed = f"{timing.speedup} [{timing.speedup_low}, {timing.speedup_high}]" if timing.speedup else ""
    return f"{found.verdict.name} {speed} {found.tags}: {found.message}"


def check(hack: Hack, found: Evaluation) -> None:
    """The result is the expected one, and the message does not say how the kernel was caught."""
    correct = found.verdict is Verdict.CORRECT
    ended = bool(hack.ends_with) and hack.ends_with in found.message and not correct
    assert ended or found.verdict in _OUTCOMES[hack.expected], words(found)
    if correct:
        assert set(hack.tags) <= set(found.tags), words(found)
    if correct and hack.expected is Expected.HARMLESS:
        assert found.timing.speedup_low is not None
        assert found.timing.speedup_low <= LARGEST_LIE, words(found)
    assert (found.timing.speedup is not None) == correct
    assert not SECRETS.search(found.message), found.message
