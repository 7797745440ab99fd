"""What leaves the archive: a kernel in one of several formats, measured again first, or every birth as a data set.

`formats` names the formats of kernels, each in a file of its own. `export` chooses the kernel, measures and writes.
"""
