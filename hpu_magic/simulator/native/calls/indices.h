// Indices out of range, which a card does not check. The simulator's rule is an assumption, based
// on how vLLM's Gaudi plug-in pads positions, slots and groups with -1:
//
// - An index from -size to -1 counts from the end.
// - Other indices out of range read the nearest element. `index_copy`, `index_add`, `index_reduce`
//   and `index_fill` drop writes to them; other operators that write raise PyTorch's error.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

#include <vector>

namespace hpu::indices {

/// Replaces indices out of range in the arguments of a call, which are CPU tensors. Warns once for
/// each line of Python code, except in vLLM's plug-in. With HPU_MAGIC_CHECK_INDICES=1, raises an
/// error instead.
void bring_into_range(
    const c10::OperatorHandle& op, torch::jit::Stack& stack, size_t first_argument);

/// Returns whether an error reports an index out of range.
bool is_out_of_range(const c10::Error& error);

}  // namespace hpu::indices
