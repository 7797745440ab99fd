import cutlass
import cutlass.cute as cute
import torch
from cutlass.cute.runtime import make_fake_compact_tensor, make_fake_stream

THREADS = 256  # tune: 128, 256, 512


@cute.kernel
def bias_gelu_kernel(x: cute.Tensor, bias: cute.Tensor, y: cute.Tensor):
    block, _, _ = cute.arch.block_idx()
    thread, _, _ = cute.arch.thread_idx()
    at = block * THREADS + thread
    if at < cute.size(x):
        v = x[at] + bias[at % cute.size(bias)]
        y[at] = 0.5 * v * (1.0 + cute.math.erf(v * 0.70710678))


@cute.jit
def bias_gelu(x: cute.Tensor, bias: cute.Tensor, y: cute.Tensor, stream):
    blocks = cute.ceil_div(cute.size(x), THREADS)
    bias_gelu_kernel(x, bias, y).launch(grid=(blocks, 1, 1), block=(THREADS, 1, 1), stream=stream)


def compiled():
    x = make_fake_compact_tensor(cutlass.Float32, (cute.sym_int(),))
    bias = make_fake_compact_tensor(cutlass.Float32, (cute.sym_int(),))
    y = make_fake_compact_tensor(cutlass.Float32, (cute.sym_int(),))
    stream = make_fake_stream(use_tvm_ffi_env_stream=True)
    return cute.compile(bias_gelu, x, bias, y, stream, options="--enable-tvm-ffi")


KERNEL = compiled()


class ModelNew(torch.nn.Module):
    def __init__(self, features):
        super().__init__()
        self.bias = torch.nn.Parameter(torch.randn(features))

    def forward(self, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        KERNEL(x.view(-1), self.bias.detach(), y.view(-1))
        return y
