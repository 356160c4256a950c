// The kernel of every operator that has none of its own here.
#pragma once

#include "calls/host_call.h"

namespace hpu {

/// Runs any operator, or records it in lazy mode.
void run_boxed(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack);

/// Gives the operators of the card that PyTorch would divide into shapes and a call with out= a
/// kernel of one piece. That division looks for one device among the operands before a kernel of
/// this device is asked.
void take_whole(const std::vector<std::string>& operators);

}  // namespace hpu
