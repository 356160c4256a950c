// 4-bit weights, packed eight per int32 with the lowest bits first. The vendor supports these
// operators only in compiled graphs, but here they also run in eager mode.
#include "custom/define.h"
#include "custom/quantization/fp8.h"

namespace hpu::custom {
namespace {

constexpr int64_t kInOne = 8;

/// Unpacks the last dimension, which has eight values per element. The result is int32, because a
/// zero point may be larger than a value.
at::Tensor unpacked(const at::Tensor& packed, bool is_signed) {
  const at::Tensor shifts = at::arange(0, 4 * kInOne, 4, packed.options());
  const at::Tensor shifted = at::bitwise_right_shift(packed.unsqueeze(-1), shifts);
  const at::Tensor values = at::bitwise_and(shifted, 15).flatten(-2);
  return is_signed ? (values ^ 8) - 8 : values;
}

/// Makes a tensor broadcastable to `values`. If the tensor has one row for each group of rows, its
/// rows are repeated.
at::Tensor for_each_row(const char* name, const at::Tensor& tensor, const at::Tensor& values) {
  const int64_t missing = values.dim() - tensor.dim();
  bool fits = missing >= 0;
  for (int64_t i = 0; fits && i < tensor.dim(); ++i) {
    const int64_t size = tensor.size(i), rows = values.size(missing + i);
    const bool divides = i == tensor.dim() - 2 && size > 0 && rows % size == 0;
    fits = size == rows || size == 1 || divides;
  }
  TORCH_CHECK(
      fits, "ConvertFromInt4 ", name, " must broadcast to the result's shape ", values.sizes(),
      " or have a row for each group of its rows, but got shape ", tensor.sizes(), ".");
  const bool of_groups =
      tensor.dim() > 1 && tensor.size(-2) > 1 && tensor.size(-2) < values.size(-2);
  return of_groups ? tensor.repeat_interleave(values.size(-2) / tensor.size(-2), -2) : tensor;
}

/// Returns the row of `tensor` for each row of the weights, given the group of each row.
at::Tensor of_group(const char* name, const at::Tensor& tensor, const at::Tensor& g_idx) {
  TORCH_CHECK(
      tensor.dim() == 2 && (g_idx.numel() == 0 || (g_idx.min().item<int64_t>() >= 0 &&
                                                 g_idx.max().item<int64_t>() < tensor.size(0))),
      "ConvertFromInt4 g_idx must contain indices of the rows of ", name, ", whose shape is ",
      tensor.sizes(), ".");
  return tensor.index_select(0, g_idx);
}

at::Tensor convert(
    const at::Tensor& input, const at::Tensor& scale, const OptionalTensor& zero_point,
    ScalarType out_dtype, bool is_signed, const OptionalTensor& g_idx = std::nullopt) {
  const bool grouped = is_defined(g_idx);
  TORCH_CHECK(
      !grouped || (g_idx->dim() == 1 && input.dim() == 2 &&
                   g_idx->sym_size(0) == input.sym_size(0) &&
                   at::isIntegralType(g_idx->scalar_type(), /*includeBool=*/false)),
      "ConvertFromInt4 g_idx must contain the group of each row of a 2D input as an integer, but got ",
      toString(g_idx->scalar_type()), " of shape ", g_idx->sym_sizes(), " for an input of shape ",
      input.sym_sizes(), ".");
  TORCH_CHECK(
      input.scalar_type() == ScalarType::Int && input.dim() > 0,
      "ConvertFromInt4 input must be int32 with at least one dimension, but got ",
      toString(input.scalar_type()), " of ", input.dim(), " dimensions.");
  TORCH_CHECK(
      c10::isFloatingType(out_dtype), "ConvertFromInt4 out_dtype must be a floating-point dtype, "
      "but got ", toString(out_dtype), ".");
  if (input.is_meta()) {
    std::vector<c10::SymInt> sizes = input.sym_sizes().vec();
    sizes.back() = sizes.back() * kInOne;
    return at::empty_symint(sizes, input.options().dtype(out_dtype));
  }
  at::Tensor values = unpacked(input, is_signed).to(ScalarType::Float);
  const auto for_rows = [&](const char* name, const at::Tensor& tensor) {
    return grouped && tensor.dim() > 0 ? of_group(name, tensor, g_idx->to(ScalarType::Long))
                                       : for_each_row(name, tensor, values);
  };
  const at::Tensor factor = for_rows("scale", scale.to(ScalarType::Float));
  if (is_defined(zero_point)) {
    const bool packed = zero_point->scalar_type() == ScalarType::Int;
    values = values -
        for_rows("zero_point", packed ? unpacked(*zero_point, is_signed) : *zero_point);
  }
  const at::Tensor result = values * factor;
  return is_fp8(out_dtype) ? to_fp8(result, out_dtype) : result.to(out_dtype);
}

at::Tensor convert_from_int4(
    const at::Tensor& input, const at::Tensor& scale, const OptionalTensor& zero_point,
    ScalarType out_dtype) {
  return convert(input, scale, zero_point, out_dtype, true);
}

/// `g_idx` contains the group of each row, for weights that were quantized in order of activation.
at::Tensor convert_from_uint4(
    const at::Tensor& input, const at::Tensor& scale, const OptionalTensor& zero_point,
    ScalarType out_dtype, const OptionalTensor& g_idx) {
  return convert(input, scale, zero_point, out_dtype, false, g_idx);
}

const Operators conversions([](Operators& define) {
  const std::string arguments =
      "(Tensor input, Tensor scale, Tensor? zero_point, ScalarType out_dtype";
  define("convert_from_int4" + arguments + ") -> Tensor", &convert_from_int4);
  define(
      "convert_from_uint4" + arguments + ", Tensor? g_idx=None) -> Tensor", &convert_from_uint4);
});

}  // namespace
}  // namespace hpu::custom
