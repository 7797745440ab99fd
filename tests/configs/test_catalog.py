"""Finding problems: built in, in a file, in a checkout of KernelBench; and what is said when there is none."""

from pathlib import Path

import pytest

from kbevolve.configs.catalog import builtin_names, find_problem, kernelbench_names
from kbevolve.configs.errors import ProblemError

#: A file in KernelBench's format, as small as can be.
TINY = "class Model: ...\ndef get_inputs(): ...\ndef get_init_inputs(): ...\n"


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A checkout with KernelBench's layout; level 2 begins at 3 and has a hole."""
    for file in (
        "level1/1_Square.py",
        "level1/2_ReLU.py",
        "level1/10_Softmax.py",
        "level2/3_Gemm.py",
        "level2/7_Mix.py",
    ):
        path = tmp_path / "checkout" / "KernelBench" / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"# {file}\n{TINY}")
    (tmp_path / "checkout" / "KernelBench" / "level1" / "__init__.py").touch()
    return tmp_path / "checkout"


def complaint(name: str, kernelbench: Path | None = None) -> str:
    with pytest.raises(ProblemError) as error:
        find_problem(name, kernelbench=kernelbench)
    assert "\n" not in str(error.value)
    return str(error.value)


def test_the_suite() -> None:
    names = builtin_names()
    assert names == sorted(names)
    assert {"L1/matmul", "L2/gemm_bias_relu", "L3/transformer_block"} < set(names)
    assert [sum(name.startswith(level) for name in names) for level in ("L1/", "L2/", "L3/")] == [10, 6, 3]


def test_a_builtin_problem_is_found_by_its_name() -> None:
    problem = find_problem("L1/matmul")
    assert problem.name == "L1/matmul"
    assert problem.path.name == "matmul.py"
    assert problem.cpu_sizes == {"M": 512, "N": 512, "K": 512}
    assert problem.source == problem.path.read_text()


def test_a_file_is_found_by_its_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mine.py").write_text(TINY)
    monkeypatch.chdir(tmp_path)
    for name in ("mine.py", "./mine.py", str(tmp_path / "mine.py")):
        assert find_problem(name).name == name, "what --problem takes, so that printed commands can be typed"
        assert find_problem(name).source == TINY


@pytest.mark.parametrize(
    ("name", "near"),
    [("matmul", "L1/matmul,"), ("l1/Matmul", "L1/matmul,"), ("L1/sofmax", "L1/softmax"), ("reduce", "L1/sum_reduce.")],
)
def test_an_unknown_name_is_answered_with_the_nearest(name: str, near: str) -> None:
    assert f"no problem {name!r}" in complaint(name)
    assert f"Nearest: {near}" in complaint(name)


def test_a_missing_file_is_answered_with_its_neighbours(tmp_path: Path) -> None:
    (tmp_path / "softmax.py").write_text(TINY)
    assert complaint(str(tmp_path / "sofmax.py")).endswith(f"Looked for .py files in {tmp_path}. Nearest: softmax.py.")
    assert "no folder" in complaint(str(tmp_path / "nowhere" / "softmax.py"))


def test_a_file_that_cannot_be_read_says_so(tmp_path: Path) -> None:
    (tmp_path / "latin.py").write_bytes(b"# caf\xe9\n")
    assert "byte 0xe9 at position 5 is not UTF-8; --problem wants" in complaint(str(tmp_path / "latin.py"))
    (tmp_path / "prose.py").write_text("Not a problem.")
    assert "line 1 is not Python" in complaint(str(tmp_path / "prose.py"))


def test_a_checkout_may_be_given_from_above_at_its_root_or_from_within(repository: Path) -> None:
    (repository.parent / "projects").mkdir()
    outer = repository.parent / "projects"
    repository.rename(outer / "KernelBench")
    for checkout in (outer, outer / "KernelBench", outer / "KernelBench" / "KernelBench"):
        problem = find_problem("kernelbench:1/2", kernelbench=checkout)
        assert problem.name == "kernelbench:1/2"
        assert problem.path.name == "2_ReLU.py"
        assert problem.source.startswith("# level1/2_ReLU.py")


def test_the_numbers_of_a_checkout_are_in_order_of_number(repository: Path) -> None:
    numbers = [name.removeprefix("kernelbench:") for name in kernelbench_names(repository)]
    assert numbers == ["1/1", "1/2", "1/10", "2/3", "2/7"]


def test_what_a_checkout_lacks_is_answered_with_the_nearest(repository: Path) -> None:
    assert "kernelbench:2/7" in complaint("kernelbench:2/6", repository)
    assert "Nearest: kernelbench:1/2 (ReLU)." in complaint("kernelbench:2/relu", repository)
    assert "Nearest: kernelbench:1/10 (Softmax)." in complaint("kernelbench:soft", repository)
    for name in ("kernelbench:19", "kernelbench:5/1", "kernelbench:1/", "kernelbench:"):
        assert "write kernelbench:LEVEL/NUMBER" in complaint(name, repository)
        assert "kbevolve problems ls" in complaint(name, repository)


def test_a_problem_of_a_checkout_is_found_by_its_title(repository: Path) -> None:
    for name in (
        "kernelbench:1/2",
        "kernelbench:1/ReLU",
        "kernelbench:relu",
        "kernelbench:2_ReLU",
        "kernelbench:1/2_relu",
    ):
        assert find_problem(name, kernelbench=repository).name == "kernelbench:1/2"
    (repository / "KernelBench" / "level2" / "9_ReLU.py").write_text(TINY)
    assert "there are several; write one of kernelbench:1/2, kernelbench:2/9" in complaint(
        "kernelbench:ReLU", repository
    )


def test_without_a_checkout_the_remedy_is_named(tmp_path: Path) -> None:
    assert "--kernelbench DIR" in complaint("kernelbench:1/1")
    assert f"{tmp_path} is no checkout of KernelBench" in complaint("kernelbench:1/1", tmp_path)
    assert "is no checkout" in complaint("kernelbench:1/1", tmp_path / "nowhere")
