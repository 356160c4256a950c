// Values that a dry run does not compute, but infers from the stand-ins of the operands.
//
// Copies, reductions and elementwise operators are evaluated once, as if all elements of an operand
// were equal. For example, `isnan` of a stand-in is false, because a dry run assumes that no
// overflow occurs. Numbers that depend only on this result are inferred, too.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

namespace hpu {

/// Marks a result of a call as assumed. Integers and Booleans take the value inferred from the
/// operands, or 0. Floating-point numbers take the inferred value only if it does not depend on
/// other floating-point stand-ins.
void assume_result(
    const at::Tensor& result, const c10::OperatorHandle& op, const torch::jit::Stack& arguments);

/// Marks a device tensor as an assumed copy of another tensor.
void assume_copy(const at::Tensor& source, const at::Tensor& destination);

}  // namespace hpu
