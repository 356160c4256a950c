// Which operator computes a call on the host.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>

namespace hpu {

/// The namespace of the kernels of the vendor's own operators: those have none for CPU tensors
/// under their own names, as on a card.
constexpr const char* kHostKernels = "hpu_host";

/// The operator whose kernel for the CPU computes `op`: the one of the same name in
/// `kHostKernels` for one of the vendor's own, else `op` itself.
const c10::OperatorHandle& host_kernel(const c10::OperatorHandle& op);

}  // namespace hpu
