// Calls in compile-only mode.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

namespace hpu {

/// Replaces the arguments of a call, which are at the top of `stack`, by tensors of zeros that have
/// the results' sizes, without running its kernel. Written arguments keep their values, except that
/// a fill writes zeros. Returns false, and leaves the arguments, if the results depend on values.
bool skip_call(const c10::OperatorHandle& op, torch::jit::Stack* stack);

}  // namespace hpu
