def fused_skinny(a, b, bias, extras, epilogue):
    """EPILOGUES[epilogue] of a b + bias of few rows; a is [..., M, K], b [K, N]."""
    rows = a.reshape(-1, a.shape[-1])
    if b.dim() > 2 or not skinny_fits(rows, b):
        return fused_product_by_library(a, b, bias, extras, epilogue)
    out = torch.empty((*a.shape[:-1], b.shape[1]), device=a.device, dtype=torch.float32)
    to = out.view(-1, b.shape[1])
    skinny_product(rows, b, to, None if bias is None else bias.expand(to.shape), epilogue=epilogue, extras=extras)
    return out
