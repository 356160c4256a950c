// Segments of a list, given by their offsets: segment i goes from offset i to offset i + 1.
#pragma once

#include <ATen/core/Tensor.h>

namespace hpu::custom {

/// Offsets are whole numbers that do not decrease, from 0 to `most`. Reads them.
void check_offsets(const char* name, const at::Tensor& offsets, int64_t most);

/// The places of the elements of segments after each other, of starts and lengths of int64.
at::Tensor places_of_segments(const at::Tensor& starts, const at::Tensor& lengths);

}  // namespace hpu::custom
