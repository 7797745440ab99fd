def fused_convolution_by_library(x, weight, bias, stride, padding, dilation, transposed, output_padding, extras, epilogue):
    return EPILOGUES[epilogue](
        torch.convolution(x, weight, bias, stride, padding, dilation, transposed, output_padding, 1), *extras)


def fused_convolution(x, weight, bias, stride, padding, dilation, transposed, output_padding, extras, epilogue):
    """EPILOGUES[epilogue] of a convolution in 1, 2 or 3 dimensions, contiguous."""
    arguments = (stride, padding, dilation, transposed, output_padding)
    if not conv_fits(x, weight, transposed, 1, dilation, stride):
        return fused_convolution_by_library(x, weight, bias, *arguments, extras, epilogue)
    return split_convolution(
        x.contiguous(), weight.contiguous(), stride=stride, padding=padding, dilation=dilation, transposed=transposed,
        output_padding=output_padding, groups=1, bias=bias, epilogue=epilogue, extras=extras)
