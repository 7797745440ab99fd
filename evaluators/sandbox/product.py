"""What the judge reads of a built library: the hash of its code, and the names that it imports."""

import re
from hashlib import sha256

#: How nvcc names what is inside one source: file-local variables of headers, kernels of anonymous namespaces.
_NUMBERED = re.compile(rb"(_(?:INTERNAL|GLOBAL__N_)_)([0-9a-f]{8})(?=_[0-9]+_)")
#: An operation of torch by its mangled name, such as ``at::_ops::mm::call``; its length stands before its name.
_OPERATION = re.compile(rb"_ZN2at(?:4_ops|6native|3cpu|4cuda4blas|4cuda|3ops)(\d{1,3})(\w+)")
#: Functions of libraries for products, convolutions and transforms.
_FUNCTION = re.compile(
    rb"\0((?:cublas|cudnn|cufft|cusolver|cusparse|cblas_|dnnl_|mkl_|vsl|DftiC|LAPACKE_)\w+|[sdcz]ge(?:mm|mv)_)(?=\0)"
)


def product_hash(library: bytes) -> str:
    """SHA-256 of a library without the number that nvcc derives from a source's text and writes into internal names.

    Any header of torch brings such names. A text of the kernel's own may look like one: the number is left out only
    where all names have the same, for then no such text distinguishes libraries.
    """
    numbers = {found[2] for found in _NUMBERED.finditer(library)}
    return sha256(_NUMBERED.sub(rb"\1", library) if len(numbers) == 1 else library).hexdigest()


def imports_of(library: bytes) -> tuple[str, ...]:
    """Names of operations of torch, and of functions of other libraries, that a library imports or looks up.

    The dynamic linker finds them by their names, which stand as text in the file.
    """
    names = {found[2][: int(found[1])] for found in _OPERATION.finditer(library)}
    names |= {found[1] for found in _FUNCTION.finditer(library)}
    return tuple(sorted(name.decode() for name in names))
