// A layer of experts: each token goes through those that its row of a routing table names.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

namespace hpu::custom {

class Operators;

struct Routing {
  at::Tensor table;    // [tokens, experts of each]
  at::Tensor weights;  // as much as each counts
};

/// The experts that a call holds, of ids from `first_id` to `last_id`.
struct Experts {
  at::TensorList gates;  // or gates and ups side by side
  at::TensorList ups;    // none where the gates have them
  at::TensorList downs;
  bool permuted;  // [out, in] as nn.Linear has weights, else [in, out]
  std::string activation;
  int64_t first_id;
  int64_t last_id;
};

/// What takes 8-bit values back to what they stand for: one factor for a tensor, or one for each
/// row of tokens or for each output channel of weights.
struct ExpertScales {
  at::Tensor hidden;
  std::vector<at::Tensor> gates;
  std::vector<at::Tensor> ups;
  std::vector<at::Tensor> downs;
  std::vector<at::Tensor> inner;  // none: by the largest magnitude of each
};

/// An expert that is named twice for a token counts twice, and one that is not here not at all.
/// With scales the values before the last product pass through 8 bits too, and the result is of
/// bfloat16; else it is of the tokens' dtype.
at::Tensor mixture(
    const at::Tensor& hidden, const Routing& routing, const Experts& experts,
    const ExpertScales* scales = nullptr);

/// Defines the overloads over 8-bit values, after all others: a call without an overload's name takes
/// the first that fits, and PyTorch turns numbers into tensors to make one fit.
void define_fp8_experts(Operators& define);

}  // namespace hpu::custom
