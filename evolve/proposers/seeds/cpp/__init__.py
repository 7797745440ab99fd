"""A starting kernel in C++ for any graph: each region becomes a function made of a template, or stays torch's.

`assembly` puts the file together. `pointwise`, `rows`, `scans`, `products`, `convolutions` and `pooling` write the
functions of one family each; `endings` adds what is behind a region in the same function, `chains` has pointwise
regions as C++, `spaces` the places of tensors' elements, `functions` the text of a function, `library` torch's own
calls. The C++ that functions build on is in `configs/templates/cpp`. Nothing here imports torch.
"""
