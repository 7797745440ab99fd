"""Attention that never writes its scores (flash attention, minimal)."""

import torch

BATCH, HEADS, LENGTH, WIDTH = 8, 16, 1024, 64
CPU_SIZES = {"BATCH": 2, "HEADS": 2, "LENGTH": 200}


class Model(torch.nn.Module):
    def forward(self, q, k, v):
        scores = q @ k.transpose(-2, -1) / WIDTH**0.5
        return torch.softmax(scores, dim=-1) @ v


def get_inputs():
    return [torch.randn(BATCH, HEADS, LENGTH, WIDTH) for _ in range(3)]


def get_init_inputs():
    return []
