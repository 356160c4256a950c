// A layer of experts: a routing table selects the experts of each token.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

namespace hpu::custom {

class Operators;

struct Routing {
  at::Tensor table;  // [tokens, experts per token]
  at::Tensor weights;  // of the experts in the table
};

/// The experts of a call, with ids from `first_id` to `last_id`.
struct Experts {
  at::TensorList gates;  // or gates and ups side by side
  at::TensorList ups;  // empty if the gates contain them
  at::TensorList downs;
  bool permuted;  // [out, in] like nn.Linear, else [in, out]
  std::string activation;
  int64_t first_id;
  int64_t last_id;
};

/// Factors that convert 8-bit values back: one per tensor, or one per token or output channel of
/// weights.
struct ExpertScales {
  at::Tensor hidden;
  std::vector<at::Tensor> gates;
  std::vector<at::Tensor> ups;
  std::vector<at::Tensor> downs;
  std::vector<at::Tensor> inner;  // empty: computed from the largest magnitude
};

/// An expert that is listed twice for a token counts twice; an expert that is not in this call is
/// ignored. With scales, inner values are converted to 8 bits and back, and the result is bfloat16;
/// else it has the tokens' dtype.
at::Tensor mixture(
    const at::Tensor& hidden, const Routing& routing, const Experts& experts,
    const ExpertScales* scales = nullptr);

/// Defines the overloads for 8-bit values, after all others: a call without an overload's name uses
/// the first that matches, and PyTorch converts numbers to tensors to match one.
void define_fp8_experts(Operators& define);

}  // namespace hpu::custom
