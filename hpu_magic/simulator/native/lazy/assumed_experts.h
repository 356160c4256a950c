// The experts that a router selects for each token. A dry run assumes them, so that it can compute
// sizes that depend on them.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <cstdint>

namespace hpu::assumed_experts {

/// Sets how many tokens the first rank's experts process, relative to the mean, and the number of
/// ranks that the experts are divided among.
void set_imbalance(double imbalance, int64_t ranks);

/// Returns whether the first rank's experts were selected more often than others.
bool unbalanced();

/// Returns whether a call of `topk` can select experts: its scores are in the last dimension.
bool selects(c10::ArrayRef<c10::IValue> arguments);

/// Returns indices of these sizes, which are not 0. The last dimension contains the experts of a
/// token.
at::Tensor indices(int64_t experts, c10::IntArrayRef sizes);

}  // namespace hpu::assumed_experts
