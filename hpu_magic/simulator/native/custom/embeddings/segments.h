// Segments of a list: segment i contains the elements from offset i to offset i + 1.
#pragma once

#include "custom/define.h"

namespace hpu::custom {

/// Raises an error unless the offsets are nondecreasing integers from 0 to `most`. This reads their
/// values.
inline void check_offsets(const char* name, const at::Tensor& offsets, int64_t most) {
  TORCH_CHECK(
      at::isIntegralType(offsets.scalar_type(), /*includeBool=*/false) && offsets.dim() == 1 &&
          offsets.numel() > 0,
      name, " offsets must be 1D integers and not empty, but got ",
      toString(offsets.scalar_type()), " of ", offsets.sizes(), ".");
  const bool ordered =
      (offsets.slice(0, 1) >= offsets.slice(0, 0, offsets.size(0) - 1)).all().item<bool>();
  TORCH_CHECK(
      ordered && offsets[0].item<int64_t>() >= 0 && offsets[-1].item<int64_t>() <= most, name,
      " offsets must not decrease and must be between 0 and ", most, ", but got ", offsets, ".");
}

/// Returns the positions of the elements of consecutive segments, given the starts and lengths of
/// the segments as int64.
inline at::Tensor positions_of_segments(const at::Tensor& starts, const at::Tensor& lengths) {
  const at::Tensor ends = lengths.cumsum(0);
  const int64_t total = lengths.numel() > 0 ? ends[-1].item<int64_t>() : 0;
  const at::Tensor shift = (starts - (ends - lengths)).repeat_interleave(lengths);
  return at::arange(total, lengths.options()) + shift;
}

}  // namespace hpu::custom
