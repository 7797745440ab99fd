"""Which sizes are drawn: of each kind, as many elements at most, the same ones for the same `Random`."""

from random import Random

import pytest

from kbevolve.evaluators.generality.dimensions import Dimension
from kbevolve.evaluators.generality.sizes import ORDINARY_ELEMENTS, Sizes, draw_sizes, is_prime, next_prime

ROWS = Dimension(name="ROWS", nominal=1024, leads=True)
COLUMNS = Dimension(name="COLUMNS", nominal=4096, leads=False)


def product(sizes: Sizes, most: int) -> bool:
    """A problem of one matrix."""
    return sizes["ROWS"] * sizes["COLUMNS"] <= most


def drawn(seed: int = 0) -> dict[str, Sizes]:
    return {one.kind: one.sizes for one in draw_sizes([ROWS, COLUMNS], product, Random(seed))}


def test_each_kind_is_what_it_says() -> None:
    for seed in range(50):
        found = drawn(seed)
        assert list(found) == [
            "small", "odd", "prime", "power of two", "batch of 1", "longer ROWS", "longer COLUMNS"
        ]  # fmt: skip
        assert all(2 <= size <= 9 for size in found["small"].values())
        assert all(size % 2 and not is_prime(size) for size in found["odd"].values())
        assert all(is_prime(size) for size in found["prime"].values())
        assert all(size.bit_count() == 1 for size in found["power of two"].values())
        assert found["batch of 1"]["ROWS"] == 1
        assert found["longer ROWS"]["ROWS"] == 1031
        assert found["longer COLUMNS"]["COLUMNS"] == 4099
        for sizes in found.values():
            assert sizes["ROWS"] != sizes["COLUMNS"], "equal axes hide that they were exchanged"


def test_the_same_random_draws_the_same_sizes() -> None:
    assert drawn(3) == drawn(3)
    assert drawn(3) != drawn(4)


def test_an_axis_that_counts_three_times_is_drawn_shorter() -> None:
    def cube(sizes: Sizes, most: int) -> bool:
        return sizes["ROWS"] * sizes["COLUMNS"] ** 3 <= most

    for one in draw_sizes([ROWS, COLUMNS], cube, Random(0)):
        assert cube(one.sizes, ORDINARY_ELEMENTS)
    kinds = {one.kind for one in draw_sizes([ROWS, COLUMNS], cube, Random(0))}
    assert kinds == {"small", "odd", "prime", "power of two", "batch of 1", "longer ROWS"}, "4099³ is too many"


def test_where_the_model_wants_a_multiple_the_next_one_is_taken() -> None:
    def grouped(sizes: Sizes, most: int) -> bool:
        return sizes["COLUMNS"] % 8 == 0 and product(sizes, most)

    found = list(draw_sizes([ROWS, COLUMNS], grouped, Random(0)))
    assert all(one.sizes["COLUMNS"] % 8 == 0 for one in found)
    odd = next(one for one in found if one.kind.startswith("odd"))
    assert odd.kind == "odd, rounded"
    assert odd.sizes["ROWS"] % 2


def test_a_size_that_the_model_does_not_let_change_stays() -> None:
    def fixed(sizes: Sizes, most: int) -> bool:
        return sizes["COLUMNS"] == 4096 and product(sizes, most)

    found = list(draw_sizes([ROWS, COLUMNS], fixed, Random(0)))
    assert found
    assert {one.sizes["COLUMNS"] for one in found} == {4096}
    assert not any(one.sizes["ROWS"] == 1024 for one in found), "the file's own sizes are no other sizes"


def test_without_a_size_at_which_the_model_runs_nothing_is_drawn() -> None:
    assert not list(draw_sizes([ROWS], lambda sizes, most: False, Random(0)))


@pytest.mark.parametrize(("number", "prime"), [(1, 2), (2, 3), (8, 11), (4096, 4099)])
def test_next_prime(number: int, prime: int) -> None:
    assert next_prime(number) == prime
