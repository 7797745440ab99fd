import pytest

from kbevolve.islands.belief import Belief
from kbevolve.islands.credit import HANDED_DOWN, Credit


def test_a_child_changes_what_is_believed_of_its_arm_alone() -> None:
    credit = Credit().with_child("tile", 0.4)
    assert credit.belief("tile").gain > 0
    assert credit.belief("fuse") == Belief()
    assert Credit().belief("tile") == Belief(), "the credit before is what it was"


def test_what_paid_long_ago_fades() -> None:
    credit = Credit()
    for _ in range(10):
        credit = credit.with_child("tile", 0.4)
    paid = credit.belief("tile").improvement
    for _ in range(100):
        credit = credit.with_child("fuse", 0.0)
    assert credit.belief("tile").improvement < 0.7 * paid


def test_a_place_begins_with_what_is_known_elsewhere_and_learns_its_own() -> None:
    elsewhere = Credit()
    for _ in range(60):
        elsewhere = elsewhere.with_child("tile", 0.3).with_child("fuse", None)
    here = elsewhere.handed_down()
    assert here.beliefs == {}
    assert here.belief("tile").children <= HANDED_DOWN + 1e-9
    assert here.belief("tile").improvement > 3 * here.belief("fuse").improvement
    for _ in range(10):
        here = here.with_child("tile", -0.3).with_child("fuse", 0.3)
    assert here.belief("fuse").improvement > here.belief("tile").improvement


def test_what_was_handed_down_is_handed_on() -> None:
    far = Credit().with_child("tile", 0.5).handed_down().handed_down()
    assert far.belief("tile").gain == pytest.approx(Credit().with_child("tile", 0.5).belief("tile").gain)
