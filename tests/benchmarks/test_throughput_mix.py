import ast
import re
import shutil
import subprocess
from collections import Counter
from pathlib import Path

import pytest

from benchmarks.throughput.child import OUTCOMES, Child, Fate, Kind, Outcome, edited
from benchmarks.throughput.copies import copies, original
from benchmarks.throughput.mix import children, sample, small_children, stratum, table
from benchmarks.throughput.problems import problems
from kbevolve.archive.records import Verdict
from kbevolve.evaluators.lint import lint

ROOT = Path(__file__).parents[2]
MIX = children()
ALL = (*MIX, *small_children())
_DEVICE_CODE = re.compile(r'^(?:SOURCE|source) = r"""\n(.*?)^"""', re.DOTALL | re.MULTILINE)


def test_sixty_children_of_every_kind_and_fate_on_each_problem() -> None:
    assert Counter((child.problem, child.kind) for child in MIX) == {
        (problem, kind): 5 for problem in problems() for kind in (Kind.TRITON, Kind.FAST, Kind.INLINE)
    }
    by_cell = Counter((child.problem, child.kind, child.fate) for child in MIX)
    assert set(by_cell.values()) == {1, 2}
    assert all((number == 2) == (cell[2] is Fate.CORRECT) for cell, number in by_cell.items())
    assert len({child.name for child in MIX}) == 60


def test_no_two_children_are_the_same_to_any_cache() -> None:
    """Neither as files nor as what a compiler sees."""
    assert len({child.kernel.id for child in ALL}) == len(ALL)
    code = [found[1] for child in ALL if (found := _DEVICE_CODE.search(child.source))]
    assert len(code) == sum(child.kind in (Kind.FAST, Kind.INLINE) for child in ALL)
    plain = [re.sub(r"//[^\n]*|\s+", "", text) for text in code]
    assert len(set(plain)) == len(plain)


@pytest.mark.parametrize("child", ALL, ids=lambda child: child.name)
def test_a_child_is_a_file_that_the_lint_accepts(child: Child) -> None:
    tree = ast.parse(child.source)
    assert any(isinstance(node, ast.ClassDef) and node.name == "ModelNew" for node in tree.body)
    assert not re.search(r"@[A-Z_]+@", child.source), "a template's place was left open"
    assert not lint(child.source).refusal
    backends = {Kind.TRITON: "triton", Kind.TORCH: "torch"}
    assert child.kernel.backend.value == backends.get(child.kind, "cuda" if child in MIX else "cpp")


def test_the_manifest_says_which_verdict_is_right() -> None:
    for child in ALL:
        expected = {
            Fate.CORRECT: {Verdict.CORRECT},
            Fate.SLOW: {Verdict.CORRECT},
            Fate.WRONG: {Verdict.WRONG},
            Fate.FAILING: {Verdict.BUILD_FAILED, Verdict.CRASHED},
        }
        assert child.verdict in expected[child.fate]
        assert child.summary
    assert Counter(child.outcome for child in MIX) == {Outcome.CORRECT: 36, Outcome.INCORRECT: 12, Outcome.FAILED: 12}
    assert Verdict.REFUSED not in OUTCOMES


def test_the_documents_hold_the_manifest() -> None:
    assert table(MIX) in (ROOT / "docs" / "throughput.md").read_text()


def test_a_sample_stands_for_every_stratum_and_problem() -> None:
    chosen = sample(MIX)
    assert len(chosen) == 12
    assert len(set(map(stratum, chosen))) == 12
    assert set(Counter(child.problem for child in chosen).values()) == {3}


def test_an_edit_that_does_not_fit_is_no_edit() -> None:
    with pytest.raises(ValueError, match="occurs 2 times"):
        edited("a + a", ("a", "b"))
    with pytest.raises(ValueError, match="occurs 0 times"):
        edited("a + a", ("c", "b"))


def test_problems_draw_as_kernelbench_does() -> None:
    for name, problem in problems().items():
        body = problem.source.partition("def get_inputs")[2]
        assert "torch.rand(" in body, name
    assert problems(small=True)["L1/matmul"].cpu_sizes["M"] == 256
    assert problems(small=True)["L1/matmul"].source_for("cuda") != problems(small=True)["L1/matmul"].source_for("cpu")


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("nvcc") is None, reason="nvcc is not here")
@pytest.mark.parametrize(
    "name", ["matmul-fast-1", "matmul-fast-4", "softmax-fast-1", "layernorm-fast-1", "gemm-fast-4"]
)
def test_device_code_compiles_where_it_should(name: str, tmp_path: Path) -> None:
    """One for each problem, and the one that must not; the rest differ by edits and sizes only."""
    child = next(child for child in MIX if child.name == name)
    found = _DEVICE_CODE.search(child.source)
    assert found is not None
    path = tmp_path / "code.cu"
    path.write_text(found[1])
    done = subprocess.run(
        ["nvcc", "-arch=sm_80", "--ptx", str(path), "-o", str(tmp_path / "code.ptx")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode != 0) == (child.verdict is Verdict.BUILD_FAILED), done.stderr


@pytest.mark.parametrize("mix", [MIX, small_children()], ids=["mix", "small"])
def test_copies_are_children_of_their_own(mix: tuple[Child, ...]) -> None:
    many = copies(mix, 3)
    assert len({child.name for child in many}) == len({child.kernel.id for child in many}) == 3 * len(mix)
    for number, child in enumerate(many):
        first, copy = mix[number % len(mix)], number // len(mix)
        assert original(child.name) == first.name
        assert child.verdict is first.verdict
        assert child.source.replace(f"// copy {copy}\n", "").replace(f"\nCOPY = {copy}\n", "") == first.source


def test_what_a_compiler_reads_of_a_copy_is_new() -> None:
    cuda = [child for child in MIX if child.kind in (Kind.FAST, Kind.INLINE)]
    code = [found[1] for child in copies(cuda, 2) if (found := _DEVICE_CODE.search(child.source))]
    assert len(set(code)) == len(code) == 2 * len(cuda)
