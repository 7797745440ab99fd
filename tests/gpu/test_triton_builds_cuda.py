"""The judge compiles Triton's kernels: once for all kernel files that have them, and as Triton itself would."""

import textwrap
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from kbevolve.archive.records import Evaluation, Kernel, Verdict
from kbevolve.evaluators.device.devices import find_device
from kbevolve.evaluators.disk_cache import DiskCache
from kbevolve.evaluators.judging.judge import Judge
from kbevolve.evaluators.lint.process import LintProcess
from tests.gpu.test_judge_cuda import SETTINGS, TRITON, problem

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")]

#: Runs before the kernel, in its process, which then asks for another kernel than its Python code says. The lint, which
#: would refuse it, is left out.
TAMPERING = """
from triton._C.libtriton import ir
texts = ir.module.str_nodebug
ir.module.str_nodebug = lambda module: texts(module).replace("maxnumf", "minnumf").replace("maximumf", "minimumf")
"""


class Judged:
    """A judge with a cache of its own."""

    def __init__(self, folder: Path) -> None:
        self.judge = Judge(find_device("cuda"), SETTINGS, disk_cache=DiskCache(folder))
        self._folder = folder / "builds" / "triton"

    @property
    def compiled(self) -> int:
        """How many kernels of Triton the cache has."""
        return sum(path.is_file() for path in self._folder.rglob("*"))

    def evaluate(self, source: str) -> Evaluation:
        found = self.judge.evaluate(problem(), Kernel.from_source(source))
        print(found.verdict.name, found.message, {k: round(v, 2) for k, v in found.execution.phases.items()})
        return found


@pytest.fixture
def judged(tmp_path: Path) -> Iterator[Judged]:
    found = Judged(tmp_path)
    with found.judge:
        yield found


def test_a_kernel_is_compiled_once_for_all_files_that_have_it(judged: Judged) -> None:
    first = judged.evaluate(TRITON)
    assert first.verdict is Verdict.CORRECT, first.message
    assert judged.compiled == 1
    # Its lines are elsewhere, and its launch is another.
    second = judged.evaluate(TRITON.replace("import torch\n", "import torch\n\nUNUSED = 1\n", 1))
    assert second.verdict is Verdict.CORRECT, second.message
    assert judged.compiled == 1
    other = judged.evaluate(TRITON.replace("1024", "2048"))
    assert other.verdict is Verdict.CORRECT, other.message
    assert judged.compiled == 2


def test_what_one_process_asks_for_changes_no_other_kernel(judged: Judged, monkeypatch: pytest.MonkeyPatch) -> None:
    lint = LintProcess.lint
    monkeypatch.setattr(LintProcess, "lint", lambda *given, **facts: replace(lint(*given, **facts), refusal=""))
    cheat = judged.evaluate(TAMPERING + TRITON)
    assert cheat.verdict is Verdict.WRONG, cheat.message
    assert judged.compiled == 1, "the judge compiled what it was asked for"
    honest = judged.evaluate(TRITON)
    assert honest.verdict is Verdict.CORRECT, honest.message
    assert judged.compiled == 2


def test_a_damaged_cache_is_compiled_again(judged: Judged, tmp_path: Path) -> None:
    assert judged.evaluate(TRITON).verdict is Verdict.CORRECT
    products = [path for path in (tmp_path / "builds" / "product").rglob("*") if path.is_file()]
    assert products
    for path in products:
        path.write_bytes(b"another")
    again = judged.evaluate("\n" + TRITON)
    assert again.verdict is Verdict.CORRECT, again.message


def test_a_kernel_with_options_of_its_own_is_compiled_by_its_worker(judged: Judged) -> None:
    # With it the lines of the file are part of the machine code.
    found = judged.evaluate(TRITON.replace("BLOCK=1024)", "debug=True, BLOCK=1024)"))
    assert found.verdict is Verdict.CORRECT, found.message
    assert judged.compiled == 0


def test_a_kernel_that_does_not_compile_has_tritons_own_error(judged: Judged) -> None:
    wrong = TRITON.replace(
        "tl.store(y + at, tl.maximum(value, 0.0), mask=inside)", "tl.store(y + at, tl.undefined(value))"
    )
    found = judged.evaluate(wrong)
    assert found.verdict is Verdict.BUILD_FAILED, (found.verdict, found.message)
    assert "undefined" in found.message


def test_what_ptxas_refuses_fails_with_its_words(judged: Judged) -> None:
    inline = textwrap.indent(
        textwrap.dedent(
            """
            value = tl.inline_asm_elementwise("no.such.instruction $0, $1;", "=f,f", [value], tl.float32, True, 1)
            tl.store(y + at, tl.maximum(value, 0.0), mask=inside)
            """
        ).strip(),
        "    ",
    ).strip()
    found = judged.evaluate(TRITON.replace("tl.store(y + at, tl.maximum(value, 0.0), mask=inside)", inline))
    assert found.verdict is Verdict.BUILD_FAILED, (found.verdict, found.message)
    assert "no.such.instruction" in found.message or "ptxas" in found.message.lower()
