from kbevolve.islands.credit.credit import Credit
from kbevolve.islands.credit.posterior import Belief


def test_a_child_changes_what_is_believed_of_its_arm_alone() -> None:
    credit = Credit().with_child("tile", 0.4)
    assert credit.belief("tile").gain > 0
    assert credit.belief("fuse") == Belief()
    assert Credit().belief("tile") == Belief(), "the credit before is what it was"


def test_what_paid_long_ago_fades() -> None:
    credit = Credit()
    for _ in range(10):
        credit = credit.with_child("tile", 0.4)
    paid = credit.belief("tile").gain
    for _ in range(100):
        credit = credit.with_child("fuse", 0.0)
    assert credit.belief("tile").gain < 0.5 * paid
    assert credit.belief("tile").children < 3
