// What an operation will return, without running it.
#pragma once

#include "calls/geometry.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

#include <exception>
#include <vector>

namespace hpu {

struct Inference {
  bool known = false;                    // false: only running the operation tells
  std::exception_ptr refusal;            // what the kernel says is wrong with the arguments
  std::vector<Geometry> results;         // fresh tensors, lists flattened
  std::vector<size_t> lengths;           // of the tensor lists among the results
  std::vector<Resized> resized;          // written arguments that get another size
};

/// What tells a call from another: operator, shapes, types and whole numbers. Fractions are data
/// to a compiled graph, as the bridge passes them in tensors.
struct Signature {
  std::vector<int64_t> words;
  uint64_t hash = 0;
  bool complete = true;  // false: an argument has no place in a signature
};

Signature signature_of(const c10::OperatorHandle& op, const torch::jit::Stack& arguments);

/// Infers by PyTorch's meta kernels (where they are wrong, by the CPU's on zeros), and remembers
/// the answer by signature.
const Inference& infer(
    const c10::OperatorHandle& op, const torch::jit::Stack& arguments, const Signature& signature);

/// In the child of a fork: another thread may have been changing what is remembered.
void forget_inferences();

/// Nanoseconds spent in meta kernels since the last call.
int64_t take_inference_time();

}  // namespace hpu
