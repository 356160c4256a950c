// The kernel of all operators without a specific one.
#pragma once

#include "calls/host_call.h"

namespace hpu {

/// Runs any operator, or records it in lazy mode.
void run_boxed(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack);

/// Registers a kernel for operators of the card that PyTorch would decompose into shapes and a call
/// with out=. The decomposition would look for a common device of the operands before it calls a
/// kernel of this device.
void register_undecomposed(const std::vector<std::string>& operators);

}  // namespace hpu
