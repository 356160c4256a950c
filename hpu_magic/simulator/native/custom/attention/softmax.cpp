// Variants of softmax for attention, usually over the last dimension. All of them are computed in
// float32, because the vendor's approximations are not published.
#include "custom/define.h"
#include "custom/quantization/fp8.h"

#include <limits>

namespace hpu::custom {
namespace {

constexpr double kMinusInfinity = -std::numeric_limits<double>::infinity();

at::Tensor scaled_masked_softmax(const at::Tensor& input, const at::Tensor& mask, double scale) {
  const at::Tensor scores = input.to(ScalarType::Float) * scale + mask;
  TORCH_CHECK(
      scores.sym_sizes() == input.sym_sizes(), "ScaledMaskedSoftmax mask of shape ",
      mask.sym_sizes(), " must broadcast to the input's shape ", input.sym_sizes(), ".");
  return at::softmax(scores, -1).to(input.scalar_type());
}

/// Returns scores of shape [N, L, L], with minus infinity above the diagonal.
at::Tensor triangular(const at::Tensor& self, double inv_scale_attn) {
  TORCH_CHECK(self.dim() == 3, "Self tensor must be 3D.");
  TORCH_CHECK(
      self.sym_size(1) == self.sym_size(2),
      "Self tensor must have as many rows as columns, but got shape ", self.sym_sizes(), ".");
  const at::Tensor scores = self.to(ScalarType::Float) * inv_scale_attn;
  const at::Tensor ones =
      at::ones_symint({self.sym_size(1), self.sym_size(2)}, self.options().dtype(ScalarType::Bool));
  return scores.masked_fill(at::triu(ones, 1), kMinusInfinity);
}

at::Tensor scaled_triangular_softmax(
    const at::Tensor& self, double inv_scale_attn, const OptionalTensor& exp_sum_recpr,
    const OptionalTensor& max) {
  const at::Tensor scores = triangular(self, inv_scale_attn);
  const bool has_sum = is_defined(exp_sum_recpr);
  const bool has_max = is_defined(max);
  TORCH_CHECK(has_sum == has_max, "Inputs max and exp_sum_recpr must be both given or Null.");
  if (!has_sum) {
    return at::softmax(scores, -1).to(self.scalar_type());
  }
  TORCH_CHECK(
      exp_sum_recpr->sym_sizes() == max->sym_sizes(),
      "exp_sum_recpr and max inputs must have the same shape.");
  TORCH_CHECK(
      max->dim() == 3 && max->sym_size(0) == self.sym_size(0) &&
          max->sym_size(1) == self.sym_size(1) && max->sym_size(2) == 1,
      "exp_sum_recpr and max inputs must have shape [self_shape[0], self_shape[1], 1].");
  return (at::exp(scores - *max) * *exp_sum_recpr).to(self.scalar_type());
}

ThreeTensors scaled_triangular_softmax_retain(
    const at::Tensor& self, double inv_scale_attn) {
  const at::Tensor scores = triangular(self, inv_scale_attn);
  const at::Tensor max = at::amax(scores, -1, /*keepdim=*/true).to(self.scalar_type());
  const at::Tensor exponentials = at::exp(scores - max);
  const at::Tensor inverse = exponentials.sum(-1, /*keepdim=*/true).reciprocal();
  return {(exponentials * inverse).to(self.scalar_type()), inverse, max};
}

/// Returns a mask of the columns that are hidden from each row: those outside the range given by
/// its start-end pair, and those above the diagonal.
at::Tensor hidden(const at::Tensor& self, const at::Tensor& start_end, int64_t group) {
  const auto options = self.options().dtype(ScalarType::Long);
  const at::Tensor pairs =
      start_end.to(ScalarType::Long).reshape({-1, 2}).repeat_interleave(group, 0);
  const at::Tensor column = at::arange(self.size(2), options);
  at::Tensor seen = at::logical_and(
      column >= pairs.select(1, 0).reshape({-1, 1, 1}),
      column < pairs.select(1, 1).reshape({-1, 1, 1}));
  if (self.size(1) > 1) {
    seen = at::logical_and(seen, column <= at::arange(self.size(1), options).unsqueeze(1));
  }
  return seen.logical_not();
}

at::Tensor scaled_masked_triangular_softmax(
    const at::Tensor& self, const at::Tensor& start_end, double inv_scale_attn,
    int64_t grouped_batch_size, bool use_max, int64_t mode,
    std::optional<ScalarType> out_dtype) {
  const ScalarType dtype = out_dtype.value_or(self.scalar_type());
  TORCH_CHECK(self.dim() == 3, "Input must be a 3D tensor.");
  TORCH_CHECK(
      self.sym_size(1) == 1 || self.sym_size(1) == self.sym_size(2),
      "Dim1 must equal (dim2 or 1)");
  TORCH_CHECK(grouped_batch_size > 0, "grouped_batch_size must be larger than 0.");
  TORCH_CHECK(
      self.sym_size(0) % grouped_batch_size == 0, "dim0 must be a multiple of grouped_batch_size.");
  TORCH_CHECK(
      dtype == self.scalar_type() || (self.scalar_type() == ScalarType::BFloat16 && is_fp8(dtype)),
      "Input and output dtypes must be equal or input must be bfloat16 and output must be fp8. "
      "Got: ", toString(self.scalar_type()), " and ", toString(dtype));
  TORCH_CHECK(
      at::isIntegralType(start_end.scalar_type(), /*includeBool=*/false) &&
          start_end.sym_numel() * grouped_batch_size == self.sym_size(0) * 2,
      "start_end must have a pair of integers for each group of ", grouped_batch_size,
      " batches of ", self.sym_size(0), ", but got ", start_end.sym_numel(), " elements of dtype ",
      toString(start_end.scalar_type()), ".");
  TORCH_CHECK(
      mode == 0 || mode == 1 || mode == 15, "ScaledMaskedTriangularSoftmax mode must be 0, 1 or 15, "
      "but got ", mode, ".");
  if (self.is_meta()) {
    return at::empty_symint(self.sym_sizes(), self.options().dtype(dtype));
  }
  const at::Tensor unseen = hidden(self, start_end, grouped_batch_size);
  const at::Tensor scores =
      (self.to(ScalarType::Float) * inv_scale_attn).masked_fill(unseen, kMinusInfinity);
  const at::Tensor exponentials = at::exp(scores);
  const at::Tensor result =
      (use_max ? at::softmax(scores, -1) : exponentials / exponentials.sum(-1, true))
          .masked_fill(unseen, 0.0);
  return is_fp8(dtype) ? to_fp8(result, dtype) : result.to(dtype);
}

at::Tensor custom_softmax(const at::Tensor& input, int64_t flavor) {
  TORCH_CHECK(
      flavor >= 0 && flavor <= 2, "CustomSoftmax flavor must be 0, 1 or 2, but got ", flavor, ".");
  return at::softmax(input.to(ScalarType::Float), -1).to(input.scalar_type());
}

/// Returns the softmax of the first `valid_count` elements of each row. The other elements become
/// zero.
at::Tensor ragged_softmax(
    const at::Tensor& self, int64_t dim, bool half_to_float, const at::Tensor& valid_count) {
  TORCH_CHECK(!half_to_float, "softmax with half to float conversion is not supported on HPU");
  TORCH_CHECK(self.dim() > 0, "RaggedSoftmax input must have at least one dimension.");
  dim = at::maybe_wrap_dim(dim, self.dim());
  std::vector<c10::SymInt> rows = self.sym_sizes().vec();
  rows[static_cast<size_t>(dim)] = 1;
  TORCH_CHECK(
      at::isIntegralType(valid_count.scalar_type(), /*includeBool=*/false) &&
          valid_count.sym_numel() == c10::multiply_integers(rows),
      "RaggedSoftmax valid_count must have an integer for each row of ", self.sym_sizes(),
      " along dimension ", dim, ", but got ", toString(valid_count.scalar_type()), " of ",
      valid_count.sym_sizes(), ".");
  std::vector<c10::SymInt> along(static_cast<size_t>(self.dim()), 1);
  along[static_cast<size_t>(dim)] = self.sym_size(dim);
  const at::Tensor position =
      at::arange(self.sym_size(dim), self.options().dtype(ScalarType::Long)).reshape_symint(along);
  const at::Tensor unseen = position >= valid_count.reshape_symint(rows);
  return at::softmax(self.to(ScalarType::Float).masked_fill(unseen, kMinusInfinity), dim)
      .masked_fill(unseen, 0.0)
      .to(self.scalar_type());
}

const Operators softmaxes([](Operators& define) {
  define(
      "scaled_masked_softmax(Tensor input, Tensor mask, float scale) -> Tensor",
      &scaled_masked_softmax);
  define(
      "scaled_triangular_softmax(Tensor self, float inv_scale_attn, Tensor? exp_sum_recpr=None, "
      "Tensor? max=None) -> Tensor",
      &scaled_triangular_softmax);
  define(
      "scaled_triangular_softmax_retain(Tensor self, float inv_scale_attn) "
      "-> (Tensor, Tensor, Tensor)",
      &scaled_triangular_softmax_retain);
  define(
      "scaled_masked_triangular_softmax(Tensor self, Tensor start_end, float inv_scale_attn, "
      "int grouped_batch_size, bool use_max, int mode, ScalarType? out_dtype=None) -> Tensor",
      &scaled_masked_triangular_softmax);
  define(
      "ragged_softmax(Tensor self, int dim, bool half_to_float, Tensor valid_count) -> Tensor",
      &ragged_softmax);
  define("custom_softmax(Tensor input, int flavor) -> Tensor", &custom_softmax);
});

}  // namespace
}  // namespace hpu::custom
