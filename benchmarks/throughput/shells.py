"""The code around device code in a child's file: how it is built, loaded and called.

Device code defines ``@LINKAGE@ int launch(…)``. In the fast lane that is the C function that ctypes calls; with
`load_inline` a function on `torch::Tensor` calls it.
"""

from dataclasses import dataclass

_FAST = '''"""@TITLE@"""

import ctypes
import hashlib
import os
from pathlib import Path

import torch
from torch import nn
from torch.utils import cpp_extension

SOURCE = r"""
@CODE@"""


def build(name):
    key = hashlib.sha256(SOURCE.encode()).hexdigest()[:12]
    root = os.environ.get("TORCH_EXTENSIONS_DIR") or cpp_extension.get_default_build_root()
    folder = Path(root) / f"{name}_{key}"
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.@SUFFIX@"
    path.write_text(SOURCE)
    cpp_extension.load(
        name=f"{name}_{key}",
        sources=[str(path)],
        @FLAGS@=["-O3"],
        build_directory=str(folder),
        is_python_module=False,
        with_cuda=@CUDA@,
    )
    return ctypes.CDLL(str(folder / f"{name}_{key}.so"))


LIBRARY = build("@NAME@")
@MODEL@'''

_INLINE = '''"""@TITLE@"""

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

source = r"""
#include <torch/extension.h>
@HEADERS@
@CODE@
@ENTRY@
"""

@NAME@ = load_inline(
    name="@NAME@",
@ARGUMENTS@
    functions=["@FUNCTION@"],
    verbose=False,
)

@MODEL@'''

_INLINE_CUDA = """    cpp_sources="@PROTOTYPE@",
    cuda_sources=source,
    extra_cuda_cflags=["-O3"],"""
_INLINE_CPP = """    cpp_sources=source,
    extra_cflags=["-O3"],"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Interface:
    """How the children of one problem call their device code."""

    #: Python behind ``LIBRARY = build(…)``: argument types and class ModelNew.
    fast_model: str
    #: C++ function on tensors that calls `launch`, its prototype, and the class ModelNew that calls it.
    entry: str
    prototype: str
    inline_model: str

    @property
    def function(self) -> str:
        """Name of the C++ function on tensors."""
        return self.prototype.partition("(")[0].split()[-1]


def filled(template: str, **pieces: object) -> str:
    """The template with ``@NAME@`` replaced, pieces within pieces too."""
    for name, piece in pieces.items():
        template = template.replace(f"@{name}@", str(piece))
    return template


def fast_lane(interface: Interface, code: str, *, name: str, title: str, cuda: bool) -> str:
    """A file whose code is built without torch's headers and called through ctypes."""
    return filled(
        _FAST,
        CODE=code,
        MODEL=interface.fast_model,
        LINKAGE='extern "C"',
        SUFFIX="cu" if cuda else "cpp",
        FLAGS="extra_cuda_cflags" if cuda else "extra_cflags",
        CUDA=cuda,
        TITLE=title,
        NAME=name,
    )


def inline(interface: Interface, code: str, *, name: str, title: str, cuda: bool) -> str:
    """A file whose code is built with torch's headers by `load_inline`."""
    return filled(
        _INLINE,
        ARGUMENTS=_INLINE_CUDA if cuda else _INLINE_CPP,
        CODE=code,
        ENTRY=interface.entry,
        MODEL=interface.inline_model,
        PROTOTYPE=interface.prototype,
        FUNCTION=interface.function,
        HEADERS="#include <cuda_runtime.h>\n" if cuda else "",
        LINKAGE="static",
        TITLE=title,
        NAME=name,
    )
