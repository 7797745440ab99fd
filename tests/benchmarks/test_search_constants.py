import pytest

from benchmarks.search_constants import fractions, table, variants
from kbevolve.evolve.strategies import operators


def test_every_variant_searches_and_leaves_the_constants_as_they_are() -> None:
    stale, everything = operators.STALE, variants()
    chosen = [everything[0], *(one for one in everything if one.name in ("stale after", "search.tune_share"))]
    found = [fractions(one, landscapes=["softmax"], budget=40, seeds=2) for one in chosen]
    assert stale == operators.STALE
    assert all(0 < fraction <= 1 for mine in found for fraction in mine)
    assert found[0] == fractions(chosen[0], landscapes=["softmax"], budget=40, seeds=2)
    assert len(set(map(tuple, found))) > 1, "the constants matter"
    lines = table(chosen, found).splitlines()
    assert lines[2].startswith("| as committed |  | 0.")
    assert len(lines) == 2 + len(chosen)


@pytest.mark.parametrize("variant", variants()[1:], ids=lambda one: f"{one.name} {one.value}")
def test_every_constant_exists(variant: object) -> None:
    fractions(variant, landscapes=["softmax"], budget=10, seeds=1)  # type: ignore[arg-type]
