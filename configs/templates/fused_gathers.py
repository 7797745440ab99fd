def fused_gathered(x, weight, bias, stride, padding, dilation, transposed, output_padding, extras, epilogue):
    """EPILOGUES[epilogue] of a convolution of few channels in 1, 2 or 3 dimensions, contiguous."""
    if not gather_fits(x, weight, transposed, 1):
        return fused_convolution(
            x, weight, bias, stride, padding, dilation, transposed, output_padding, extras, epilogue)
    return gathered_convolution(
        x, weight, stride=stride, padding=padding, dilation=dilation, transposed=transposed,
        output_padding=output_padding, groups=1, bias=bias, epilogue=epilogue, extras=extras)
