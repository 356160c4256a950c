// Calls in compile-only mode.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

namespace hpu {

/// Skips the kernel of a call, and replaces the call's arguments, at the top of `stack`, with
/// tensors of zeros that have the sizes of the results. Written arguments keep their values, except
/// that a fill writes zeros. Returns false without changing the arguments if the results depend on
/// values.
bool skip_call(const c10::OperatorHandle& op, torch::jit::Stack* stack);

}  // namespace hpu
