// Products of 8-bit matrices in bfloat16, where that is the faster way.
#pragma once

#include "custom/fp8.h"

namespace hpu::custom {

/// `A @ B * A_scale * B_scale + bias` in bfloat16, or none where the general way is to be taken.
///
/// bfloat16 has every 8-bit value, and what multiplies it sums in float32, so that the result is
/// rounded once, and a bias as well. Processors with instructions for it take less than half of the
/// time that float32 takes; others more.
std::optional<at::Tensor> matmul_in_bfloat16(
    const at::Tensor& A, bool trans_A, const at::Tensor& B, bool trans_B, const Scale& A_scale,
    const Scale& B_scale, const std::optional<at::Tensor>& bias);

}  // namespace hpu::custom
