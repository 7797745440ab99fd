"""The list of flawed problems: whole, well-formed, and found under every name that a problem goes by."""

from pathlib import Path

from kbevolve.configs.catalog import builtin_names, find_problem
from kbevolve.configs.flaws import all_flaws, known_flaws
from kbevolve.configs.problem import parse_problem

TINY = "class Model: ...\ndef get_inputs(): ...\ndef get_init_inputs(): ...\n"


def kinds(name: str, path: str = "somewhere.py") -> list[str]:
    return [flaw.kind for flaw in known_flaws(parse_problem(TINY, name=name, path=Path(path)))]


def test_the_list_is_whole() -> None:
    every = [flaw for found in all_flaws().values() for flaw in found]
    assert sum(flaw.kind == "degenerate" for flaw in every) == 17
    assert sum(flaw.kind == "soft" for flaw in every) == 23
    assert {flaw.kind for flaw in every} == {"degenerate", "soft", "collapsible", "redundant", "random"}
    for flaw in every:
        level, number = flaw.problem.split("/")
        assert level in "123"
        assert 1 <= int(number) <= 100
        assert bool(flaw.fill) == (flaw.kind in ("degenerate", "soft"))
        assert flaw.why or flaw.kind == "soft", flaw
        assert "\n" not in flaw.words
        assert not flaw.words.endswith(".")


def test_a_problem_is_known_by_name_and_by_place() -> None:
    assert kinds("kernelbench:1/23") == ["degenerate"]
    assert kinds("/x/KernelBench/level1/23_Softmax.py", "/x/KernelBench/level1/23_Softmax.py") == ["degenerate"]
    assert kinds("kernelbench:2/44") == ["soft", "collapsible", "redundant"]
    assert kinds("kernelbench:1/1") == []
    assert kinds("softmax.py", "/x/other/23_Softmax.py") == []
    assert all(known_flaws(find_problem(name)) == () for name in builtin_names())


def test_words_are_one_line_for_people() -> None:
    (flaw,) = known_flaws(parse_problem(TINY, name="kernelbench:2/9", path=Path("x.py")))
    assert flaw.words.startswith("degenerate: zeros pass: ")
    assert all_flaws()["2/8"][0].words == "soft: one constant passes"
