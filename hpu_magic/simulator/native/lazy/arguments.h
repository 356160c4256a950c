// What recording does to the arguments of a call before it holds them.
#pragma once

#include "lazy/inference.h"

#include <ATen/core/stack.h>

namespace hpu {

/// Moves CPU tensors among the arguments, the last ones on the stack, to the device as they are at
/// this moment, as the bridge does; scalars stay. Refuses to write into one.
void move_operands(const c10::FunctionSchema& schema, torch::jit::Stack& stack);

/// Makes room for what written arguments (out=) will hold, in their own storages: whatever else
/// views one sees the write.
void grow_written(const torch::jit::Stack& arguments, const Inference& inference);

/// Gives written arguments the sizes that they will have.
void resize_written(const torch::jit::Stack& arguments, const Inference& inference);

}  // namespace hpu
