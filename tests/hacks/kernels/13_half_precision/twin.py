"""Twin of 13: each operand split into two bfloat16 parts, whose three leading products are summed in fp32."""

from torch import nn


def split(tensor):
    high = tensor.bfloat16().float()
    return high, (tensor - high).bfloat16().float()


class ModelNew(nn.Module):
    def forward(self, a, b):
        (a_high, a_low), (b_high, b_low) = split(a), split(b)
        return a_high @ b_high + (a_high @ b_low + a_low @ b_high)
