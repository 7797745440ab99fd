"""Suites: the problems of each, and how some of them are chosen."""

from collections import Counter
from pathlib import Path

import pytest

from kbevolve.configs.errors import UsageError
from kbevolve.configs.suites import SuiteProblem, chosen, suite_problems

TINY = "class Model: ...\ndef get_inputs(): ...\ndef get_init_inputs(): ...\n"


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    for file in ("level1/1_Square.py", "level1/2_ReLU.py", "level1/19_Wide_Softmax.py", "level2/2_Conv_ReLU.py"):
        path = tmp_path / "KernelBench" / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(TINY)
    (tmp_path / "KernelBench" / "level2" / "3_Broken.py").write_text("x = 1")
    return tmp_path


def names(found: list[SuiteProblem]) -> list[str]:
    return [one.name.removeprefix("kernelbench:") for one in found]


def test_the_problems_of_each_suite(checkout: Path) -> None:
    builtin = suite_problems("builtin")
    assert len(builtin) == 19
    assert (builtin[0].name, builtin[0].level, builtin[0].number, builtin[0].title) == (
        "L1/conv2d",
        "1",
        None,
        "conv2d",
    )
    found = suite_problems("kernelbench", kernelbench=checkout)
    assert names(found) == ["1/1", "1/2", "1/19", "2/2", "2/3"]
    assert (found[2].level, found[2].number, found[2].title) == ("1", 19, "Wide_Softmax")
    assert found[-1].problem is None
    assert "no Model, get_inputs, get_init_inputs" in found[-1].error, "a bad file hides no other"


def test_a_folder_is_a_suite(tmp_path: Path, checkout: Path) -> None:
    mine = tmp_path / "mine"
    mine.mkdir()
    for name in ("b.py", "10_z.py", "9_y.py", "_shared.py"):
        (mine / name).write_text(TINY)
    found = suite_problems(str(mine))
    assert [(one.title, one.level, one.number) for one in found] == [
        ("b", "mine", None), ("y", "mine", 9), ("z", "mine", 10),
    ]  # fmt: skip
    assert found[0].name == str(mine / "b.py"), "what --problem takes"
    assert [one.level for one in suite_problems(str(checkout / "KernelBench"))] == ["1", "1", "1", "2", "2"]


@pytest.mark.parametrize(
    ("patterns", "wanted"),
    [
        (("19",), ["1/19"]),
        (("2",), ["1/2", "2/2"]),
        (("1/2", "kernelbench:2/3"), ["1/2", "2/3"]),
        (("1/2-20",), ["1/2", "1/19"]),
        (("relu",), ["1/2"]),
        (("Wide_Softmax",), ["1/19"]),
        (("19_Wide_Softmax",), ["1/19"]),
        (("*relu",), ["1/2", "2/2"]),
        (("2/*",), ["2/2", "2/3"]),
        (("soft",), ["1/19"]),
        ((), ["1/1", "1/2", "1/19", "2/2", "2/3"]),
    ],
)
def test_problems_are_chosen_by_number_name_or_pattern(
    checkout: Path, patterns: tuple[str, ...], wanted: list[str]
) -> None:
    assert names(chosen(suite_problems("kernelbench", kernelbench=checkout), patterns=patterns)) == wanted


def test_built_in_problems_are_chosen_by_name() -> None:
    every = suite_problems("builtin")
    assert names(chosen(every, patterns=["L1/matmul"])) == ["L1/matmul"]
    assert names(chosen(every, patterns=["matmul*"])) == ["L1/matmul", "L1/matmul_tall_skinny"]
    assert {one.level for one in chosen(every, levels=["2", "3"])} == {"2", "3"}
    assert names(chosen(every, patterns=["L3/*"], limit=2)) == ["L3/mlp", "L3/resnet_block"]


@pytest.mark.parametrize(
    ("choice", "why"),
    [
        ({"patterns": ["L1/matmull"]}, "no problem matches 'L1/matmull'. Nearest: L1/matmul"),
        ({"levels": ["4"]}, "no problems of level 4; the levels are 1, 2, 3"),
    ],
)
def test_what_matches_nothing_is_refused(choice: dict[str, list[str]], why: str) -> None:
    with pytest.raises(UsageError) as error:
        chosen(suite_problems("builtin"), **choice)  # type: ignore[arg-type]
    assert why in str(error.value)


def test_problems_are_drawn_by_a_seed_in_equal_shares_of_the_levels() -> None:
    problems = [
        SuiteProblem(name=f"{level}/{number}", level=level, number=number, title="", problem=None)
        for level, count in (("1", 100), ("2", 100), ("3", 50))
        for number in range(count)
    ]
    drawn = chosen(problems, limit=60, draw=7)
    assert Counter(one.level for one in drawn) == {"1": 24, "2": 24, "3": 12}
    assert drawn == chosen(problems, limit=60, draw=7)
    assert drawn != chosen(problems, limit=60, draw=8)
    assert drawn == [one for one in problems if one in drawn]
    assert len(chosen(problems, limit=61, draw=7)) == 61
    assert len(chosen(problems, levels=["3"], limit=80, draw=7)) == 50


def test_a_suite_that_is_none_is_refused(tmp_path: Path) -> None:
    for suite, why in (("nowhere", "no suite 'nowhere'"), (str(tmp_path), "has no problems"), ("kernelbench", "fetch")):
        with pytest.raises(UsageError, match=why):
            suite_problems(suite)
