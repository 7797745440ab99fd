from dataclasses import replace

from kbevolve.archive.records import Evaluation, Verdict
from kbevolve.evolve.state.signatures import LENGTH, first_line, signature
from tests.evolve.doubles import KnownEvaluator, kernel, problem


def failed(message: str, verdict: Verdict = Verdict.WRONG) -> Evaluation:
    return replace(KnownEvaluator().evaluate(problem(), kernel(WRONG=1)), message=message, verdict=verdict)


def test_what_differs_by_chance_is_left_out() -> None:
    pairs = [
        ("first wrong element at (0, 512): 1.5e-3", "\nfirst wrong element at (7, 12): -2"),
        ("/tmp/a1/x/kernel.cu:12: error: 'i' was not declared", "/var/b/kernel.cu:7: error: 'i' was not declared"),
        ("illegal address 0x7fde0", "illegal address 0x1\nand more"),
        ("kernel_0123456789abcdef.so: undefined symbol", "kernel_0123456789abcdee.so: undefined symbol"),
    ]
    for one, other in pairs:
        assert signature(failed(one)) == signature(failed(other)), one
    assert signature(failed("a")) != signature(failed("a", Verdict.CRASHED))
    assert signature(failed("'i' was not declared")) != signature(failed("'j' was not declared"))


def test_a_line_is_short_and_names_the_verdict() -> None:
    assert first_line(failed("\n\n  off by 3\nmore", Verdict.BUILD_FAILED)) == "build failed: off by 3"
    assert len(first_line(failed("x" * 5000))) <= LENGTH + 10
    assert first_line(failed("", Verdict.TIMED_OUT)) == "timed out"
