// Calls in a dry run: operators have results of the right sizes, but kernels do not run.
//
// Small results that depend only on host data are really computed, because programs use integers and
// Booleans as sizes, indices and masks. All other results are assumed; see calls/stand_ins.h.
#pragma once

#include "lazy/recorded_graph.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

#include <cstdint>

namespace hpu {

/// Runs a call, or assumes its results in a dry run.
void run_or_assume(const c10::OperatorHandle& op, torch::jit::Stack* stack);

/// Assumes the results of a recorded call. Returns false if the call must run.
bool assume_node(const Node& node);

/// Returns the sum of the signatures of all calls in this dry run. Steps with the same operations
/// and shapes add the same amount.
uint64_t digest_of_calls();

/// Copies values in a dry run if they are known. Otherwise, assumes the values of `destination`.
void copy_or_assume(const at::Tensor& source, const at::Tensor& destination);

}  // namespace hpu
