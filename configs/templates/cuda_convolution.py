CUDA_FLAGS = ["-O3", "-gencode=arch=compute_90a,code=sm_90a"]


def cuda_product(form, count, a, rest=""):
    """The statement for p (`count` numbers of a thread) = or += a times b, as `add` says; `a` as operands of asm()."""
    names = [f"%{count + i}" for i in range(len(a) + 2)]
    first = names[0] if len(a) == 1 else f"{{{', '.join(names[:-2])}}}"
    sums, outputs = ", ".join(f"%{i}" for i in range(count)), ", ".join(f'"+f"(p[{i}])' for i in range(count))
    return (
        f'asm volatile("{{ .reg .pred q; setp.ne.b32 q, {names[-1]}, 0; wgmma.mma_async.sync.aligned.{form} {{{sums}}}, '
        f'{first}, {names[-2]}, q, 1, 1{rest}; }}" : {outputs} : {", ".join(a)}, "l"(b), "r"(add));'
    )


def cuda_convolution_source(source, constants, products, epilogue):
    """The source with these constants, statements for products (name -> text) and what follows the convolution."""
    lines = "\n".join(f"constexpr int {name} = {value};" for name, value in constants.items())
    for name, text in {"CONSTANTS": lines, **products, "EPILOGUE": EPILOGUES_IN_CUDA[epilogue]}.items():
        source = source.replace(f"{name}\n", f"{text}\n")
    return source


class CudaConvolution:
    """A convolution in CUDA C++, by a function that packs filters into so many bytes first."""

    def __init__(self, function, device, dims, constants, source, packed):
        sizes = [constants[name] for name in ("IMAGES", "F", "OD", "OH", "OW")]
        self.out_shape, self.packed = (*sizes[:2], *sizes[5 - dims:]), packed
        self.count = torch.cuda.get_device_properties(device).multi_processor_count
        library = cuda_library(function, source, CUDA_FLAGS, *9 * [ctypes.c_void_p], ctypes.c_int, ctypes.c_void_p)
        self.name, self.function = function, getattr(library, function)

    def __call__(self, x, weight, bias, extras):
        packed = torch.empty(self.packed, device=x.device, dtype=torch.uint8)
        out = torch.empty(self.out_shape, device=x.device, dtype=torch.float32)
        others = [one.data_ptr() for one in (*extras, *4 * (out,))[:4]]
        bias = None if bias is None else bias.data_ptr()
        status = self.function(x.data_ptr(), weight.data_ptr(), bias, packed.data_ptr(), *others, out.data_ptr(),
                               self.count, stream_of(x))
        if status:
            raise RuntimeError(f"{self.name} convolution: CUDA error {status}")
        return out
