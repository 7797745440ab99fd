WINDOW_SOURCE = r"""
@window_convolution.cu@"""
WINDOW_FLAGS = ["-O3", "-gencode=arch=compute_90a,code=sm_90a"]


def window_packed(filters, units):
    """Bytes of so many filters of a block, each of so many taps of eight channels."""
    return 64 * filters * -(-units // 2) + 512


def window_constants(x_shape, w_shape, stride, padding, dilation, turned, count):
    """The constants of the source for a convolution in three dimensions and so many multiprocessors; None where it does
    not fit.
    """
    (images, c, d, h, w), (kd, kh, kw) = x_shape, w_shape[2:]
    filters = w_shape[1 if turned else 0]
    if turned:
        padding = [a * (k - 1) - p for a, k, p in zip(dilation, (kd, kh, kw), padding)]
    od, oh, ow = ((size + 2 * p - a * (k - 1) - 1) // s + 1
                  for size, p, a, k, s in zip((d, h, w), padding, dilation, (kd, kh, kw), stride))
    groups, blocks = math.ceil(c / 8), math.ceil(filters / 64)
    steps = math.ceil(kd * kh * kw * groups / 2)
    # Eight channels that are all too small for pairs are computed again; of few ones that would often be so.
    if stride[1:] != (1, 1) or min(padding) < 0 or min(od, oh, ow, images) < 1 or steps > 48 or c % 8 in (1, 2, 3):
        return None
    packed = 64 if blocks > 1 else math.ceil(filters / 8) * 8
    held = blocks * window_packed(packed, kd * kh * kw * groups)
    room, found = 232448 - 64 - (64 - packed) * 16 - held, None
    for sides in range(1, math.ceil(ow / 16) + 1) if held - 512 * blocks <= 110_000 else ():
        columns = math.ceil(ow / (2 * sides)) * 2
        pitch = math.ceil((columns + dilation[2] * (kw - 1)) / 2) * 2
        most = room // (64 * kd * groups * pitch) - (kh - 1) * dilation[1]
        for lines in range(1, min(most, oh) + 1):
            # Cycles of all buffers of a multiprocessor: of the tensor cores and what follows, or of those who fill them.
            strips = math.ceil(images * od * math.ceil(oh / lines) * math.ceil(ow / columns) / count)
            turns = math.ceil(math.ceil(((lines - 1) * pitch + columns) / 128) * blocks / 2)
            filled = kd * groups * (lines + (kh - 1) * dilation[1]) * pitch
            time = strips * (1000 + max(turns * max(384 * steps, 192 * steps + 800), filled * 4)), -lines * columns
            found = min(found or (time, lines, columns, pitch), (time, lines, columns, pitch))
    if found is None:
        return None
    _, lines, columns, pitch = found
    return {
        "IMAGES": images, "C": c, "D": d, "H": h, "W": w, "F": filters, "KD": kd, "KH": kh, "KW": kw, "SD": stride[0],
        "PD": padding[0], "PH": padding[1], "PW": padding[2], "AD": dilation[0], "AH": dilation[1], "AW": dilation[2],
        "OD": od, "OH": oh, "OW": ow, "G": groups, "BLOCKS": blocks, "FB": packed, "PITCH": pitch, "LINES": lines,
        "COLUMNS": columns, "TURNED": int(turned),
    }


def window_source(constants, epilogue):
    """The source for these constants, with its instruction and what follows."""
    count = 64
    sums = ", ".join(f"%{i}" for i in range(count))
    outputs = ", ".join(f'"+f"(p[{i}])' for i in range(count))
    product = (
        f'asm volatile("{{ .reg .pred q; setp.ne.b32 q, %{count + 2}, 0; '
        f'wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16 {{{sums}}}, '
        f'%{count}, %{count + 1}, q, 1, 1, 0, 0; }}" : {outputs} : "l"(a), "l"(b), "r"(add));\n'
    )
    lines = "\n".join(f"constexpr int {name} = {value};" for name, value in constants.items())
    parts = {
        "CONSTANTS\n": lines + "\n", "PRODUCT\n": product, "EPILOGUE\n": EPILOGUES_IN_CUDA[epilogue] + "\n",
    }
    source = WINDOW_SOURCE
    for name, text in parts.items():
        source = source.replace(name, text)
    return source


class WindowConvolution:
    """What the device, sizes and strides decide of a convolution by windows, in CUDA C++; `fits` where it can be."""

    def __init__(self, device, x_shape, w_shape, stride, padding, dilation, turned, epilogue):
        ones, none = (1,) * (5 - len(x_shape)), (0,) * (5 - len(x_shape))
        sizes = ((*shape[:2], *ones, *shape[2:]) for shape in (x_shape, w_shape))
        self.count = torch.cuda.get_device_properties(device).multi_processor_count
        constants = window_constants(
            *sizes, (*ones, *stride), (*none, *padding), (*ones, *dilation), turned, self.count)
        self.fits = constants is not None
        if not self.fits:
            return
        self.out_shape = (x_shape[0], constants["F"], *(constants["OD"], constants["OH"], constants["OW"])[len(ones):])
        units = math.prod(constants[name] for name in ("KD", "KH", "KW", "G"))
        self.packed = constants["BLOCKS"] * window_packed(constants["FB"], units)
        self.library = cuda_library("windows", window_source(constants, epilogue), WINDOW_FLAGS,
                                    *9 * [ctypes.c_void_p], ctypes.c_int, ctypes.c_void_p)

    def __call__(self, x, weight, bias, extras):
        packed = torch.empty(self.packed, device=x.device, dtype=torch.uint8)
        out = torch.empty(self.out_shape, device=x.device, dtype=torch.float32)
        others = [one.data_ptr() for one in (*extras, *4 * (out,))[:4]]
        bias = None if bias is None else bias.data_ptr()
        status = self.library.windows(x.data_ptr(), weight.data_ptr(), bias, packed.data_ptr(), *others, out.data_ptr(),
                                      self.count, stream_of(x))
        if status:
            raise RuntimeError(f"convolution by windows: CUDA error {status}")
        return out


window_convolution_of = functools.lru_cache(maxsize=None)(WindowConvolution)


def window_plan(x, weight, stride, padding, dilation, transposed, output_padding, groups, epilogue):
    """What computes it, of a step of 1 in the last two dimensions; None where nothing does."""
    plain = x.is_contiguous() and weight.is_contiguous() and x.dim() > 2 and x.numel() > 0 and x[0].numel() < 2**31
    if not (x.dtype == weight.dtype == torch.float32 and groups == 1 and plain and not any(output_padding)):
        return None
    if transposed and any(step > 1 for step in stride):
        return None
    plan = window_convolution_of(x.device, x.shape, weight.shape, tuple(stride), tuple(padding), tuple(dilation),
                                 bool(transposed), epilogue)
    return plan if plan.fits else None


def window_convolution(x, weight, *, stride, padding, dilation, transposed, output_padding, groups, bias, epilogue=0,
                       extras=()):
    """As extern_kernels.convolution, in 1, 2 or 3 dimensions; with `epilogue`, as the others."""
    plan = window_plan(x, weight, stride, padding, dilation, transposed, output_padding, groups, epilogue)
    if plan is None:
        return split_convolution(
            x, weight, stride=stride, padding=padding, dilation=dilation, transposed=transposed,
            output_padding=output_padding, groups=groups, bias=bias, epilogue=epilogue, extras=extras)
    return plan(x, weight, bias, extras)
