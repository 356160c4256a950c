// MXFP4 weights: 4-bit floating-point numbers in blocks that share a power of two as their scale.
#pragma once

#include "custom/define.h"

namespace hpu::custom {

/// Raises an error if `packed` is not uint8 of shape [out, in / 2], or `scales` not uint8 of shape
/// [out, in / block_size].
void check_mxfp4(const at::Tensor& packed, const at::Tensor& scales, int64_t block_size);

/// Unpacks weights to a float32 tensor of shape [out, in]. In each byte, the lower four bits are
/// first. `scales` contains biased exponents. The formats are those of the OCP Microscaling
/// specification.
at::Tensor from_mxfp4(const at::Tensor& packed, const at::Tensor& scales, int64_t block_size);

}  // namespace hpu::custom
