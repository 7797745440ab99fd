"""What a kernel's libraries import, and what a call ran, decide whether it leaves its work to a library."""

import pytest

from kbevolve.evaluators.judging.library_use import by_weight
from kbevolve.evaluators.sandbox.product import imports_of


def test_imports_are_read_from_the_names_in_the_file() -> None:
    names = [
        b"_ZN2at4_ops2mm4callERKNS_6TensorES4_",
        b"_ZN2at4_ops10empty_like4callERKNS_6TensorE",
        b"_ZN2at6native6linearE",
        b"cublasSgemm_v2",
        b"sgemm_",
        b"my_cublasSgemm",
        b"_ZN3own2mmE",
    ]
    library = b"\x7fELF\0" + b"\0".join(names) + b"\0"
    assert imports_of(library) == ("cublasSgemm_v2", "empty_like", "linear", "mm", "sgemm_")


@pytest.mark.parametrize(
    ("name", "weight"),
    [
        ("aten::mm", "heavy"),
        ("aten::cublasSgemm_v2", "heavy"),
        ("void cutlass::Kernel2<sm90>(Params)", "heavy"),
        ("sm90_xmma_gemm_f32f32", "heavy"),
        ("ampere_sgemm_128x64_tn", "heavy"),
        ("aten::relu", "light"),
        *((name, "") for name in ("aten::empty", "aten::copy_", "aten::slice", "aten::lift_fresh", "aten::view")),
        *((f"aten::{name}", "") for name in ("empty_memory_format", "select_int", "fill__Scalar", "to_dtype")),
        ("aten::mm_out", "heavy"),
        *((name, "") for name in ("mm", "matmul_kernel", "sm90_gemm", "void softmax<float>(float*)", "own::matmul")),
    ],
)
def test_names_are_weighed(name: str, weight: str) -> None:
    assert by_weight([name]) == (
        [name.removeprefix("aten::")] if weight == "heavy" else [],
        ["relu"] if weight == "light" else [],
    )
