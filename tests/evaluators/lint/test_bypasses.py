"""What can be hidden from a reader of text is seen by one that resolves names; what only looks like it is not."""

import ast

import pytest

from kbevolve.evaluators.lint import lint
from tests.evaluators.lint.pairs import PAIRS
from tests.evaluators.lint.programs import Pair


@pytest.mark.parametrize("name", PAIRS)
def test_a_trick_is_seen_and_its_twin_is_not_accused(name: str) -> None:
    pair: Pair = PAIRS[name]
    ast.parse(pair.trick)
    ast.parse(pair.honest)
    trick, honest = lint(pair.trick), lint(pair.honest)
    assert pair.tag in trick.tags
    assert pair.tag not in honest.tags or (pair.refused and not honest.refusal)
    assert bool(trick.refusal) == pair.refused, trick.refusal
    assert honest.refusal == ""
