@gluon.jit
def split_epilogue(EPILOGUE: gl.constexpr, value, e0, e1, e2, e3, at, inside, column, known):
    # Nothing follows a product in its kernel.
    return value


EPILOGUES_IN_CUDA = ("",)
