// Scaled dot-product attention over query, key and value of [..., length, channels], whose leading
// dimensions broadcast.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/SymIntArrayRef.h>

#include <optional>
#include <string>
#include <tuple>

namespace hpu::custom {

/// The keys that a query sees: all that no mask hides.
struct Masks {
  // Bool: true is visible; other types are added to the scores.
  std::optional<at::Tensor> attention;
  bool causal;  // hides keys after the query's own position
  std::optional<at::Tensor> valid_length;  // per batch, the leading dimension
  std::string padding;                     // "left" or "right": where what is not valid lies
};

/// Masks from an operator's arguments, where an undefined tensor means none.
Masks masks_of(
    const std::optional<at::Tensor>& attention, bool causal,
    const std::optional<at::Tensor>& valid_length, c10::string_view padding);

/// The broadcast leading dimensions of the operands, followed by two dimensions.
c10::SymDimVector shape_over(
    at::TensorList operands, const c10::SymInt& rows, const c10::SymInt& columns);

/// Raises an error if the attention mask does not broadcast to the scores.
void check_mask(const at::Tensor& q, const at::Tensor& k, const Masks& masks);

/// Scores in float32, times `scale`, with minus infinity for hidden keys. `q` may contain only the
/// queries from `first_query` on.
at::Tensor masked_scores(
    const at::Tensor& q, const at::Tensor& k, double scale, const Masks& masks,
    int64_t first_query = 0);

/// Softmax over the keys; zeros for a query that sees no key.
at::Tensor probabilities_of(const at::Tensor& scores, const Masks& masks);

/// The passed seed, or one from the device's generator: int32 of one element.
at::Tensor seed_of_dropout(const at::Tensor& seed, const at::Tensor& like);

/// An operator that draws the seed of its dropout, from the form whose first argument is the seed.
/// That form draws the seed if it is undefined.
template <auto seeded>
struct Drawing;

template <class Results, class... Arguments, Results (*seeded)(const at::Tensor&, Arguments...)>
struct Drawing<seeded> {
  static Results run(Arguments... arguments) {
    return seeded(at::Tensor(), arguments...);
  }
};

/// The probabilities that dropout keeps, as int8 of 0 and 1; depends only on the seed.
at::Tensor kept_by(const at::Tensor& seed, const at::Tensor& probabilities, double p);

/// Probabilities after dropout.
at::Tensor dropped(const at::Tensor& probabilities, const at::Tensor& kept, double p);

/// The largest score of each query; minus infinity if there are no keys.
at::Tensor largest_of(const at::Tensor& scores);

/// m and linv: the largest score in `dtype`, and 1 / sum(exp(score - m)). Both are 0 for a query
/// that sees no key.
std::tuple<at::Tensor, at::Tensor> statistics(
    const at::Tensor& largest, const at::Tensor& log_sum, at::ScalarType dtype, bool fast);

/// Whether `flash_attention` supports the operands: they must have values and equal numbers of
/// channels.
bool supports_flash_attention(
    const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const Masks& masks);

/// The result, and the logarithm of each query's sum of exponentials as [..., length, 1]. Does not
/// store the scores.
std::tuple<at::Tensor, at::Tensor> flash_attention(
    const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, double scale,
    const Masks& masks);

/// The result in float32, each query's largest score and the logarithm of its sum of exponentials.
/// Stores the scores of only few heads and queries at a time. Supports the same operands as
/// `flash_attention`, which does not return the largest scores.
std::tuple<at::Tensor, at::Tensor, at::Tensor> attention_in_blocks(
    const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, double scale,
    const Masks& masks);

/// Gradients with the shapes of q, k and v.
std::tuple<at::Tensor, at::Tensor, at::Tensor> flash_attention_backward(
    const at::Tensor& grad, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
    const at::Tensor& out, const at::Tensor& log_sum, double scale, const Masks& masks);

}  // namespace hpu::custom
