// Changes to the arguments of a call before it is recorded.
#pragma once

#include "lazy/inference.h"

#include <ATen/core/stack.h>

namespace hpu {

/// Copies CPU tensors among the arguments, the last ones on the stack, to the device, like the
/// bridge; scalars stay on the CPU. Raises an error if the call writes one.
void move_operands(const c10::FunctionSchema& schema, torch::jit::Stack& stack);

/// Enlarges the storages of written arguments (out=) for their results. Other views of these
/// storages see the writes.
void grow_written(const torch::jit::Stack& arguments, const Inference& inference);

/// Sets written arguments to their sizes after the call.
void resize_written(const torch::jit::Stack& arguments, const Inference& inference);

}  // namespace hpu
