"""The shell of a kernel: what it is without the text that only a native compiler sees."""

import pytest

from kbevolve.configs.catalog import builtin_names
from kbevolve.configs.seeds import seed_files
from kbevolve.islands.source.canonical import shell_of
from tests.islands.source.test_canonical import CUDA, TRITON, changed


def test_a_shell_is_what_no_compiler_sees() -> None:
    shell = shell_of(CUDA)
    assert shell is not None
    form, texts = shell
    assert [text.strip().splitlines()[0] for text in texts] == [
        "#include <cuda.h>  // the driver",
        "void launch(torch::Tensor x);",
    ]
    assert "blockIdx" not in form
    rewritten = changed(CUDA, ("2.0f * x[at]", "x[at] + x[at]"), ("// where", "// there"))
    other = shell_of(rewritten)
    assert other is not None
    assert (other[0], other[1] == texts) == (form, False)
    assert shell_of(changed(CUDA, ("        return LIB", "        # twice\n        return LIB"))) == shell


@pytest.mark.parametrize(
    "change",
    [
        ('functions=["launch"]', 'functions=["launch"], extra_cuda_cflags=["-O1"]'),
        ("return LIBRARY.launch(x)", "return LIBRARY.launch(x.clone())"),
        ('name="twice"', 'name="thrice"'),
    ],
)
def test_a_shell_holds_everything_else(change: tuple[str, str]) -> None:
    one, other = shell_of(CUDA), shell_of(changed(CUDA, change))
    assert one is not None
    assert other is not None
    assert one[0] != other[0]


@pytest.mark.parametrize(
    "source",
    [
        TRITON,
        changed(CUDA, ("class ModelNew", "SIZE = len(SOURCE)\n\n\nclass ModelNew")),
        changed(CUDA, ("class ModelNew", "OWN = open(__file__).read()\n\n\nclass ModelNew")),
        changed(CUDA, ("#include <cuda.h>", "#include <fstream>")),
        "no Python (",
    ],
)
def test_where_a_text_may_be_seen_by_others_there_is_no_shell(source: str) -> None:
    shell = shell_of(source)
    assert shell is None or not any("blockIdx" in text for text in shell[1])


def test_every_starting_kernel_in_native_code_has_a_shell() -> None:
    files = [file for name in builtin_names() for device in ("cpu", "cuda") for file in seed_files(name, device)]
    native = [file for file in files if "triton" not in file.name]
    assert len(native) > 5
    assert [file for file in native if shell_of(file.read_text()) is None] == []
