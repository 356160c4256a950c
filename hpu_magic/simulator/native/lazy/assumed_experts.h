// The experts that a router selects for each token. A dry run assumes them, so that it can compute
// sizes that depend on them.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

#include <cstdint>

namespace hpu::assumed_experts {

/// Sets the tokens of the first rank's experts, relative to the mean, and the number of ranks, which
/// share all experts.
void set_imbalance(double imbalance, int64_t ranks);

/// Returns whether the first rank's experts were selected more often than others.
bool unbalanced();

/// Counts a call if a dry run may assume which experts it selects. Routers select the experts with
/// the largest scores, which are floating-point numbers in the last dimension.
void note(const c10::OperatorHandle& op, c10::ArrayRef<c10::IValue> arguments);

/// Writes the experts to the indices in the results of a call, if the call selects experts.
void assume(
    const c10::OperatorHandle& op, c10::ArrayRef<c10::IValue> arguments, const at::Tensor& indices);

}  // namespace hpu::assumed_experts
