// Scaled dot-product attention over query, key and value of [..., length, channels], whose leading
// dimensions broadcast.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/SymIntArrayRef.h>

#include <optional>
#include <string>
#include <tuple>

namespace hpu::custom {

/// Which keys a query sees: all that none of these hides.
struct Masks {
  std::optional<at::Tensor> attention;     // bool: true is seen; else it is added to the scores
  bool causal;                             // keys up to the query's own position
  std::optional<at::Tensor> valid_length;  // of each batch, the leading dimension
  std::string padding;                     // "left" or "right": where what is not valid lies
};

/// From an operator's arguments: an undefined tensor is none.
Masks masks_of(
    const std::optional<at::Tensor>& attention, bool causal,
    const std::optional<at::Tensor>& valid_length, c10::string_view padding);

/// The leading dimensions of operands as they broadcast, and two more.
c10::SymDimVector shape_over(
    at::TensorList operands, const c10::SymInt& rows, const c10::SymInt& columns);

/// Refuses an attention mask that does not broadcast to the scores.
void check_mask(const at::Tensor& q, const at::Tensor& k, const Masks& masks);

/// float32 scores times `scale`, minus infinity where a key is hidden. `q` may be some of the
/// queries, from `first_query` on.
at::Tensor masked_scores(
    const at::Tensor& q, const at::Tensor& k, double scale, const Masks& masks,
    int64_t first_query = 0);

/// softmax over the keys; a query that sees no key gets zeros.
at::Tensor probabilities_of(const at::Tensor& scores, const Masks& masks);

/// The seed that is given, else one of the device's generator: int32 of one element.
at::Tensor seed_of_dropout(const at::Tensor& given, const at::Tensor& like);

/// An operator that draws the seed of its dropout, from the form whose first argument is the seed;
/// that one draws it where it is undefined.
template <auto seeded>
struct Drawing;

template <class Results, class... Arguments, Results (*seeded)(const at::Tensor&, Arguments...)>
struct Drawing<seeded> {
  static Results run(Arguments... arguments) {
    return seeded(at::Tensor(), arguments...);
  }
};

/// Which probabilities dropout keeps, 1 of int8, by a seed alone.
at::Tensor kept_by(const at::Tensor& seed, const at::Tensor& probabilities, double p);

/// Probabilities after dropout.
at::Tensor dropped(const at::Tensor& probabilities, const at::Tensor& kept, double p);

/// The largest score of each query, minus infinity where there are no keys.
at::Tensor largest_of(const at::Tensor& scores);

/// m and linv: the largest score in `dtype`, and 1 / sum(exp(score - m)). A query that sees no key
/// has none of either.
std::tuple<at::Tensor, at::Tensor> statistics(
    const at::Tensor& largest, const at::Tensor& log_sum, at::ScalarType dtype, bool fast);

/// Whether `flash_attention` takes the operands: on the CPU, of one dtype and as many channels.
bool takes_flash_attention(
    const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const Masks& masks);

/// The result and the logarithm of each query's sum of exponentials, [..., length, 1], without
/// scores in memory.
std::tuple<at::Tensor, at::Tensor> flash_attention(
    const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, double scale,
    const Masks& masks);

/// The result in float32, each query's largest score and the logarithm of its sum of exponentials,
/// with the scores of few heads and queries in memory at a time. For what `flash_attention` takes,
/// which does not tell the largest scores.
std::tuple<at::Tensor, at::Tensor, at::Tensor> attention_in_blocks(
    const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, double scale,
    const Masks& masks);

/// Gradients in the shapes of q, k and v.
std::tuple<at::Tensor, at::Tensor, at::Tensor> flash_attention_backward(
    const at::Tensor& grad, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
    const at::Tensor& out, const at::Tensor& log_sum, double scale, const Masks& masks);

}  // namespace hpu::custom
