@gluon.jit
def tf32_low(v):
    # What TF32, whose multipliers cut off 13 bits, leaves of a number, rounded to TF32. Of an infinity it is NaN.
    low = v - (v.to(gl.int32, bitcast=True) & -0x2000).to(gl.float32, bitcast=True)
    return (low.to(gl.int32, bitcast=True) + 0x1000).to(gl.float32, bitcast=True)
