// `torch._scaled_mm` with the features of a card: any shapes and strides, accumulation in float32,
// and operands of different FP8 formats if the card's generation supports them.
#include "custom/define.h"
#include "custom/quantization/fp8.h"

namespace hpu::custom {
namespace {

void check_matrices(const at::Tensor& mat1, const at::Tensor& mat2, const Scale& bias) {
  TORCH_CHECK(mat1.dim() == 2, "mat1 must be a matrix");
  TORCH_CHECK(mat2.dim() == 2, "mat2 must be a matrix");
  TORCH_CHECK(
      mat1.sym_size(1) == mat2.sym_size(0), "mat1 and mat2 shapes cannot be multiplied (",
      mat1.sym_size(0), "x", mat1.sym_size(1), " and ", mat2.sym_size(0), "x", mat2.sym_size(1),
      ")");
  TORCH_CHECK(
      !is_defined(bias) || bias->sym_numel() == mat2.sym_size(1), "Bias must be size ",
      mat2.sym_size(1), " but got ", bias->sym_numel());
  for (const at::Tensor* matrix : {&mat1, &mat2}) {
    TORCH_CHECK(
        is_fp8(matrix->scalar_type()), "Expected ", matrix == &mat1 ? "mat1" : "mat2",
        " to be Float8_e5m2 or Float8_e4m3fn matrix got ", toString(matrix->scalar_type()));
  }
}

at::Tensor scaled_mm(
    const at::Tensor& self, const at::Tensor& mat2, const at::Tensor& scale_a,
    const at::Tensor& scale_b, const OptionalTensor& bias, const Scale& scale_result,
    std::optional<ScalarType> out_dtype, bool /*use_fast_accum*/) {
  check_matrices(self, mat2, bias);
  check_formats("_scaled_mm", self, mat2);
  const ScalarType dtype = out_dtype.value_or(self.scalar_type());
  const bool has_bias = is_defined(bias);
  const bool has_result_scale = is_defined(scale_result);
  TORCH_CHECK(
      is_fp8(dtype) || at::isFloatingType(dtype),
      "_scaled_mm out_dtype must be a floating-point dtype, but got ", toString(dtype), ".");
  TORCH_CHECK(
      !is_fp8(dtype) || (has_result_scale && !has_bias), "_scaled_mm needs scale_result and no "
      "bias for a result of ", toString(dtype), ".");
  const at::Tensor product =
      at::mm(self.to(ScalarType::Float), mat2.to(ScalarType::Float));
  at::Tensor result = scaled(scaled(product, scale_a), scale_b);
  result = has_bias ? result + *bias : result;
  result = has_result_scale ? scaled(result, scale_result) : result;
  TORCH_CHECK(
      result.sym_sizes() == product.sym_sizes(), "The scales of _scaled_mm must broadcast to its "
      "result's shape ", product.sym_sizes(), ", but result in ", result.sym_sizes(), ".");
  return is_fp8(dtype) ? to_fp8(result, dtype) : result.to(dtype);
}

at::Tensor& scaled_mm_out(
    const at::Tensor& self, const at::Tensor& mat2, const at::Tensor& scale_a,
    const at::Tensor& scale_b, const OptionalTensor& bias, const Scale& scale_result,
    std::optional<ScalarType> out_dtype, bool use_fast_accum, at::Tensor& out) {
  const at::Tensor result = scaled_mm(
      self, mat2, scale_a, scale_b, bias, scale_result, out_dtype.value_or(out.scalar_type()),
      use_fast_accum);
  TORCH_CHECK(
      out.scalar_type() == result.scalar_type(), "_scaled_mm out must have dtype ",
      toString(result.scalar_type()), ", but got ", toString(out.scalar_type()), ".");
  out.resize_(result.sizes());
  return out.copy_(result);
}

const Operators scaled_products([](Operators& define) {
  define.in_place_of("_scaled_mm", &scaled_mm);
  define.in_place_of("_scaled_mm.out", &scaled_mm_out);
});

}  // namespace
}  // namespace hpu::custom
