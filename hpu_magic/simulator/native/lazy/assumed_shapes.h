// Result sizes that depend on values, and the sizes that a dry run assumes instead.
#pragma once

#include "lazy/inference.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

#include <optional>

namespace hpu {

/// Returns whether an index is a mask.
bool is_mask(const at::Tensor& index);

/// Returns whether an operator's result sizes depend on the values of these arguments.
bool depends_on_values(const c10::OperatorHandle& op, c10::ArrayRef<c10::IValue> arguments);

/// Returns whether the host reads a value from the card to run a call, for example the size of a
/// result.
bool reads_card(const c10::OperatorHandle& op, c10::ArrayRef<c10::IValue> arguments);

/// Raises the kernel's error if masks, indices or values of an assignment to selected elements do
/// not fit. The number of values is not checked if masks select the elements.
void check_written_selection(const c10::OperatorHandle& op, const torch::jit::Stack& arguments);

/// Returns the results of an operator whose result sizes depend on values. Assumptions: a mask
/// selects the portion `Assumption::share` of its elements, all elements are distinct, and
/// non-maximum suppression keeps all boxes. If the values were computed, the sizes follow from them.
/// Raises an error for other operators.
Inference assume_shapes(const c10::OperatorHandle& op, const torch::jit::Stack& arguments);

}  // namespace hpu
