@gluon.jit(do_not_specialize=["TOTAL", "COLUMNS", "PLACES"])
def split_finish(count_ptr, out_ptr, e0, e1, e2, e3, COUNTS, TOTAL, COLUMNS, PLACES, EPILOGUE: gl.constexpr,
                 BLOCK: gl.constexpr):
    # What follows a product, where numbers were added to its results after it; they were left as they were until now.
    layout: gl.constexpr = gl.BlockedLayout([4], [32], [4], [0])
    listed = gl.load(count_ptr)
    if COUNTS > 1:
        listed += gl.load(count_ptr + 1)
    if listed > 0:
        for block in range(gl.program_id(0), gl.cdiv(TOTAL, BLOCK), gl.num_programs(0)):
            at = block.to(gl.int64) * BLOCK + gl.arange(0, BLOCK, layout=layout)
            inside, column = at < TOTAL, at // PLACES % COLUMNS
            value = gl.load(out_ptr + at, mask=inside, other=0.0)
            value = split_epilogue(EPILOGUE, value, e0, e1, e2, e3, at, inside, column, inside)
            gl.store(out_ptr + at, value, mask=inside)


def fused_product_by_library(a, b, bias, extras, epilogue):
    product = torch.matmul(a, b)
    return EPILOGUES[epilogue](product if bias is None else product + bias, *extras)


def fused_product(a, b, bias, extras, epilogue):
    """EPILOGUES[epilogue] of a b + bias; a is [..., M, K], and b [K, N] or [batch, K, N] if a is [batch, M, K]."""
    out = torch.empty((*a.shape[:-1], b.shape[-1]), device=a.device, dtype=torch.float32)
    whole = b.dim() == 2
    rows, columns = (a.reshape(1, -1, a.shape[-1]), b[None]) if whole else (a, b)
    to = out.view(1, -1, out.shape[-1]) if whole else out
    split_product(rows, columns, to, None if bias is None else bias.expand(to.shape), epilogue=epilogue, extras=extras)
    return out
