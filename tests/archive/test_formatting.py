"""Numbers as text: what a tie is, and why."""

import pytest

from kbevolve.archive.formatting import comparison_words
from kbevolve.archive.records import Comparison


@pytest.mark.parametrize(
    ("comparison", "low", "high", "words"),
    [
        (Comparison.FASTER, 1.5, 1.6, "faster than eager"),
        (Comparison.SLOWER, 0.5, 0.6, "slower than eager"),
        (Comparison.TIE, 0.978, 1.21, "a tie with eager, and the interval includes 1"),
        (
            Comparison.TIE,
            0.832,
            0.913,
            "a tie with eager, because processes with one kernel differed by 9.5 % or more here",
        ),
        (
            Comparison.TIE,
            1.02,
            1.05,
            "a tie with eager, because processes with one kernel differed by 2.0 % or more here",
        ),
        (Comparison.TIE, None, None, "a tie with eager"),
        (
            Comparison.TIE,
            0.035,
            21.1,
            "unknown against eager: the ends of its interval differ by a factor 603; measure again on a quiet machine",
        ),
    ],
)
def test_a_tie_says_why_it_is_one(comparison: Comparison, low: float | None, high: float | None, words: str) -> None:
    assert comparison_words(comparison, "eager", low, high) == words


def test_the_ratio_is_before_the_reason() -> None:
    found = comparison_words(Comparison.TIE, "3f2a", 0.9, 1.1, "0.98× [0.90, 1.1]")
    assert found == "a tie with 3f2a: 0.98× [0.90, 1.1] its speed, and the interval includes 1"
