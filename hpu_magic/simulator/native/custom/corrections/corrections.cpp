// Replacements for CPU kernels of PyTorch operators that lack features of a card or return
// different results.
#include "custom/corrections/gelu.h"
#include "custom/define.h"
#include "lazy/recorder.h"
#include "memory/zero_pages.h"

namespace hpu::custom {
namespace {

/// The in-place variant of a function.
template <auto function>
struct InPlace;

template <class... Others, at::Tensor (*function)(const at::Tensor&, Others...)>
struct InPlace<function> {
  static at::Tensor& run(at::Tensor& self, Others... others) {
    return self.copy_(function(self, others...));
  }
};

/// The out= variant of a function.
template <auto function>
struct Out;

template <class... Arguments, at::Tensor (*function)(Arguments...)>
struct Out<function> {
  static at::Tensor& run(Arguments... arguments, at::Tensor& out) {
    const at::Tensor result = function(arguments...);
    out.resize_(result.sizes());
    return out.copy_(result);
  }
};

at::Tensor take(const at::Tensor& self, const at::Tensor& index) {
  const bool narrow = index.scalar_type() == ScalarType::Int;
  return at::take(self, narrow ? index.to(ScalarType::Long) : index);
}

at::Tensor add_relu(const at::Tensor& self, const at::Tensor& other, const at::Scalar& alpha) {
  return at::relu(at::add(self, other, alpha)).to(self.scalar_type());
}

at::Tensor add_relu_scalar(
    const at::Tensor& self, const at::Scalar& other, const at::Scalar& alpha) {
  return at::relu(at::add(self, other, alpha)).to(self.scalar_type());
}

bool is_integer(const at::Tensor& tensor) {
  return at::isIntegralType(tensor.scalar_type(), /*includeBool=*/true);
}

/// Computes `start + (end - start) * weight` in integer arithmetic.
at::Tensor lerp_integer(const at::Tensor& self, const at::Tensor& end, const at::Tensor& weight) {
  const at::Tensor start = self.to(ScalarType::Long);
  return (start + (end.to(ScalarType::Long) - start) * weight.to(ScalarType::Long))
      .to(self.scalar_type());
}

bool is_integer_lerp(const at::Tensor& self, const at::Tensor& end, const at::Tensor& weight) {
  return is_integer(self) && is_integer(weight) && self.scalar_type() == end.scalar_type();
}

at::Tensor whole(const at::Scalar& weight, const at::Tensor& like) {
  return at::scalar_tensor(weight, like.options().dtype(ScalarType::Long));
}

bool is_integer_lerp(const at::Tensor& self, const at::Tensor& end, const at::Scalar& weight) {
  return is_integer(self) && weight.isIntegral(/*includeBool=*/true) &&
      self.scalar_type() == end.scalar_type();
}

at::Tensor lerp_tensor(const at::Tensor& self, const at::Tensor& end, const at::Tensor& weight) {
  return is_integer_lerp(self, end, weight) ? lerp_integer(self, end, weight)
                                             : at::lerp(self, end, weight);
}

at::Tensor& lerp_tensor_(at::Tensor& self, const at::Tensor& end, const at::Tensor& weight) {
  return is_integer_lerp(self, end, weight) ? self.copy_(lerp_integer(self, end, weight))
                                             : self.lerp_(end, weight);
}

at::Tensor lerp_scalar(const at::Tensor& self, const at::Tensor& end, const at::Scalar& weight) {
  return is_integer_lerp(self, end, weight) ? lerp_integer(self, end, whole(weight, self))
                                             : at::lerp(self, end, weight);
}

at::Tensor& lerp_scalar_(at::Tensor& self, const at::Tensor& end, const at::Scalar& weight) {
  return is_integer_lerp(self, end, weight)
      ? self.copy_(lerp_integer(self, end, whole(weight, self)))
      : self.lerp_(end, weight);
}

/// For integer tensors, draws integers between the truncated bounds, including both bounds.
at::Tensor& uniform_(
    at::Tensor& self, double from, double to, std::optional<at::Generator> generator) {
  return is_integer(self)
      ? self.random_(static_cast<int64_t>(from), static_cast<int64_t>(to) + 1, std::move(generator))
      : self.uniform_(from, to, std::move(generator));
}

/// A card stores float64 as float32, so integers are exact only up to 2^24.
at::Tensor& random_(at::Tensor& self, std::optional<at::Generator> generator) {
  TORCH_CHECK(
      !self.is_complex(), "Got unsupported type for random uniform: ",
      toString(self.scalar_type()));
  return self.scalar_type() == ScalarType::Double
      ? self.random_(0, (int64_t{1} << 24) + 1, std::move(generator))
      : self.random_(std::move(generator));
}

/// Rounding does not change bool tensors, which the CPU kernels do not support.
template <at::Tensor (*round)(const at::Tensor&)>
at::Tensor rounded(const at::Tensor& self) {
  return self.scalar_type() == ScalarType::Bool ? self.clone() : round(self);
}

template <at::Tensor (*round)(const at::Tensor&)>
void define_rounding(Operators& define, const std::string& name) {
  define.in_place_of(name, &rounded<round>);
  define.in_place_of(name + "_", &InPlace<&rounded<round>>::run);
  define.in_place_of(name + ".out", &Out<&rounded<round>>::run);
}

using MedianOut = std::tuple<at::Tensor&, at::Tensor&>;

// Makes the input contiguous, because the CPU kernels read past the end of an expanded tensor.
TwoTensors median(const at::Tensor& self, int64_t dim, bool keepdim) {
  return at::median(self.contiguous(), dim, keepdim);
}

MedianOut median_out(
    const at::Tensor& self, int64_t dim, bool keepdim, at::Tensor& values, at::Tensor& indices) {
  return at::median_out(values, indices, self.contiguous(), dim, keepdim);
}

TwoTensors nanmedian(const at::Tensor& self, int64_t dim, bool keepdim) {
  return at::nanmedian(self.contiguous(), dim, keepdim);
}

MedianOut nanmedian_out(
    const at::Tensor& self, int64_t dim, bool keepdim, at::Tensor& values, at::Tensor& indices) {
  return at::nanmedian_out(values, indices, self.contiguous(), dim, keepdim);
}

/// In eager mode, a card returns None for results that were not requested, whereas the CPU kernel
/// returns empty tensors.
ThreeTensors unique2(
    const at::Tensor& self, bool sorted, bool return_inverse, bool return_counts) {
  auto [values, inverse, counts] = at::_unique2(self, sorted, return_inverse, return_counts);
  const bool all = recorder::enabled();
  return {
      values, all || return_inverse ? inverse : at::Tensor(),
      all || return_counts ? counts : at::Tensor()};
}

/// Returns the number of integers in each bin. The last bin includes its upper bound. If the bounds
/// are equal, the input's minimum and maximum are used instead. If the minimum and maximum are also
/// equal, the range is extended by one on both sides.
at::Tensor histc_integer(
    const at::Tensor& self, int64_t bins, const at::Scalar& min, const at::Scalar& max) {
  TORCH_CHECK(bins > 0, "torch.histc(): bins must be > 0, found ", bins);
  int64_t low = min.toLong();
  int64_t high = max.toLong();
  const at::Tensor values = self.reshape({-1}).to(ScalarType::Long);
  if (low == high && values.numel() > 0) {
    low = values.min().item<int64_t>();
    high = values.max().item<int64_t>();
  }
  if (low == high) {
    --low;
    ++high;
  }
  TORCH_CHECK(low < high, "torch.histc(): max must be larger than min, found ", high, " and ", low);
  const at::Tensor inside = values.masked_select(at::logical_and(values >= low, values <= high));
  const at::Tensor bin = at::floor_divide((inside - low) * bins, high - low).clamp_max(bins - 1);
  return at::bincount(bin, {}, bins).to(self.scalar_type());
}

at::Tensor histc(
    const at::Tensor& self, int64_t bins, const at::Scalar& min, const at::Scalar& max) {
  return at::isIntegralType(self.scalar_type(), /*includeBool=*/false)
      ? histc_integer(self, bins, min, max)
      : at::histc(self, bins, min, max);
}

/// Checks the argument and returns "tanh", the only approximation that a card computes.
const char* tanh_in_place_of(c10::string_view approximate) {
  TORCH_CHECK(
      approximate == "none" || approximate == "tanh",
      "approximate argument must be either none or tanh.");
  return "tanh";
}

at::Tensor gelu(const at::Tensor& self, c10::string_view approximate) {
  return at::gelu(self, tanh_in_place_of(approximate));
}

at::Tensor& gelu_(at::Tensor& self, c10::string_view approximate) {
  return at::gelu_(self, tanh_in_place_of(approximate));
}

at::Tensor& gelu_out(const at::Tensor& self, c10::string_view approximate, at::Tensor& out) {
  return at::gelu_out(out, self, tanh_in_place_of(approximate));
}

at::Tensor gelu_backward(
    const at::Tensor& grad, const at::Tensor& self, c10::string_view approximate) {
  return at::gelu_backward(grad, self, tanh_in_place_of(approximate));
}

at::Tensor& gelu_backward_out(
    const at::Tensor& grad, const at::Tensor& self, c10::string_view approximate,
    at::Tensor& grad_input) {
  return at::gelu_backward_out(grad_input, grad, self, tanh_in_place_of(approximate));
}

const Operators gelus([](Operators& define) {
  if (replaces_gelu_by_tanh()) {
    define.in_place_of("gelu", &gelu);
    define.in_place_of("gelu_", &gelu_);
    define.in_place_of("gelu.out", &gelu_out);
    define.in_place_of("gelu_backward", &gelu_backward);
    define.in_place_of("gelu_backward.grad_input", &gelu_backward_out);
  }
});

const Operators corrections([](Operators& define) {
  define.in_place_of("take", &take);
  define.in_place_of("zero_", &write_zeros);
  define.in_place_of("_add_relu.Tensor", &add_relu);
  define.in_place_of("_add_relu_.Tensor", &InPlace<&add_relu>::run);
  define.in_place_of("_add_relu.out", &Out<&add_relu>::run);
  define.in_place_of("_add_relu.Scalar", &add_relu_scalar);
  define.in_place_of("_add_relu_.Scalar", &InPlace<&add_relu_scalar>::run);
  define.in_place_of("lerp.Tensor", &lerp_tensor);
  define.in_place_of("lerp_.Tensor", &lerp_tensor_);
  define.in_place_of("lerp.Scalar", &lerp_scalar);
  define.in_place_of("lerp_.Scalar", &lerp_scalar_);
  define_rounding<&at::ceil>(define, "ceil");
  define_rounding<&at::floor>(define, "floor");
  define_rounding<&at::round>(define, "round");
  define_rounding<&at::trunc>(define, "trunc");
  define.in_place_of("uniform_", &uniform_);
  define.in_place_of("random_", &random_);
  define.in_place_of("_unique2", &unique2);
  define.in_place_of("histc", &histc);
  define.in_place_of("histc.out", &Out<&histc>::run);
  define.in_place_of("median.dim", &median);
  define.in_place_of("median.dim_values", &median_out);
  define.in_place_of("nanmedian.dim", &nanmedian);
  define.in_place_of("nanmedian.dim_values", &nanmedian_out);
});

}  // namespace
}  // namespace hpu::custom
