"""Traits of PTX: lines that nvcc 13.0 and Triton 3.6 wrote for sm_90a, each with exactly its traits."""

import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from kbevolve.archive.records import Trait
from kbevolve.evaluators.worker.ptx import ptx_traits, triton_traits

VECTOR, SHARED, ASYNC, STREAMING, SHUFFLES, PACKED, MATRIX, ATOMICS = (trait.value for trait in Trait)

LINES = [
    # ---- nvcc
    ("ld.global.nc.v4.f32 \t{%f1, %f2, %f3, %f4}, [%rd6];", [VECTOR]),
    ("st.global.v2.u32 \t[%rd7], {%r1, %r2};", [VECTOR]),
    ("ld.global.cs.v4.f32 {%f1,%f2,%f3,%f4}, [%rd1];", [VECTOR, STREAMING]),
    ("ld.global.nc.L1::no_allocate.f32 %f1,[%rd1];", [STREAMING]),
    ("ld.global.lu.f32 %f1, [%rd1];", [STREAMING]),
    ("ld.global.f64 \t%fd1, [%rd6];", []),
    ("ld.global.u64 \t%rd7, [%rd6];", []),
    ("ld.param.v4.f32 \t{%f1, %f2, %f3, %f4}, [k_param_0];", []),
    ("st.local.v4.f32 \t[%rd1], {%f1, %f2, %f3, %f4};", []),
    ("ld.global.cg.f32 %f1, [%rd1];", []),
    ("st.global.wt.f32 [%rd2], %f1;", []),
    ("ld.volatile.global.f32 \t%f1, [%rd6];", []),
    ("ld.global.L1::evict_last.f32 %f1,[%rd1];", []),
    ("ld.shared.v4.u32 \t{%r9, %r10, %r11, %r12}, [%r8];", [SHARED]),
    ("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r1, %r2, %r3, %r4}, [%r5];", [SHARED]),
    (".shared .align 4 .b8 _ZZ2smPKfPfE1s[1024];", []),
    ("cp.async.cg.shared.global [%r68], [%rd25], 16, %r71;", [SHARED, ASYNC]),
    ("cp.async.commit_group;\ncp.async.wait_group 0;", []),
    ("cp.async.bulk.commit_group;\ncp.async.bulk.wait_group.read 0;", []),
    (
        "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%r1],[%rd1,{%r3}],[%r2];",
        [SHARED, ASYNC],
    ),
    ("mbarrier.init.shared.b64 [%r1],1;", []),
    ("prefetch.global.L2 [%rd2];", [ASYNC]),
    ("shfl.sync.bfly.b32 \t%r8|%p1, %r6, %r3, %r7, %r4;", [SHUFFLES]),
    ("redux.sync.add.s32 %r5, %r2, %r4;", [SHUFFLES]),
    ("vote.sync.ballot.b32 \t%r10, %p2, %r4;", []),
    ("{fma.rn.f16x2 %r1,%r2,%r3,%r4;\n}", [PACKED]),
    ("{ add.bf16x2 %r5,%r6,%r7; }", [PACKED]),
    ("{fma.rn.f16 %rs1,%rs2,%rs3,%rs4;\n}", []),
    ("{ cvt.rn.f16x2.f32 %r3, %f4, %f3; }", []),
    ("dp4a.s32.s32 %r1, %r2, %r3, %r4;", [PACKED]),
    ("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%f643}, {%r470}, {%r505}, {%f1658};", [MATRIX]),
    ("atom.global.max.u32 \t%r25, [%rd19], %r5;", [ATOMICS]),
    ("atom.add.release.gpu.u32 %r1,[%rd1],%r2;", [ATOMICS]),
    ("atom.shared.add.u32 \t%r10, [%r9], 1;", [SHARED]),
    ("// mma.sync ld.global.v4.f32\n/* cp.async.ca\natom.global.add */ ret;", []),
    # ---- Triton
    ("createpolicy.fractional.L2::evict_first.b64 %rd2, 1.0;", [STREAMING]),
    (
        "@%p1 ld.global.L1::evict_first.L2::cache_hint.v4.b32 { %r1, %r2, %r3, %r4 }, [ %rd1 + 0 ], %rd2;",
        [VECTOR, STREAMING],
    ),
    ("@%p2 st.global.b32 [ %rd6 + 0 ], { %r5 };", []),
    ("wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16 {%r304,%r305}, %rd26, %rd27, %p4, 1, 1, 0, 1;", [MATRIX]),
    ("wgmma.fence.sync.aligned;\nwgmma.commit_group.sync.aligned;", []),
    ("@%p7 atom.global.gpu.acq_rel.add.f32 %r45, [ %rd3 + 0 ], %r46;", [ATOMICS]),
    ("tcgen05.mma.cta_group::1.kind::f16 [ %r1 + 0 ], %rd1, %rd2, %r2, %p1;", [MATRIX]),
    ("fma.rn.f32x2 \t%rd1, %rd2, %rd3, %rd4;", [PACKED]),
]


@pytest.mark.parametrize(("line", "shown"), LINES)
def test_each_instruction_has_its_traits(line: str, shown: list[str]) -> None:
    assert ptx_traits(f"\t// begin inline asm\n\t{line}\n\t// end inline asm\n\tret;\n") == shown


def test_the_order_is_that_of_the_enum() -> None:
    text = "\n".join(line for line, _ in reversed(LINES))
    assert ptx_traits(text) == [trait.value for trait in Trait]


@pytest.fixture
def candidate(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    module = ModuleType("candidate")
    monkeypatch.setitem(sys.modules, "candidate", module)
    return module


def compiled(*texts: Any) -> SimpleNamespace:
    """A Triton function with these compiled forms."""
    kernels = {str(number): SimpleNamespace(asm={"ptx": text}) for number, text in enumerate(texts)}
    return SimpleNamespace(device_caches={0: (kernels, {}, None)})


def test_a_file_without_triton_has_no_traits(candidate: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    vars(candidate).update(number=3, function=len, nothing=compiled())
    assert triton_traits() is None
    monkeypatch.delitem(sys.modules, "candidate")
    assert triton_traits() is None


def test_all_kernels_of_a_file_and_all_their_forms_count(candidate: ModuleType) -> None:
    tuned = SimpleNamespace(fn=compiled("ld.global.b32 ...;", "cp.async.cg.shared.global ...;"))
    vars(candidate).update(sums=compiled("shfl.sync.bfly.b32 ...;"), product=tuned)
    assert triton_traits() == [SHARED, ASYNC, SHUFFLES]
    vars(candidate).clear()
    vars(candidate).update(plain=compiled("ld.global.b32 ...;"))
    assert triton_traits() == []


@pytest.mark.parametrize("text", [None, b"mma.sync", 3])
def test_one_unreadable_kernel_leaves_all_unknown(candidate: ModuleType, text: Any) -> None:
    vars(candidate).update(known=compiled("mma.sync.x;"), unknown=compiled(text))
    assert triton_traits() is None


def test_too_many_kernels_are_not_read(candidate: ModuleType) -> None:
    vars(candidate).update(tuned=compiled(*["mma.sync.x;"] * 65))
    assert triton_traits() is None
