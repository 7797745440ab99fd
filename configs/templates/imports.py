import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor
