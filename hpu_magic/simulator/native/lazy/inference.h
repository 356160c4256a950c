// Infers the sizes, strides and dtypes of an operation's results before it runs.
#pragma once

#include "calls/geometry.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

#include <exception>
#include <vector>

namespace hpu {

struct Inference {
  bool known = false;  // if false, the operation must run to determine the results
  std::exception_ptr refusal;  // the kernel's error for these arguments
  std::vector<Geometry> results;  // new tensors, with lists flattened
  std::vector<size_t> lengths;  // lengths of the tensor lists among the results
  std::vector<Resized> resized;  // written arguments whose size changes
};

/// Identifies a call by its operator, shapes, dtypes and integers. Floating-point numbers are
/// excluded unless they affect shapes, because the bridge passes them to compiled graphs as
/// tensors.
struct Signature {
  std::vector<int64_t> words;
  uint64_t hash = 0;
  bool complete = true;  // if false, an argument cannot be part of a signature
};

/// Combines a hash with a 64-bit word.
uint64_t mixed(uint64_t hash, uint64_t word);

Signature signature_of(const c10::OperatorHandle& op, const torch::jit::Stack& arguments);

/// Infers results by running PyTorch's meta kernels, or CPU kernels on zeros if the meta kernel is
/// wrong, and caches them by signature.
const Inference& infer(
    const c10::OperatorHandle& op, const torch::jit::Stack& arguments, const Signature& signature);

/// Infers the results of an operator without a meta kernel by running it on CPU tensors of zeros.
/// The sizes must not depend on values. Propagates errors from the kernel.
const Inference& infer_on_host(
    const c10::OperatorHandle& op, const torch::jit::Stack& arguments, const Signature& signature);

/// Clears the cache in a forked child, because another thread may have been changing it during the
/// fork.
void forget_inferences();

/// Returns the time spent on inference since the last call to this function, in nanoseconds.
int64_t take_inference_time();

}  // namespace hpu
