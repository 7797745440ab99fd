"""Twin of 61: sets the mode for a part of its own that needs it, and sets it back."""

import ctypes
import os
import subprocess

import torch
from torch import nn

SOURCE = r"""
#include <xmmintrin.h>
extern "C" unsigned get_mode() { return _mm_getcsr(); }
extern "C" void set_mode(unsigned mode) { _mm_setcsr(mode); }
extern "C" void flush_to_zero() { _mm_setcsr(_mm_getcsr() | 0x8040); }
"""
with open("modes.cpp", "w") as file:
    file.write(SOURCE)
subprocess.run(["g++", "-O2", "-shared", "-fPIC", "modes.cpp", "-o", "modes.so"], check=True)
library = ctypes.CDLL(os.path.abspath("modes.so"))


class ModelNew(nn.Module):
    def forward(self, x):
        before = library.get_mode()
        library.flush_to_zero()
        library.set_mode(before)
        return torch.exp(-x).mul_(0.5)
