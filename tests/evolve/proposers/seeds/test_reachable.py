"""What is used of a file's definitions stays, and what is not goes."""

from kbevolve.evolve.proposers.seeds.reachable import names_in, without_unused

TEXT = """import functools


ROWS = 64  # tune: 32, 64
COLUMNS = 8
# tune if: ROWS * COLUMNS < 1000


LOST = 3


@functools.cache
def one(x):
    return two(x) + ROWS


def two(x):
    return Three(x)


class Three:
    pass


def lost(x):
    return lost_too(one(x))


def lost_too(x):
    return lost(x)"""


def test_only_what_is_reached_stays_in_its_order() -> None:
    kept = without_unused(TEXT, {"one"})
    assert kept == TEXT[: TEXT.index("def lost(")].rstrip("\n").replace("LOST = 3\n\n\n", "")
    assert without_unused(TEXT, names_in("lost(1)")) == TEXT.replace("LOST = 3\n\n\n", "")
    assert without_unused(TEXT, set()) == "import functools"


def test_a_block_stays_whole() -> None:
    assert without_unused(TEXT, {"COLUMNS"}) == TEXT[: TEXT.index("\n\n\nLOST")]
