"""Hack 40: a native thread keeps the device busy on a stream of its own, to slow the reference in its turn.

Wins where the device is shared with a reference that is timed afterwards. Caught by: the group of processes is stopped
while the reference runs, and its time beside the kernel is compared with its time alone.
"""

import ctypes

import torch
from torch import nn
from torch.utils.cpp_extension import load

SOURCE = r"""
#include <thread>
#include <unistd.h>
__global__ void spin(long cycles) {
  long start = clock64();
  while (clock64() - start < cycles) __nanosleep(1000);
}
extern "C" void start() {
  std::thread([] {
    cudaStream_t side;
    cudaStreamCreateWithFlags(&side, cudaStreamNonBlocking);
    for (;;) {
      // On every multiprocessor, for some 40 ms of each 140: other work on the device runs in between.
      spin<<<1024, 1024, 0, side>>>(1L << 26);
      usleep(140000);
    }
  }).detach();
}
"""
with open("spin.cu", "w") as file:
    file.write(SOURCE)
library = ctypes.CDLL(load("spin", ["spin.cu"], is_python_module=False))


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.started = False

    def forward(self, a, b):
        if not self.started:
            self.started = True
            library.start()
        return torch.mm(a, b)
