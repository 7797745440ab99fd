"""Where a kernel lives: four axes of four levels each, read off the source and the compiled code, so 256 niches.

Static, deterministic and without a model: two evaluations of one kernel always fall in the same niche, and no
measurement noise moves a kernel. The axes follow KernelFoundry's static tuple and SEARCH section 3. Bins are fixed:
bins that adapt to the population lose kernels when they move. The backend is a label, not an axis.

Words in a source are claims: a kernel may ask for three stages and get none. What has an unmistakable instruction is
decided by the compiled code, where it could be disassembled; the rest is decided by the source.
"""

import re
from collections.abc import Callable, Collection, Mapping
from operator import and_, or_

from kbevolve.archive.records import Backend, Kernel, Trait
from kbevolve.islands.source.active_code import ActiveCode, active_code

#: The levels of each axis, from 0. A key has the first letter of each axis with its level.
LEVELS = {
    "memory": ("plain access", "vectorised access", "tiled through fast memory", "asynchronous or streaming"),
    "compute": ("scalar", "unrolled", "vector or warp wide", "matrix units"),
    "decomposition": ("one element a thread", "one tile or row a block", "split reduction", "persistent or nested"),
    "launches": ("one", "two", "three or more", "mainly library calls"),
}

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
        r"__syncthreads|__shared__|blockIdx\.[xy]\s*\*|for\s*\(.{0,200}blockDim",
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
        r"\b(?:tl|gl)\.(?:load|store)",
        r"tl\.dot|tl\.make_block_ptr|GROUP|allocate_shared_memory",
        r"num_stages\s*=\s*[2-9]|tensor_descriptor|eviction_policy|cache_modifier|\basync_copy|\bmbarrier\.",
    ),
    "compute": (
        r"static_range|tl\.fma",
        r"float16|bfloat16|\b(?:tl|gl)\.(?:sum|max|reduce|associative_scan)",
        r"tl\.dot|warpgroup_mma|tcgen05_mma",
    ),
    "decomposition": (
        r"\bfor\b.{0,200}\brange\(|tl\.range\(",
        r"atomic_|SPLIT|\bpartial",
        r"\b(?:tl|gl)\.num_programs|multi_processor_count|NUM_SMS|warp_specialize\(",
    ),
}
_TILELANG = {
    "memory": (
        r"T\.vectorized|T\.copy",
        r"alloc_shared",
        r"T\.Pipelined|num_stages\s*=\s*[2-9]|T\.tma_copy|T\.async_copy",
    ),
    "compute": (r"T\.unroll", r"float16|bfloat16|T\.reduce", r"T\.(?:wgmma_|tcgen05_)?gemm"),
    "decomposition": (
        r"T\.(?:serial|Pipelined)|alloc_shared",
        r"atomic_|SPLIT|\bpartial",
        r"T\.Persistent|NUM_SMS|T\.ws\(|multi_processor_count",
    ),
}
_CUTE = {
    "memory": (
        r"autovec_copy|num_bits_per_copy|make_tiled_copy",
        r"SmemAllocator|alloc_smem|allocate_tensor",
        r"cp_async|cpasync|[Tt]ma|mbarrier",
    ),
    "compute": (
        r"range_constexpr|unroll",
        r"Float16|BFloat16|shuffle_sync|warp_reduction",
        r"make_tiled_mma|cute\.gemm",
    ),
    "decomposition": (
        r"\bfor\b.{0,200}\brange\(|barrier\(|sync_threads",
        r"atomic_|split_?k|\bpartial",
        r"grid_dim\(|multi_processor_count|PersistentTile|setmaxregister",
    ),
}
#: What ThunderKittens has functions for, beside what CUDA C++ has.
_KITTENS = {
    axis: tuple("|".join(pair) for pair in zip(_NATIVE_GPU[axis], own, strict=True))
    for axis, own in {
        "memory": (r"\brt_\w+|\brv_\w+", r"\bst_\w+|\bsv_\w+", r"load_async|tma::"),
        "compute": (r"\brv_\w+", r"\brow_(?:sum|max)|\bcol_(?:sum|max)|_bf\b", r"\bmma_A\w+|\bmm_A\w+"),
        "decomposition": (r"\brt_\w+|\bst_\w+", r"store_add_async", r"prototype|increase_registers"),
    }.items()
}
_TORCH = {
    "memory": (r"channels_last|contiguous\(", r"chunk|split|unfold", r"CUDAGraph|graph\("),
    "compute": (r"addmm|baddbmm|einsum", r"\.half\(|bfloat16|autocast", r"allow_tf32|scaled_mm"),
    "decomposition": (r"\bfor\b", r"torch\.compile|jit\.script", r"Stream\("),
}
_MARKS: Mapping[Backend, Mapping[str, tuple[str, ...]]] = {
    Backend.TRITON: _TRITON,
    Backend.CUDA: _NATIVE_GPU,
    Backend.CPP: _NATIVE_CPU,
    Backend.TORCH: _TORCH,
    Backend.TILELANG: _TILELANG,
    Backend.CUTE: _CUTE,
    Backend.THUNDERKITTENS: _KITTENS,
    Backend.HIP: {**_NATIVE_GPU, "compute": (*_NATIVE_GPU["compute"][:2], r"__builtin_amdgcn_\w*mfma|rocwmma")},
}
#: Languages whose code is in strings of the file.
_NATIVE = {Backend.CPP, Backend.CUDA, Backend.THUNDERKITTENS, Backend.HIP}

