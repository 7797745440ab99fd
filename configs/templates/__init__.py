"""Parametric code that starting kernels are put together from. Nothing here imports a template: each is text.

Those for CPUs are in C++, in `cpp/`; `evolve/proposers/seeds/cpp` puts them together. The others are in Triton and
Gluon, after `imports.py`. For fp32-accurate results on the tensor cores of sm_90, from operands that `split_pairs.py`
splits into pairs of fp16: `split_products.py` has products of any strides, `split_convolution.py` convolutions, whose
product is in `convolution_product.py`, and `convolution_steps.py` says how they read steps; each needs those before it.
What follows a product element by element is computed in its kernel by `split_epilogue`:
`evolve/proposers/seeds/epilogues.py` writes it for `fused_products.py` and `fused_convolutions.py`, of calls to
`functions.py`; that of `no_epilogue.py` does nothing. `gathered_convolution.py` has convolutions of few channels, whose
numbers are read where they lie and split into three of bf16 (with an epilogue: `fused_gathers.py`), or into pairs of
fp16 in shared memory by `staged_convolution.py`, which is in CUDA C++; so is `window_convolution.py`, of steps of 1,
whose pairs the tensor cores read as they lie there (`fused_window.py`); `direct_convolution.py` has those in groups of
few channels, which memory bounds (`fused_groups.py`), and `small_convolution.py` those that are so small that launches
take longest: each is one (`fused_small.py`). So is a product of few rows, whose large weights are read once
(`skinny_product.py`, `fused_skinny.py`). `row_statistics.py` has norms and softmax of long rows, each of which several
programs hold in their registers. `split_attention.py` has attention, by the kernels of `attention_pairs.py` and
`attention_tiles.py`. `graph_replay.py` makes one launch of the many of torch.compile's code, with templates or without.
`recurrent.py` has modules in the place of torch.nn's GRU and LSTM, in CUDA C++, and needs `split_products.py` for what
no step waits for. `cuda_library.py` loads what is in CUDA C++, and `cuda_convolution.py` calls convolutions in it.
"""

import re
from pathlib import Path

__all__ = ["TEMPLATES", "template"]

#: All of those for a GPU, each behind those that it needs.
TEMPLATES = (
    "imports",
    "functions",
    "no_epilogue",
    "split_pairs",
    "split_products",
    "convolution_product",
    "convolution_steps",
    "split_convolution",
    "fused_products",
    "fused_convolutions",
    "cuda_library",
    "cuda_convolution",
    "staged_convolution",
    "gathered_convolution",
    "fused_gathers",
    "window_convolution",
    "fused_window",
    "skinny_product",
    "fused_skinny",
    "small_convolution",
    "fused_small",
    "direct_convolution",
    "fused_groups",
    "attention_pairs",
    "attention_tiles",
    "split_attention",
    "row_statistics",
)


#: In a template's string: the name of the file whose text belongs there.
_OTHER_FILE = re.compile(r"@(\w+\.cu)@")


def template(name: str) -> str:
    """The text of a template, by the name of its file; a suffix ``.py`` may be left out."""
    text = (Path(__file__).parent / (name if "." in name else f"{name}.py")).read_text(encoding="utf-8")
    return _OTHER_FILE.sub(lambda found: template(found[1]).rstrip("\n"), text)
