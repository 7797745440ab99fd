"""Where a kernel lives: four axes of four levels each, read off the source alone, so 256 niches.

Static, deterministic and without a model: two evaluations of one kernel always fall in the same niche, and no
measurement noise moves a kernel. The axes follow KernelFoundry's static tuple and SEARCH section 3. Bins are fixed:
bins that adapt to the population lose kernels when they move. The backend is a label, not an axis.
"""

import re
from dataclasses import dataclass

from kbevolve.archive.records import Backend, Kernel
from kbevolve.islands.live_text import LiveText, live_text


@dataclass(frozen=True, slots=True, kw_only=True)
class Niche:
    """Levels 0-3 on each axis; see `MEMORY`, `COMPUTE`, `DECOMPOSITION` and `LAUNCHES` for their names."""

    memory: int
    compute: int
    decomposition: int
    launches: int

    @property
    def key(self) -> str:
        """Short stable name, e.g. ``m2c1d1l0``."""
        return f"m{self.memory}c{self.compute}d{self.decomposition}l{self.launches}"

    @property
    def words(self) -> str:
        """The four levels in words."""
        return ", ".join(
            names[level]
            for names, level in (
                (MEMORY, self.memory),
                (COMPUTE, self.compute),
                (DECOMPOSITION, self.decomposition),
                (LAUNCHES, self.launches),
            )
        )


MEMORY = ("plain access", "vectorised access", "tiled through fast memory", "asynchronous or streaming")
COMPUTE = ("scalar", "unrolled", "vector or warp wide", "matrix units")
DECOMPOSITION = ("one element a thread", "one tile or row a block", "split reduction", "persistent or nested")
LAUNCHES = ("one launch", "two launches", "three or more launches", "mainly library calls")

#: Per axis, the marks of each level above 0, lowest first; the highest level with a match counts.
_NATIVE_GPU = {
    "memory": (
        r"\bfloat[24]\b|\bint4\b|\buint4\b|__ldg|\.v[248]\.",
        r"__shared__",
        r"cp\.async|memcpy_async|cuda::pipeline",
    ),
    "compute": (
        r"#pragma unroll|\bfmaf?\(|__fmaf_rn",
        r"__shfl|__half|half2|bfloat16|cooperative_groups|__reduce_",
        r"\bmma\.sync|wgmma|nvcuda::wmma|\bldmatrix",
    ),
    "decomposition": (
        r"__syncthreads|__shared__|blockIdx\.[xy]\s*\*|for\s*\(.*blockDim",
        r"atomicAdd|atomicMax|split_?k|\bpartial",
        r"gridDim\.x\s*[;)*+]|multiProcessorCount|num_sms|setmaxnreg",
    ),
}
_NATIVE_CPU = {
    "memory": (
        r"omp simd|vector_size|_mm\d*_load|vld1q|__restrict",
        r"\bpack|aligned_alloc|posix_memalign|alignas|\b(?:TILE|BLOCK|[MNK]C)\w*\s*[)*+,;]",
        r"__builtin_prefetch|_mm_prefetch|_mm\d*_stream|nontemporal",
    ),
    "compute": (
        r"#pragma GCC unroll|#pragma unroll|std::fma|__builtin_fma",
        r"omp simd|vector_size|_mm\d+_|vld1q",
        r"_tile_|amx|_mm512_dpbf16",
    ),
    "decomposition": (
        r"omp parallel",
        r"reduction\s*\(|omp atomic|\bpartial",
        r"collapse\s*\(|schedule\s*\(\s*(?:dynamic|guided)|omp task",
    ),
}
_TRITON = {
    "memory": (
        r"tl\.(?:load|store)",
        r"tl\.dot|tl\.make_block_ptr|GROUP",
        r"num_stages\s*=\s*[2-9]|tensor_descriptor|eviction_policy|cache_modifier",
    ),
    "compute": (r"static_range|tl\.fma", r"float16|bfloat16|tl\.(?:sum|max|reduce|associative_scan)", r"tl\.dot"),
    "decomposition": (
        r"\bfor\b.*\brange\(|tl\.range\(",
        r"atomic_|SPLIT|\bpartial",
        r"tl\.num_programs|multi_processor_count|NUM_SMS",
    ),
}
_TORCH = {
    "memory": (r"channels_last|contiguous\(", r"chunk|split|unfold", r"CUDAGraph|graph\("),
    "compute": (r"addmm|baddbmm|einsum", r"\.half\(|bfloat16|autocast", r"allow_tf32|scaled_mm"),
    "decomposition": (r"\bfor\b", r"torch\.compile|jit\.script", r"Stream\("),
}
_MARKS = {Backend.TRITON: _TRITON, Backend.CUDA: _NATIVE_GPU, Backend.CPP: _NATIVE_CPU, Backend.TORCH: _TORCH}

_LIBRARY_CALL = re.compile(
    r"torch\.(?:mm|bmm|matmul|addmm|baddbmm|einsum|softmax|sum|mean|relu|cumsum|conv\d?d?|layer_norm)\b"
    r"|\bF\.\w+\(|torch\.nn\.functional\.\w+\(|torch\.ops\.|extern_kernels\.\w+\(|aten\.\w+"
)
_LAUNCH = {
    Backend.CUDA: re.compile(r"<<<"),
    Backend.TRITON: re.compile(r"\w+\[[^\]]+\]\(|\.run\("),
    Backend.CPP: re.compile(r"extern\s+\"C\""),
}


def describe(kernel: Kernel) -> Niche:
    """The niche of a kernel, from its source alone."""
    text = live_text(kernel.source)
    body = text.native if kernel.backend in (Backend.CUDA, Backend.CPP) else text.python
    marks = _MARKS[kernel.backend]
    return Niche(
        memory=_level(marks["memory"], body),
        compute=_level(marks["compute"], body),
        decomposition=_level(marks["decomposition"], body),
        launches=_launches(kernel.backend, text),
    )


def _level(marks: tuple[str, ...], text: str) -> int:
    return max((level for level, mark in enumerate(marks, start=1) if re.search(mark, text)), default=0)


def _launches(backend: Backend, text: LiveText) -> int:
    if backend is Backend.TORCH:
        return 3
    own = len(_LAUNCH[backend].findall(text.python + text.native))
    if len(_LIBRARY_CALL.findall(text.python)) > own:
        return 3
    return min(max(own, 1), 3) - 1
