def fused_grouped_by_library(x, weight, bias, stride, padding, dilation, groups, extras, epilogue):
    none = [0] * len(stride)
    return EPILOGUES[epilogue](
        torch.convolution(x, weight, bias, stride, padding, dilation, False, none, groups), *extras)


def fused_grouped(x, weight, bias, stride, padding, dilation, groups, extras, epilogue):
    """EPILOGUES[epilogue] of a convolution in groups of few channels, in 1, 2 or 3 dimensions, contiguous."""
    x = x.contiguous()
    if not direct_fits(x, weight, False):
        return fused_grouped_by_library(x, weight, bias, stride, padding, dilation, groups, extras, epilogue)
    return direct_convolution(
        x, weight, stride=stride, padding=padding, dilation=dilation, transposed=False, output_padding=None,
        groups=groups, bias=bias, epilogue=epilogue, extras=extras)
