"""A problem as text: what is read from it, what is refused, and its sizes on a CPU."""

from pathlib import Path

import pytest

from kbevolve.configs.errors import ProblemError
from kbevolve.configs.problem import Problem, constants_of, parse_problem, with_constants

TEXT = '''"""Doubles its input,
in place of something useful.

Memory bound.
"""
import torch

N = 4096  # rows
EPSILON = 1e-6
ÜBER, WIDTH = 1, 2
CPU_SIZES = {"N": 16}


class Model(torch.nn.Module):
    def forward(self, x):
        N = 3
        return 2 * x


def get_inputs():
    return [torch.randn(N)]


def get_init_inputs():
    return []
'''


def parsed(text: str) -> Problem:
    return parse_problem(text, name="double", path=Path("double.py"))


def test_summary_is_the_first_paragraph_in_one_line() -> None:
    assert parsed(TEXT).summary == "Doubles its input, in place of something useful."
    assert parsed(TEXT[TEXT.index("import") :]).summary == ""


def test_cpu_sizes_replace_module_constants_only_and_only_on_a_cpu() -> None:
    problem = parsed(TEXT)
    assert problem.cpu_sizes == {"N": 16}
    assert problem.source_for("cuda") == TEXT
    assert problem.source_for("cpu") == TEXT.replace("N = 4096", "N = 16")
    assert "        N = 3\n" in problem.source_for("cpu")


def test_columns_are_right_after_letters_of_several_bytes() -> None:
    assert with_constants("ß = 1; N = 22; M = 3\n", {"N": 4}) == "ß = 1; N = 4; M = 3\n"


def test_constants_are_numbers_sums_and_products_of_them_also_in_tuples() -> None:
    text = "N = 2 * 1024 - 1\nH, W = 32, -8\nFLAG = True\nNAME = 'N'\nM = N // 2\nSHAPE = (3, 4)\nEPS = 1e-5\n"
    assert constants_of(text) == {"N": 2047, "H": 32, "W": -8, "EPS": 1e-5}
    changed = with_constants(text, {"N": 5, "H": 1024, "W": 7, "M": 9})
    assert changed.startswith("N = 5\nH, W = 1024, 7\nFLAG = True\n")
    assert "M = N // 2" in changed, "what follows from another constant follows it"


def test_identity_is_the_text() -> None:
    assert parsed(TEXT).id == parsed(TEXT).id
    assert parsed(TEXT).id != parsed(TEXT + "\n").id
    assert len(parsed(TEXT).id) == 16


def test_without_cpu_sizes_a_cpu_gets_the_text_as_it_is() -> None:
    text = TEXT.replace('CPU_SIZES = {"N": 16}\n', "")
    assert parsed(text).cpu_sizes == {}
    assert parsed(text).source_for("cpu") == text


@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        ("import torch", "import torch torch", "line 6 is not Python"),
        ("class Model(", "class Modell(", "no Model at the top level"),
        ("def get_inputs", "def inputs", "no get_inputs at the top level"),
        ("def get_init_inputs", "def inputs", "no get_init_inputs at the top level"),
        ('{"N": 16}', '{"N": N}', "CPU_SIZES is not a literal dictionary"),
        ('{"N": 16}', "16", "CPU_SIZES is not a literal dictionary"),
        ('{"N": 16}', '{"N": "16"}', "CPU_SIZES is not a literal dictionary"),
        ('{"N": 16}', '{"M": 16}', "CPU_SIZES is not a literal dictionary of numbers for module constants"),
    ],
)
def test_what_is_malformed_is_refused_with_file_and_reason(old: str, new: str, complaint: str) -> None:
    assert old in TEXT
    with pytest.raises(ProblemError, match=complaint) as error:
        parsed(TEXT.replace(old, new, 1))
    assert str(error.value).startswith("double.py: ")
    assert "\n" not in str(error.value)
