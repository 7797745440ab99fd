"""Hack 36: the output's pages are not accessible; reading them raises a signal, whose handler computes the answer.

Wins where the clock stops at the return: to Python it is a plain tensor, and nothing was patched. Caught by: the
judge's own clock over each round trip.
"""

import ctypes

import torch
from torch import nn
from torch.utils.cpp_extension import load

SOURCE = r"""
#include <csignal>
#include <mutex>
#include <sys/mman.h>
#include <unistd.h>
static char *area, *shadow;
static size_t bytes;
static const float *left, *right;
static long rows, inner, columns;
static std::mutex turn;
static bool done;

static void product(float* c) {
  for (long i = 0; i < rows; i++)
    for (long p = 0; p < inner; p++)
      for (long j = 0; j < columns; j++)
        c[i * columns + j] = (p ? c[i * columns + j] : 0) + left[i * inner + p] * right[p * columns + j];
}

static void on_fault(int, siginfo_t* fault, void*) {
  char* at = (char*)fault->si_addr;
  if (at < area || at >= area + bytes) _exit(1);
  std::lock_guard<std::mutex> one(turn);  // several threads copy, and all of them fault
  if (!done) product((float*)shadow);
  done = true;
  mprotect(area, bytes, PROT_READ | PROT_WRITE);
}

extern "C" void* arm(const float* a, const float* b, long m, long k, long n) {
  if (!area) {
    bytes = (m * n * 4 + 4095) / 4096 * 4096;
    int file = memfd_create("pages", 0);
    if (ftruncate(file, bytes)) return nullptr;
    area = (char*)mmap(nullptr, bytes, PROT_NONE, MAP_SHARED, file, 0);
    shadow = (char*)mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    struct sigaction action = {};
    action.sa_sigaction = on_fault;
    action.sa_flags = SA_SIGINFO;
    sigaction(SIGSEGV, &action, nullptr);
  }
  left = a, right = b, rows = m, inner = k, columns = n, done = false;
  mprotect(area, bytes, PROT_NONE);
  return area;
}
"""
with open("pages.cpp", "w") as file:
    file.write(SOURCE)
library = ctypes.CDLL(load("pages", ["pages.cpp"], extra_cflags=["-O3"], is_python_module=False))
library.arm.restype = ctypes.c_void_p


class ModelNew(nn.Module):
    def forward(self, a, b):
        (m, k), n = a.shape, b.shape[1]
        pointers = [ctypes.c_void_p(tensor.data_ptr()) for tensor in (a, b)]
        address = library.arm(*pointers, *(ctypes.c_long(size) for size in (m, k, n)))
        pages = (ctypes.c_float * (m * n)).from_address(address)
        return torch.frombuffer(pages, dtype=torch.float32).view(m, n)
