STAGED = 1  # tune: 1, 0
# tune STAGED_CHUNK, STAGED_TURNS, STAGED_FP8 if: STAGED
STAGED_SOURCE = r"""
@staged_convolution.cu@"""


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
    form, a = f"m64n{constants['BN']}", [f'"r"(a[{i}])' for i in range(4)]
    products = {
        "SMALL_PRODUCT": cuda_product(f"{form}k32.f32.e5m2.e4m3", constants["BN"] // 2, a),
        "PRODUCT": cuda_product(f"{form}k16.f32.f16.f16", constants["BN"] // 2, a, ", 0"),
    }
    return cuda_convolution_source(STAGED_SOURCE, constants, products, epilogue)


@functools.lru_cache(maxsize=None)
def staged_convolution_of(device, x_shape, w_shape, stride, padding, epilogue):
    """What computes a convolution of few channels, in 1, 2 or 3 dimensions; None where it does not fit."""
    ones, none = (1,) * (5 - len(x_shape)), (0,) * (5 - len(x_shape))
    sizes = ((*shape[:2], *ones, *shape[2:]) for shape in (x_shape, w_shape))
    constants = staged_constants(*sizes, (*ones, *stride), (*none, *padding))
    if constants is None:
        return None
    packed = constants["BLOCKS"] * constants["BN"] * (64 * constants["STEPS"] + 8)
    return CudaConvolution("staged", device, len(stride), constants, staged_source(constants, epilogue), packed)
