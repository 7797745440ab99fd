import pytest

from kbevolve.archive.records import Verdict
from kbevolve.evaluators.feedback.failures import compiler_excerpt, failure_of

GCC = """Error building extension 'mm': [1/2] c++ -MMD -O3 -c /tmp/kbevolve-worker-12-ab/work/mm.cpp -o mm.o
FAILED: [code=1] mm.o
c++ -MMD -MF main.o.d -O3 -c /tmp/kbevolve-worker-12-ab/work/mm.cpp -o mm.o
/tmp/kbevolve-worker-12-ab/work/mm.cpp: In function 'void matmul(const float*)':
/tmp/kbevolve-worker-12-ab/work/mm.cpp:7:13: error: 'acc' was not declared in this scope
    7 |     c[j] += acc * b[j];
      |             ^~~
ninja: build stopped: subcommand failed.
"""
NVCC = """[1/2] nvcc -c k.cu
/tmp/kbevolve-worker-3-x/kbevolve-worker-3-y/work/k.cu(12): error: identifier "tid" is undefined
      int i = tid + 1;
              ^

1 error detected in the compilation of "k.cu".
"""


def test_gccs_first_error_has_its_source_line() -> None:
    text = compiler_excerpt(GCC)
    assert text.startswith("mm.cpp:7:13: error: 'acc' was not declared in this scope")
    assert "c[j] += acc * b[j];" in text
    assert "kbevolve-worker" not in text
    assert "FAILED" not in text


def test_nvccs_first_error_has_its_source_line() -> None:
    text = compiler_excerpt(NVCC)
    assert text.startswith('k.cu(12): error: identifier "tid" is undefined')
    assert "int i = tid + 1;" in text


SOURCE = 'import torch\nSOURCE = """\nvoid f() {\n    c[j] += acc * b[j];\n    int i = tid + 1;\n}\n"""\n'


@pytest.mark.parametrize("log", [GCC, NVCC])
def test_the_candidates_own_lines_surround_the_first_error(log: str) -> None:
    text = compiler_excerpt(log, SOURCE)
    assert "in your file:\n" in text
    assert "    4      c[j] += acc * b[j];\n    5      int i = tid + 1;" in text
    assert "import torch" not in text


def test_a_line_that_occurs_twice_in_the_file_is_not_guessed() -> None:
    assert "in your file" not in compiler_excerpt(GCC, SOURCE + SOURCE)
    assert "in your file" not in compiler_excerpt(GCC, "")
    assert "in your file" not in compiler_excerpt("mm.cpp:7:1: error: x\n\n\n", "\n\n")


def test_a_linker_error_is_found() -> None:
    assert "undefined reference to `foo()'" in compiler_excerpt(
        "x\nmm.o: undefined reference to `foo()'\ncollect2: error: y"
    )


def test_a_long_log_stays_short() -> None:
    log = "\n".join(f"mm.cpp:{line}:1: error: nonsense {'x' * 500}\n  1 | y" for line in range(500))
    text = compiler_excerpt(log)
    assert len(text) <= 2000
    assert "497 more errors" in text


@pytest.mark.parametrize(
    ("stage", "verdict"),
    [
        ("format", Verdict.REFUSED),
        ("build", Verdict.BUILD_FAILED),
        ("import", Verdict.BUILD_FAILED),
        ("construct", Verdict.CRASHED),
        ("run", Verdict.CRASHED),
        ("block", Verdict.CRASHED),
    ],
)
def test_each_stage_has_its_verdict(stage: str, verdict: Verdict) -> None:
    reply = {"ok": False, "stage": stage, "type": "ValueError", "text": "no", "frames": []}
    assert failure_of(reply)[0] is verdict


def test_an_exception_names_the_line() -> None:
    frames = [{"line": 7, "function": "forward", "code": "return a / 0"}]
    reply = {"ok": False, "stage": "run", "type": "ZeroDivisionError", "text": "division by zero", "frames": frames}
    assert failure_of(reply)[1] == (
        "calling forward() raised ZeroDivisionError: division by zero (line 7, in forward: `return a / 0`)"
    )


def test_torchs_text_for_every_cuda_error_is_left_out() -> None:
    text = (
        "CUDA error: an illegal memory access was encountered\nSearch for `cudaErrorIllegalAddress' in the manual.\n"
        "CUDA kernel errors might be asynchronously reported.\nFor debugging consider passing X.\n"
        "Compile with `TORCH_USE_CUDA_DSA` to enable device-side assertions.\n"
    )
    reply = {"ok": False, "stage": "run", "type": "AcceleratorError", "text": text, "frames": []}
    assert failure_of(reply)[1].endswith("AcceleratorError: CUDA error: an illegal memory access was encountered")


@pytest.mark.parametrize("reply", [{}, {"stage": [], "frames": 3, "text": {}}, {"frames": [7]}, {"frames": [{}]}])
def test_an_invalid_reply_still_gives_a_message(reply: dict[str, object]) -> None:
    verdict, message = failure_of(reply)
    assert verdict is Verdict.CRASHED
    assert message


def test_what_ptxas_calls_fatal_comes_before_that_it_gave_up() -> None:
    needed = "ptxas fatal   : (C7602) Insufficient registers (128) to compile instruction at line 9025 in function pv."
    log = f"ptxas info    : 0 bytes gmem\n{needed}\nptxas fatal   : Ptx assembly aborted due to errors\n"
    assert compiler_excerpt(log).startswith(needed)
    assert "more errors" not in compiler_excerpt(log)
