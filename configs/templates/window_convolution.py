WINDOW_SOURCE = r"""
@window_convolution.cu@"""


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
    # Beside filters and buffers there are barriers, and what the eight warps keep of their results.
    room, found = 232448 - 64 - 8 * 16 * 72 * 4 - held, None
    for sides in range(1, math.ceil(ow / 16) + 1) if held - 512 * blocks <= 110_000 else ():
        columns = ow if sides == 1 else math.ceil(ow / (8 * sides)) * 8
        pitch = math.ceil((columns + dilation[2] * (kw - 1)) / 2) * 2
        most = room // (64 * kd * groups * pitch) - (kh - 1) * dilation[1]
        for lines in range(1, min(most, oh) + 1):
            # Cycles of all buffers of a multiprocessor: of the tensor cores and what follows, of those who fill them, or of
            # the memory, where a part of a sector takes twelve.
            strips = math.ceil(images * od * math.ceil(oh / lines) * math.ceil(ow / columns) / count)
            turns = math.ceil(math.ceil(((lines - 1) * pitch + columns) / 128) * blocks / 2)
            filled = kd * groups * (lines + (kh - 1) * dilation[1]) * pitch
            parts = 0 if ow % 8 == 0 else 4 if sides == 1 else 2 * lines
            written = filters * (lines * columns / 5 + 12 * parts)
            time = strips * (1000 + max(turns * max(384 * steps, 192 * steps + 1000), filled * 4, written)), -lines * columns
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
    products = {"PRODUCT": cuda_product("m64n128k16.f32.f16.f16", 64, ['"l"(a)'], ", 0, 0")}
    return cuda_convolution_source(WINDOW_SOURCE, constants, products, epilogue)


@functools.lru_cache(maxsize=None)
def window_convolution_of(device, x_shape, w_shape, stride, padding, dilation, turned, epilogue):
    """What computes a convolution by windows, in 1, 2 or 3 dimensions; None where it does not fit."""
    ones, none = (1,) * (5 - len(x_shape)), (0,) * (5 - len(x_shape))
    sizes = ((*shape[:2], *ones, *shape[2:]) for shape in (x_shape, w_shape))
    count = torch.cuda.get_device_properties(device).multi_processor_count
    constants = window_constants(*sizes, (*ones, *stride), (*none, *padding), (*ones, *dilation), turned, count)
    if constants is None:
        return None
    units = math.prod(constants[name] for name in ("KD", "KH", "KW", "G"))
    packed = constants["BLOCKS"] * window_packed(constants["FB"], units)
    return CudaConvolution("windows", device, len(stride), constants, window_source(constants, epilogue), packed)


def window_plan(x, weight, stride, padding, dilation, transposed, output_padding, groups, epilogue):
    """What computes it, of a step of 1 in the last two dimensions; None where nothing does."""
    plain = x.is_contiguous() and weight.is_contiguous() and x.dim() > 2 and x.numel() > 0 and x[0].numel() < 2**31
    if not (x.dtype == weight.dtype == torch.float32 and groups == 1 and plain and not any(output_padding)):
        return None
    if transposed and any(step > 1 for step in stride):
        return None
    return window_convolution_of(
        x.device, x.shape, weight.shape, tuple(stride), tuple(padding), tuple(dilation), bool(transposed), epilogue)


def window_convolution(x, weight, *, stride, padding, dilation, transposed, output_padding, groups, bias, epilogue=0,
                       extras=()):
    """As extern_kernels.convolution, in 1, 2 or 3 dimensions; with `epilogue`, as the others."""
    plan = window_plan(x, weight, stride, padding, dilation, transposed, output_padding, groups, epilogue)
    if plan is None:
        return split_convolution(
            x, weight, stride=stride, padding=padding, dilation=dilation, transposed=transposed,
            output_padding=output_padding, groups=groups, bias=bias, epilogue=epilogue, extras=extras)
    return plan(x, weight, bias, extras)