_LIBRARY_CALL = re.compile(
    r"torch\.(?:mm|bmm|matmul|addmm|baddbmm|einsum|softmax|sum|mean|relu|cumsum|conv\d?d?|layer_norm)\b"
    r"|\bF\.\w+\(|torch\.nn\.functional\.\w+\(|torch\.ops\.|extern_kernels\.\w+\(|aten\.\w+"
)
_LAUNCH = {
    Backend.CUDA: re.compile(r"<<<"),
    Backend.TRITON: re.compile(r"\w\[[^\]]{1,500}\]\(|\.run\("),
    Backend.CPP: re.compile(r"extern\s+\"C\""),
    Backend.TILELANG: re.compile(r"\bT\.Kernel\("),
    Backend.CUTE: re.compile(r"\.launch\("),
    Backend.THUNDERKITTENS: re.compile(r"<<<"),
    Backend.HIP: re.compile(r"<<<|hipLaunchKernelGGL"),
}


def _decides(found: bool, is_there: bool) -> bool:
    return is_there


#: What instructions say about a level, from whether the source claims it and whether one of them is there. `_decides`:
#: they alone decide. `and_`: they are needed. `or_`: they are enough.
_Rule = Callable[[bool, bool], bool]
_Rules = Mapping[int, tuple[_Rule, set[Trait]]]

#: Axis -> level -> what instructions say about it, and which. Levels that are not named stay with the source.
_COMPILED: Mapping[str, _Rules] = {
    "memory": {
        1: (_decides, {Trait.VECTOR_ACCESS}),
        # Reductions use shared memory too, so that it is there does not make a tile.
        2: (and_, {Trait.SHARED_MEMORY}),
        3: (_decides, {Trait.ASYNC_COPY, Trait.STREAMING}),
    },
    "compute": {
        2: (_decides, {Trait.WARP_SHUFFLES, Trait.PACKED_ARITHMETIC}),
        3: (_decides, {Trait.MATRIX_UNITS}),
    },
    # Blocks that meet in one place. Partial sums that a second launch adds up need none.
    "decomposition": {2: (or_, {Trait.ATOMICS})},
}
#: What is packed for the caches of a CPU lies in memory like any other.
_COMPILED_CPU = {**_COMPILED, "memory": {level: rule for level, rule in _COMPILED["memory"].items() if level != 2}}


def describe(kernel: Kernel, traits: Collection[Trait] | None = None) -> str:
    """The key of a kernel's niche: each axis with its level, e.g. ``m2c1d1l0``.

    `traits` are what its compiled code shows; None where it could not be disassembled, and the source decides.
    """
    text = active_code(kernel.source)
    body = text.native if kernel.backend in _NATIVE else text.python
    shown = None if kernel.backend is Backend.TORCH else traits  # what it compiles is not what it calls
    compiled = _COMPILED_CPU if kernel.backend is Backend.CPP else _COMPILED
    levels = {axis: _level(marks, body, compiled[axis], shown) for axis, marks in _MARKS[kernel.backend].items()}
    return "".join(f"{axis[0]}{level}" for axis, level in levels.items()) + f"l{_launches(kernel.backend, text)}"


def _level(marks: tuple[str, ...], text: str, rules: _Rules, shown: Collection[Trait] | None) -> int:
    found = {level: re.search(mark, text) is not None for level, mark in enumerate(marks, start=1)}
    for level, (rule, wanted) in rules.items() if shown is not None else ():
        found[level] = rule(found[level], not wanted.isdisjoint(shown or ()))
    return max((level for level, there in found.items() if there), default=0)


def _launches(backend: Backend, text: ActiveCode) -> int:
    if backend is Backend.TORCH:
        return 3
    own = len(_LAUNCH[backend].findall(text.python + text.native))
    if len(_LIBRARY_CALL.findall(text.python)) > own:
        return 3
    return min(max(own, 1), 3) - 1
