// The values that a dry run computes if they depend only on data from the host: integers and
// Booleans, which programs use as sizes, indices and masks, and a few floating-point numbers.
#pragma once

#include "lazy/inference.h"

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

namespace hpu {

/// Returns whether a tensor contains integers, Booleans or a single number, and is not too large to
/// compute.
bool countable(const at::Tensor& tensor);

/// Returns whether a tensor keeps the values that the host writes to it. This applies to countable
/// tensors, and to tensors of a few floating-point numbers.
bool keeps_host_values(const at::Tensor& tensor);

/// Returns whether an operand of a call requires a gradient. Among the results of such a call, a
/// dry run computes only integers, Booleans and single numbers. Otherwise, it would train small
/// models.
bool uses_trained(const torch::jit::Stack& arguments);

/// Returns whether a dry run computes all new results of a call whose operands are known.
bool has_computed_results(const Inference& inference, bool uses_trained);

/// Returns whether a tensor contains all bytes of its storage.
bool covers_storage(const at::Tensor& tensor);

/// Returns whether the values of a call's operands are known, so that its kernel can run.
bool has_known_operands(const c10::OperatorHandle& op, const torch::jit::Stack& arguments);

/// Returns whether a call overwrites its first argument without reading it.
bool overwrites(const c10::FunctionSchema& schema);

/// Returns whether a call overwrites an argument without reading it.
bool is_overwritten(const c10::FunctionSchema& schema, size_t argument);

/// Marks the first argument of a fill or copy as known if the call overwrites its whole storage.
void know_overwritten(const c10::FunctionSchema& schema, const torch::jit::Stack& arguments);

}  // namespace hpu
