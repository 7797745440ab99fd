@gluon.jit
def epilogue_larger(x, y):
    # A NaN wins, as in torch.
    return gl.where((x != x) | (x > y), x, y)


@gluon.jit
def epilogue_smaller(x, y):
    return gl.where((x != x) | (x < y), x, y)


@gluon.jit
def epilogue_quotient(x, y):
    return x / y


@gluon.jit
def epilogue_magnitude(x):
    return gl.abs(x)


@gluon.jit
def epilogue_root(x):
    return gl.sqrt_rn(x)


@gluon.jit
def epilogue_exponential(x):
    return gl.exp(x)


@gluon.jit
def epilogue_exponential_less_one(x):
    return libdevice.expm1(x)


@gluon.jit
def epilogue_logarithm(x):
    return libdevice.log(x)


@gluon.jit
def epilogue_logarithm_of_one_plus(x):
    return libdevice.log1p(x)


@gluon.jit
def epilogue_error_function(x):
    return libdevice.erf(x)


@gluon.jit
def epilogue_tangent(x):
    return libdevice.tanh(x)


@gluon.jit
def epilogue_sigmoid(x):
    return 1.0 / (1.0 + gl.exp(-x))


@gluon.jit
def epilogue_silu(x):
    return x / (1.0 + gl.exp(-x))


@gluon.jit
def epilogue_gelu(x):
    return 0.5 * x * (1.0 + libdevice.erf(x * 0.7071067811865476))


@gluon.jit
def epilogue_gelu_by_tangent(x):
    return 0.5 * x * (1.0 + libdevice.tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)))


@gluon.jit
def epilogue_softplus(x, beta, threshold):
    return gl.where(x * beta > threshold, x, libdevice.log1p(gl.exp(x * beta)) / beta)


@gluon.jit
def epilogue_mish(x):
    # x tanh(log(1 + e)) with e = exp(x)
    e = gl.exp(x)
    w = e * (e + 2.0)
    return gl.where(x > 20.0, x, x * w / (w + 2.0))
