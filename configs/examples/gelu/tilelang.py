import tilelang
import tilelang.language as T
import torch

ROWS = 4  # tune: 1, 2, 4, 8
COLUMNS = 256  # tune: 128, 256, 512
THREADS = 128  # tune: 128, 256


@tilelang.jit(out_idx=[-1])
def bias_gelu(rows, features):
    @T.prim_func
    def kernel(
        x: T.Tensor((rows, features), "float32"),
        bias: T.Tensor((features,), "float32"),
        y: T.Tensor((rows, features), "float32"),
    ):
        with T.Kernel(T.ceildiv(rows, ROWS), T.ceildiv(features, COLUMNS), threads=THREADS) as (by, bx):
            for i, j in T.Parallel(ROWS, COLUMNS):
                v = x[by * ROWS + i, bx * COLUMNS + j] + bias[bx * COLUMNS + j]
                y[by * ROWS + i, bx * COLUMNS + j] = 0.5 * v * (1.0 + T.erf(v * 0.70710678))

    return kernel


class ModelNew(torch.nn.Module):
    def __init__(self, features):
        super().__init__()
        self.bias = torch.nn.Parameter(torch.randn(features))

    def forward(self, x):
        rows = x.reshape(-1, x.shape[-1]).contiguous()
        return bias_gelu(*rows.shape)(rows, self.bias.detach()).view(x.shape)
