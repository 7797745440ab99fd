def fused_small(x, weight, bias, stride, padding, dilation, transposed, output_padding, extras, epilogue):
    """EPILOGUES[epilogue] of a convolution that is one launch, in 1, 2 or 3 dimensions, contiguous."""
    x = x.contiguous()
    if not small_fits(x, weight, transposed, 1):
        return fused_convolution_by_library(
            x, weight, bias, stride, padding, dilation, transposed, output_padding, extras, epilogue)
    return small_convolution(
        x, weight, stride=stride, padding=padding, dilation=dilation, transposed=transposed,
        output_padding=output_padding, groups=1, bias=bias, epilogue=epilogue, extras=extras)
