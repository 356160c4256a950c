// The kernel of every operator that has none of its own here.
#pragma once

#include "calls/host_call.h"

namespace hpu {

/// Runs any operator, or records it in lazy mode.
void run_boxed(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack);

}  // namespace hpu
