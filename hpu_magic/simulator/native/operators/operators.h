// The kernel of all operators without a specific one, and the casts of autocast.
#pragma once

#include "calls/host_call.h"

#include <string>
#include <vector>

namespace hpu {

/// Runs any operator, or records it in lazy mode.
void run_boxed(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack);

/// Registers a kernel for the card's operators that PyTorch would otherwise decompose into a shape
/// function and an out= variant. The decomposition would require all operands on one device.
void register_undecomposed(const std::vector<std::string>& operators);

namespace autocast {

/// Registers the casts, once per process. Names are the vendor's operator names, such as "linear"
/// and "truediv". A name in several lists belongs to the first of lower, fp32 and promote.
void set_operators(
    const std::vector<std::string>& lower, const std::vector<std::string>& fp32,
    const std::vector<std::string>& promote);

}  // namespace autocast
}  // namespace hpu
