"""Children for L1/layernorm: few rows of millions of elements, with a scale and a shift for each element."""

from benchmarks.throughput.child import Fate, Kind, declared, edited
from benchmarks.throughput.kernels.family import Family, Plan
from benchmarks.throughput.kernels.layernorm_code import BLOCK_PER_ROW, MODEL, PER_CHANNEL, SPLIT, TRITON, TRITON_ROW
from benchmarks.throughput.shells import Interface, filled
from kbevolve.archive.records import Verdict

INTERFACE = Interface(
    fast_model="""LIBRARY.launch.argtypes = (
    [ctypes.c_void_p] * 5 + [ctypes.c_int, ctypes.c_longlong, ctypes.c_float, ctypes.c_void_p]
)
SPLITS = @SPLITS@

"""
    + MODEL
    + """        weight, bias = self.norm.weight, self.norm.bias
        width = weight.numel()
        rows = x.numel() // width
        y = torch.empty_like(x)
        parts = torch.empty(2, rows, SPLITS, device=x.device)
        pointers = [tensor.data_ptr() for tensor in (x, weight, bias, y, parts)]
        status = LIBRARY.launch(*pointers, rows, width, self.norm.eps, torch.cuda.current_stream().cuda_stream)
        if status:
            raise RuntimeError(f"layernorm: CUDA error {status}")
        return y
""",
    entry="""torch::Tensor layernorm_cuda(torch::Tensor x, torch::Tensor weight, torch::Tensor bias, double eps) {
  const long long width = weight.numel();
  const int rows = x.numel() / width;
  auto y = torch::empty_like(x);
  auto parts = torch::empty({2, rows, SPLITS}, x.options());
  launch(x.data_ptr<float>(), weight.data_ptr<float>(), bias.data_ptr<float>(), y.data_ptr<float>(),
         parts.data_ptr<float>(), rows, width, eps, 0);
  return y;
}""",
    prototype="torch::Tensor layernorm_cuda(torch::Tensor x, torch::Tensor weight, torch::Tensor bias, double eps);",
    inline_model=MODEL
    + """        return @NAME@.layernorm_cuda(x, self.norm.weight, self.norm.bias, self.norm.eps)
""",
)


def _code(threads: int, splits: int, code: str, *changes: tuple[str, str], **more: int) -> str:
    return declared(THREADS=threads, SPLITS=splits, **more) + edited(code, *changes)


def _fast(
    fate: Fate,
    summary: str,
    threads: int,
    splits: int,
    code: str,
    *changes: tuple[str, str],
    failure: Verdict | None = None,
) -> Plan:
    """In the fast lane, where Python makes room for the parts and so must know how many there are."""
    in_python = (("SPLITS = @SPLITS@", f"SPLITS = {splits}"),)
    return Plan(Kind.FAST, fate, summary, _code(threads, splits, code, *changes), failure, changes=in_python)


def _triton(splits: int, block: int, warps: int, *changes: tuple[str, str]) -> str:
    return filled(edited(TRITON, *changes), SPLITS=splits, BLOCK=block, WARPS=warps)


PLANS = (
    _fast(Fate.CORRECT, "64 blocks share a row, 256 threads each", 256, 64, SPLIT),
    _fast(Fate.CORRECT, "16 blocks share a row, 512 threads each", 512, 16, SPLIT),
    _fast(
        Fate.WRONG,
        "the variance is divided by the width of a part",
        256,
        32,
        SPLIT,
        ("(part2 + row * SPLITS) / width", "(part2 + row * SPLITS) / (width / SPLITS)"),
    ),
    _fast(
        Fate.FAILING,
        "blocks of 2048 threads, which no device has",
        2048,
        64,
        SPLIT,
        failure=Verdict.CRASHED,
    ),
    _fast(Fate.SLOW, "one warp a row", 32, 1, BLOCK_PER_ROW),
    Plan(Kind.INLINE, Fate.CORRECT, "128 blocks share a row, 256 threads each", _code(256, 128, SPLIT)),
    Plan(Kind.INLINE, Fate.CORRECT, "one block of 1024 threads a row", _code(1024, 1, BLOCK_PER_ROW)),
    Plan(
        Kind.INLINE,
        Fate.WRONG,
        "normalises every channel on its own",
        _code(1024, 1, BLOCK_PER_ROW, *PER_CHANNEL, PLANE=65536),
    ),
    Plan(
        Kind.INLINE,
        Fate.FAILING,
        "refuses inputs that are no matrix",
        _code(256, 64, SPLIT),
        Verdict.CRASHED,
        entry=edited(
            INTERFACE.entry,
            (
                "  auto y = torch::empty_like(x);",
                '  TORCH_CHECK(x.dim() == 2, "x must be a matrix");\n  auto y = torch::empty_like(x);',
            ),
        ),
    ),
    Plan(Kind.INLINE, Fate.SLOW, "one warp a row, with torch's headers", _code(32, 4, BLOCK_PER_ROW)),
    Plan(Kind.TRITON, Fate.CORRECT, "64 programs share a row, blocks of 4096", _triton(64, 4096, 8)),
    Plan(Kind.TRITON, Fate.CORRECT, "32 programs share a row, blocks of 2048", _triton(32, 2048, 4)),
    Plan(
        Kind.TRITON,
        Fate.WRONG,
        "divides by the variance, not by its root",
        _triton(64, 2048, 8, ("1.0 / tl.sqrt(var + eps)", "1.0 / (var + eps)")),
    ),
    Plan(
        Kind.TRITON,
        Fate.FAILING,
        "reads far outside: the stride of a row is used twice",
        _triton(32, 4096, 8, ("v = tl.load(x_ptr + row * width", "v = tl.load(x_ptr + row * width * width")),
        Verdict.CRASHED,
    ),
    Plan(Kind.TRITON, Fate.SLOW, "one program of one warp a row", TRITON_ROW),
)

FAMILY = Family(problem="L1/layernorm", label="layernorm", interface=INTERFACE, plans=PLANS)
