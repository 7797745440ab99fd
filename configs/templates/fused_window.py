def fused_window(x, weight, bias, stride, padding, dilation, transposed, output_padding, extras, epilogue):
    """EPILOGUES[epilogue] of a convolution by windows in 1, 2 or 3 dimensions, contiguous."""
    plan = window_plan(x, weight, stride, padding, dilation, transposed, output_padding, 1, epilogue)
    if plan is None:
        return fused_convolution(
            x, weight, bias, stride, padding, dilation, transposed, output_padding, extras, epilogue)
    return plan(x, weight, bias, extras)
