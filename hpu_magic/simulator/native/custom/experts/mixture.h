// The computation of mixture-of-experts layers, on CPU tensors.
#pragma once

#include "custom/define.h"

#include <optional>

namespace hpu::custom {

using Tensors = std::vector<at::Tensor>;

struct Routing {
  at::Tensor table;  // [tokens, experts per token]
  at::Tensor weights;  // weights of the experts in the table
};

/// The biases of experts whose gate and up projections alternate, and the constants of the
/// activation, as in the GPT-OSS models.
struct Biases {
  Tensors gates;  // of gates and ups, alternating
  Tensors downs;
  double alpha;
  double limit;
};

/// The scales of MXFP4 weights, whose shape is [out, in / 2].
struct BlockScales {
  Tensors gates;
  Tensors downs;
  int64_t block_size;
};

/// The weights of the experts with IDs from `first_id` to `last_id`.
struct Experts {
  Tensors gates;  // may also contain the ups: side by side, or alternating if there are biases
  Tensors ups;  // empty if the gates contain them
  Tensors downs;
  bool permuted;  // [out, in] like nn.Linear, otherwise [in, out]
  std::string activation;
  int64_t first_id;
  int64_t last_id;
  std::optional<Biases> biases{};
  std::optional<BlockScales> blocks{};
};

/// Factors that dequantize FP8 values: one per tensor, per token or per output channel.
struct ExpertScales {
  at::Tensor hidden;
  Tensors gates;
  Tensors ups;
  Tensors downs;
  Tensors inner;  // empty if they are computed from the largest magnitude
};

/// Returns the weighted sum of the expert outputs for each token. An expert that is listed twice
/// for a token counts twice. Experts that are not part of this call are ignored. With scales,
/// intermediate values are converted to FP8 and back, and the result is bfloat16. Otherwise, the
/// result has the dtype of the tokens.
at::Tensor mixture(
    const at::Tensor& hidden, const Routing& routing, const Experts& experts,
    const ExpertScales* scales);

/// Returns each expert's largest intermediate value over all tokens, including tokens that are
/// routed to other experts.
at::Tensor largest_inner(const at::Tensor& hidden, const Experts& experts);

}  // namespace hpu::custom
