"""Whether a kernel may run on several CUDA streams at once.

Streams share a context's connections to the device: on one connection the kernels of two streams run one
after the other. A kernel that uses a single stream loses nothing by it.
"""

import re
from collections.abc import Collection

from kbevolve.evaluators.lint.tables import words

#: Tags of kernels that may use several streams, as far as their source shows.
_TAGS = words("streams cuda-graph threads torch-compile exec flags foreign-library third-party")
#: Operations for which libraries take streams of their own: cuDNN the layers of a recurrent network, cuSOLVER and MAGMA
#: the members of a batch. Wherever one is named, in a comment too: a wide context costs the kernel nothing.
_OPERATIONS = re.compile(
    r"(?<![a-z])(?:(?:lstm|gru|rnn)(?:cell)?|linalg|cholesky|(?<=\.)p?inverse|svd|qr|geqrf|lu|solve|lstsq|eigh?"
    r"|(?:s?log)?det)(?![a-z])",
    re.IGNORECASE,
)


def may_use_several(source: str, tags: Collection[str]) -> bool:
    """Whether a kernel with this source and these tags may use more than one stream."""
    return not _TAGS.isdisjoint(tags) or _OPERATIONS.search(source) is not None
