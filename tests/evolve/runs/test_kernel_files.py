"""Which files of a folder are for which problem."""

from pathlib import Path

import pytest

from kbevolve.configs.errors import UsageError
from kbevolve.configs.suites import SuiteProblem, suite_problems
from kbevolve.evolve.runs.kernel_files import file_name, find_kernel_files


def entry(name: str, level: str, number: int | None, title: str) -> SuiteProblem:
    return SuiteProblem(name=name, level=level, number=number, title=title, problem=None)


RELU = entry("kernelbench:1/19", "1", 19, "ReLU")
SUITE = [RELU, entry("kernelbench:2/19", "2", 19, "Conv_ReLU"), entry("kernelbench:2/3", "2", 3, "ReLU")]


def found(folder: Path, problems: list[SuiteProblem], *files: str) -> tuple[dict[str, list[str]], list[str]]:
    for file in files:
        (folder / file).parent.mkdir(parents=True, exist_ok=True)
        (folder / file).touch()
    kernels = find_kernel_files(folder, problems)
    inside = {name: [path.relative_to(folder).as_posix() for path in paths] for name, paths in kernels.files.items()}
    return inside, [path.name for path in kernels.others]


def test_the_files_that_kernelbench_writes(tmp_path: Path) -> None:
    files = [f"level_1_problem_19_sample_{number}_kernel.py" for number in (0, 2, 10)]
    kernels, others = found(
        tmp_path, SUITE, *files, "level_2_problem_19_sample_0_kernel.py", "level_3_problem_19_sample_0_kernel.py",
        "level_1_problem_1_sample_0_kernel.py", "level_1_problem_19_sample_0_prompt.txt",
    )  # fmt: skip
    assert kernels == {"kernelbench:1/19": files, "kernelbench:2/19": ["level_2_problem_19_sample_0_kernel.py"]}
    assert others == ["level_1_problem_1_sample_0_kernel.py", "level_3_problem_19_sample_0_kernel.py"]


def test_files_with_the_name_of_a_problem(tmp_path: Path) -> None:
    kernels, others = found(
        tmp_path, SUITE, "19_ReLU_sample_1.py", "Conv_ReLU.py", "L2/relu.py", "1/19/mine.py", "ReLU.py", "Tanh.py"
    )
    assert kernels == {
        "kernelbench:1/19": ["1/19/mine.py", "19_ReLU_sample_1.py"],
        "kernelbench:2/19": ["Conv_ReLU.py"],
        "kernelbench:2/3": ["L2/relu.py"],
    }
    assert others == ["ReLU.py", "Tanh.py"], "two problems are called ReLU"


def test_a_folder_without_levels_takes_any_level(tmp_path: Path) -> None:
    mine = [entry("suite/1_square.py", "suite", 1, "square"), entry("suite/b.py", "suite", None, "b")]
    kernels, _ = found(tmp_path, mine, "level_1_problem_1_sample_0_kernel.py", "square_sample_1_kernel.py", "b.py")
    assert kernels["suite/1_square.py"] == ["level_1_problem_1_sample_0_kernel.py", "square_sample_1_kernel.py"]
    assert kernels["suite/b.py"] == ["b.py"]


def test_what_is_written_is_found_again(tmp_path: Path) -> None:
    for problems in ([RELU], suite_problems("builtin"), [entry("suite/b.py", "suite", None, "b")]):
        one = problems[0]
        kernels, others = found(tmp_path / one.title, problems, file_name(one))
        assert (kernels, others) == ({one.name: [file_name(one)]}, [])
    assert file_name(RELU) == "level_1_problem_19_sample_0_kernel.py"


def test_a_folder_without_a_kernel_of_the_suite_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x.py").touch()
    with pytest.raises(UsageError, match=r"no kernel for a problem of the suite \(1 other files, e.g. x.py\)"):
        find_kernel_files(tmp_path, SUITE)
    with pytest.raises(UsageError, match="is not a folder"):
        find_kernel_files(tmp_path / "nowhere", SUITE)
