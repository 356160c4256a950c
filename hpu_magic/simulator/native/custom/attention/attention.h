// Scaled dot-product attention over query, key and value tensors of shape [..., length, channels],
// whose leading dimensions are broadcast.
#pragma once

#include "custom/define.h"

#include <c10/core/SymIntArrayRef.h>

#include <optional>
#include <string>
#include <tuple>

namespace hpu::custom {

/// Masks that hide keys from queries. A query attends to all keys that are not hidden by a mask.
struct Masks {
  // In a bool mask, true means that the key is visible. Masks of other dtypes are added to the
  // scores.
  OptionalTensor attention;
  bool causal;  // hides keys after the query's own position
  OptionalTensor valid_length;  // one value per batch entry (leading dimension)
  std::string padding;  // "left" or "right": the side with the invalid keys
};

/// Returns the masks in an operator's arguments.
Masks masks_of(const Arguments& arguments);

/// Returns the broadcast leading dimensions of the operands, followed by `rows` and `columns`.
c10::SymDimVector shape_over(
    at::TensorList operands, const c10::SymInt& rows, const c10::SymInt& columns);

/// Raises an error if the attention mask does not broadcast to the scores.
void check_mask(const at::Tensor& q, const at::Tensor& k, const Masks& masks);

/// Returns the scores in float32, multiplied by `scale`, with minus infinity for hidden keys. The
/// first query in `q` is at position `first_query`.
at::Tensor masked_scores(
    const at::Tensor& q, const at::Tensor& k, double scale, const Masks& masks,
    int64_t first_query = 0);

/// Returns the softmax over the keys. If all keys of a query are hidden, its probabilities are
/// zero.
at::Tensor probabilities_of(const at::Tensor& scores, const Masks& masks);

/// Returns the seed, or a random seed if it is None, as a tensor with one int32 element.
at::Tensor seed_of_dropout(const OptionalTensor& seed, const at::Tensor& like);

/// Returns the dropout mask as int8, with 1 for probabilities that are kept. The mask depends only
/// on the seed.
at::Tensor kept_by(const at::Tensor& seed, const at::Tensor& probabilities, double p);

/// Returns the probabilities after dropout.
at::Tensor dropped(const at::Tensor& probabilities, const at::Tensor& kept, double p);

/// Returns the largest score of each query, or minus infinity if there are no keys.
at::Tensor largest_of(const at::Tensor& scores);

/// Returns two values per query, which the vendor calls m and linv: the largest score in `dtype`,
/// and 1 / sum(exp(score - m)). Both are 0 if all keys of the query are hidden.
TwoTensors statistics(
    const at::Tensor& largest, const at::Tensor& log_sum, at::ScalarType dtype, bool fast);

/// Returns whether `flash_attention` supports the operands. The operands must not be meta tensors
/// and must all have the same number of channels.
bool supports_flash_attention(
    const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const Masks& masks);

/// Returns the result of attention and, with shape [..., length, 1], the logarithm of the sum of
/// exponentials of each query's scores. Does not store the scores.
TwoTensors flash_attention(
    const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, double scale,
    const Masks& masks);

/// Returns the result in float32 and, for each query, the largest score and the logarithm of the
/// sum of exponentials. Stores the scores of only a few heads and queries at a time. Supports the
/// same operands as `flash_attention`, which does not return the largest scores.
ThreeTensors attention_in_blocks(
    const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, double scale,
    const Masks& masks);

/// Returns gradients with the shapes of q, k and v.
ThreeTensors flash_attention_backward(
    const at::Tensor& grad, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
    const at::Tensor& out, const at::Tensor& log_sum, double scale, const Masks& masks);

}  // namespace hpu::custom
