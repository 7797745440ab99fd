STAGED = 1  # tune: 1, 0
# tune STAGED_CHUNK, STAGED_TURNS, STAGED_FP8 if: STAGED
STAGED_SOURCE = r"""
@staged_convolution.cu@"""
STAGED_FLAGS = ["-O3", "-gencode=arch=compute_90a,code=sm_90a"]


def staged_constants(x_shape, w_shape, stride, padding):
    """The constants of the source for a convolution in three dimensions; None where it does not fit."""
    (images, c, d, h, w), (filters, _, kd, kh, kw) = x_shape, w_shape
    od, oh, ow = ((size + 2 * p - k) // s + 1 for size, p, k, s in zip((d, h, w), padding, (kd, kh, kw), stride))
    groups_w, copies, rows = -(-kw // 4), 1 + stride[2] % 2, kd * c
    steps = -(-rows * groups_w * kh // 4)
    pitch = 8 * -(-((ow - 1) * stride[2] + 4 * groups_w) // 4)
    half = copies * rows * pitch
    slot = 2 * half + (32 - 2 * half) % 128  # four rows that are read at once are in different banks
    span = min((126 + ow) // ow, oh - 1) * stride[1] + kh  # rows that two warpgroups need at once
    for blocks in range(-(-filters // 128), min(16, -(-filters // 8)) + 1):
        bn = 8 * -(-filters // (8 * blocks))
        slots = (232448 - bn * (64 * steps + 8) - 16 * steps - 8) // (slot + 16) // 4 * 4
        if slots >= span:
            break
    else:
        return None
    if steps > 48 or rows * pitch > 6 * 128 * 8 or od * oh * ow == 0 or images == 0:
        return None
    return {
        "IMAGES": images, "C": c, "D": d, "H": h, "W": w, "F": filters, "KD": kd, "KH": kh, "KW": kw,
        "SD": stride[0], "SH": stride[1], "SW": stride[2], "PD": padding[0], "PH": padding[1], "PW": padding[2],
        "OD": od, "OH": oh, "OW": ow, "STEPS": steps, "BN": bn, "BLOCKS": -(-filters // bn), "PITCH": pitch,
        "SLOT": slot, "SLOT_HALF": half, "SLOTS": min(slots, 4 * -(-(2 * span + 8) // 4)),
    }


def staged_source(constants, epilogue):
    """The source for these constants, with the instructions for BN filters and what follows."""
    count = constants["BN"] // 2
    sums = ", ".join(f"%{i}" for i in range(count))
    outputs = ", ".join(f'"+f"(p[{i}])' for i in range(count))

    def instruction(types, rest):
        return (
            f'asm volatile("{{ .reg .pred q; setp.ne.b32 q, %{count + 5}, 0; '
            f'wgmma.mma_async.sync.aligned.m64n{constants["BN"]}{types} {{{sums}}}, '
            f'{{%{count}, %{count + 1}, %{count + 2}, %{count + 3}}}, %{count + 4}, q, 1, 1{rest}; }}" '
            f': {outputs} : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(add));\n'
        )

    lines = "\n".join(f"constexpr int {name} = {value};" for name, value in constants.items())
    parts = {
        "CONSTANTS\n": lines + "\n", "SMALL_PRODUCT\n": instruction("k32.f32.e5m2.e4m3", ""),
        "PRODUCT\n": instruction("k16.f32.f16.f16", ", 0"), "EPILOGUE\n": EPILOGUES_IN_CUDA[epilogue] + "\n",
    }
    source = STAGED_SOURCE
    for name, text in parts.items():
        source = source.replace(name, text)
    return source


class StagedConvolution:
    """What the device, sizes and strides decide of a convolution of few channels in CUDA C++; `fits` where it can be."""

    def __init__(self, device, x_shape, w_shape, stride, padding, epilogue):
        ones, none = (1,) * (5 - len(x_shape)), (0,) * (5 - len(x_shape))
        sizes = ((*shape[:2], *ones, *shape[2:]) for shape in (x_shape, w_shape))
        constants = staged_constants(*sizes, (*ones, *stride), (*none, *padding))
        self.fits = constants is not None
        if not self.fits:
            return
        out_sizes = (constants["OD"], constants["OH"], constants["OW"])[len(ones):]
        self.out_shape = (x_shape[0], w_shape[0], *out_sizes)
        self.packed = constants["BLOCKS"] * constants["BN"] * (64 * constants["STEPS"] + 8)
        self.count = torch.cuda.get_device_properties(device).multi_processor_count
        self.library = cuda_library("staged", staged_source(constants, epilogue), STAGED_FLAGS,
                                    *9 * [ctypes.c_void_p], ctypes.c_int, ctypes.c_void_p)

    def __call__(self, x, weight, bias, extras):
        if x.data_ptr() % 16:  # four numbers are read at once
            x = x.clone()
        packed = torch.empty(self.packed, device=x.device, dtype=torch.uint8)
        out = torch.empty(self.out_shape, device=x.device, dtype=torch.float32)
        others = [one.data_ptr() for one in (*extras, *4 * (out,))[:4]]
        bias = None if bias is None else bias.data_ptr()
        status = self.library.staged(x.data_ptr(), weight.data_ptr(), bias, packed.data_ptr(), *others, out.data_ptr(),
                                     self.count, stream_of(x))
        if status:
            raise RuntimeError(f"staged convolution: CUDA error {status}")
        return out


staged_convolution_of = functools.lru_cache(maxsize=None)(StagedConvolution)
