// Indices and selected elements that a dry run computes from its assumptions: masks select all
// elements, routers select all experts equally often, and sorting does not change the order.
#pragma once

#include "events/events.h"

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

#include <memory>

namespace hpu::assumed_indices {

/// Counts a call whose results are assumed if it sorts floating-point numbers, or selects the
/// largest ones.
void note(const c10::OperatorHandle& op, c10::ArrayRef<c10::IValue> arguments);

/// Returns the user's lines of a recorded call that `note` may count later, or null.
std::shared_ptr<const events::CallerLines> lines_of(
    const c10::OperatorHandle& op, c10::ArrayRef<c10::IValue> arguments);

/// Writes values to the last result of a call if they follow from the assumptions and from known
/// operands. For example, an assumed mask selects all elements of a tensor of known integers.
void assume(
    const c10::OperatorHandle& op, const torch::jit::Stack& arguments, const at::Tensor& result);

}  // namespace hpu::assumed_indices
