// The values that a dry run computes if they depend only on data from the host: integers and
// Booleans, which programs use as sizes, indices and masks, and single numbers.
#pragma once

#include "lazy/inference.h"

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

namespace hpu {

/// Returns whether a tensor is computed if the operands are known.
bool countable(const at::Tensor& tensor);

/// Returns whether all new results of a call are computed if the operands are known.
bool has_countable_results(const Inference& inference);

/// Returns whether a tensor keeps the values that the host writes to it.
bool keeps_host_values(const at::Tensor& tensor);

/// Returns whether a tensor contains all bytes of its storage.
bool covers_storage(const at::Tensor& tensor);

/// Returns whether the values of a call's operands are known, so that its kernel can run.
bool has_known_operands(const c10::OperatorHandle& op, const torch::jit::Stack& arguments);

/// Marks the first argument of a fill or copy as known if the call overwrites its whole storage.
void know_overwritten(const c10::FunctionSchema& schema, const torch::jit::Stack& arguments);

}  // namespace hpu
