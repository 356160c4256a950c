// How an operation on device tensors runs: on CPU views of their memory, with the CPU's kernel.
#pragma once

#include "memory.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

namespace hpu {

/// Runs any operator. Serves every operator that has no kernel of its own here.
void run_boxed(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack);

/// Raises the vendor's error unless `tensor` may stand beside device tensors: eager mode takes
/// device tensors and 0-dim CPU tensors.
void check_operand(const at::Tensor& tensor, size_t index);

/// Whether an error says that the CPU's kernel lacks a dtype.
bool lacks_dtype(const c10::Error& error);

}  // namespace hpu
