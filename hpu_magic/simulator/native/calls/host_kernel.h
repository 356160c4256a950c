// Which operator computes a call on the host.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>

namespace hpu {

/// The namespace of kernels that stand in for an operator's own: the vendor's operators have none
/// for CPU tensors under their names, as on a card, and some of PyTorch's take fewer types there
/// than on a card.
constexpr const char* kHostKernels = "hpu_host";

/// The operator whose kernels compute `op` for CPU tensors and tell its results for tensors
/// without memory: the one of the same name in `kHostKernels`, else `op` itself.
const c10::OperatorHandle& host_kernel(const c10::OperatorHandle& op);

}  // namespace hpu
