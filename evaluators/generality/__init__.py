"""Is a kernel right beyond its problem's file: at other sizes, on PyTorch's own samples?"""
