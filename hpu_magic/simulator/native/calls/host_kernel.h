// The operator whose kernels compute a call on the host.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>

namespace hpu {

/// The namespace of kernels that replace those of an operator: the vendor's operators have no CPU
/// kernels under their own names, as on a card, and some CPU kernels of PyTorch support fewer types
/// than a card.
constexpr const char* kHostKernels = "hpu_host";

/// The operator whose kernels compute `op` on CPU tensors and infer its results from tensors
/// without memory: the one of the same name in `kHostKernels`, otherwise `op` itself.
const c10::OperatorHandle& host_kernel(const c10::OperatorHandle& op);

}  // namespace hpu
