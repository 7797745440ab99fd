"""A starting kernel in C++ for any graph: each region becomes a function made of a template, or stays torch's.

`assembly` puts the file together. `pointwise`, `rows`, `products`, `convolutions` and `pooling` write the functions of
one family each, with the pointwise region behind it where one reads its result alone. `spaces` has the places of
tensors' elements, `expressions` the arithmetic, `library` torch's own calls. The C++ that functions build on is in
`configs/templates/cpp`. Nothing here imports torch.
"""
