// Large blocks of zeros, which use no host memory until other values are written.
#pragma once

#include <ATen/core/Tensor.h>

namespace hpu {

/// Allocates pages that the operating system provides on first use, even if the host has less
/// memory than that. Returns null if the address space is exhausted.
c10::DataPtr lazy_pages(size_t bytes);

/// Blocks of at least this size are allocated by `lazy_pages`.
constexpr size_t kLazyPages = size_t{256} << 20;

/// Returns false if the host has too little memory for a block, so that the operating system would
/// end a process. Reads the available memory once per 256 MiB, because most blocks are used soon
/// after they are allocated.
bool has_memory(size_t bytes);

/// Raises an error if the host has too little memory to write nonzero values to a whole CPU tensor
/// whose pages come from `lazy_pages`. Otherwise, the operating system would end the process.
void require_pages(const at::Tensor& self);

/// Writes zeros to a CPU tensor. Returns whole pages of large tensors to the operating system, which
/// provides zeros when they are read.
at::Tensor& write_zeros(at::Tensor& self);

}  // namespace hpu
