// The generic kernel for operators without a specific kernel, and the casts for autocast.
#pragma once

#include "calls/host_call.h"

#include <string>
#include <vector>

namespace hpu {

/// Runs any operator, or records it in lazy mode.
void run_boxed(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack);

/// Registers a kernel for the card's operators that PyTorch would otherwise decompose into a shape
/// function and an out= variant. The decomposition would require all operands to be on the same
/// device.
void register_undecomposed(const std::vector<std::string>& operators);

namespace autocast {

/// Registers the casts, once per process. Names are the vendor's operator names, such as "linear"
/// and "truediv". If a name is in more than one list, only the first of lower, fp32 and promote
/// applies.
void set_operators(
    const std::vector<std::string>& lower, const std::vector<std::string>& fp32,
    const std::vector<std::string>& promote);

}  // namespace autocast
}  // namespace hpu
