// Matmul, convolution, sum and softmax of FP8 tensors, computed in float32. The scales dequantize
// FP8 values: each is the inverse of the factor that a cast to FP8 multiplied by.
#include "calls/dtypes.h"
#include "custom/define.h"
#include "custom/quantization/fp8.h"

#include <algorithm>

namespace hpu::custom {
namespace {

void check_out_dtype(const char* name, ScalarType dtype) {
  TORCH_CHECK(
      is_float_or_bfloat16(dtype), name, " out_dtype must be float or bfloat16, but got ",
      toString(dtype), ".");
}

/// Checks that the shapes of the operands are valid for a matmul.
void check_shapes(const at::Tensor& a, const at::Tensor& b) {
  TORCH_CHECK(
      a.dim() > 0 && b.dim() > 0, "Matmul inputs must have at least one dimension, but got ",
      a.dim(), " and ", b.dim(), ".");
  const c10::SymInt of_a = a.sym_size(-1);
  const c10::SymInt of_b = b.sym_size(b.dim() > 1 ? -2 : -1);
  TORCH_CHECK(
      of_a == of_b, "Common dimension sizes of matmul inputs should be the same. Got ", of_a,
      " and ", of_b);
  const int64_t batch = std::min(a.dim(), b.dim()) - 2;
  for (int64_t i = 0; i < batch; ++i) {  // numbered as in the operand with fewer dimensions
    const c10::SymInt in_a = a.sym_size(a.dim() - 2 - batch + i);
    const c10::SymInt in_b = b.sym_size(b.dim() - 2 - batch + i);
    TORCH_CHECK(
        in_a == in_b || in_a == 1 || in_b == 1, "Batch dimension ", i,
        " of matmul inputs should be the same or at least one of them should be equal to 1. Got ",
        in_a, " and ", in_b);
  }
}

/// Returns an operand in float32, with its last two dimensions swapped if `transposed`.
at::Tensor operand(const at::Tensor& tensor, bool transposed) {
  const at::Tensor wide = widened(tensor, ScalarType::Float);
  return transposed && wide.dim() > 1 ? wide.transpose(-2, -1) : wide;
}

/// Returns whether the scales contain a factor for each block of their operands. Such scales have
/// the shapes [block rows, k] and [k, block columns], where k is the number of blocks in the summed
/// dimension.
bool are_of_blocks(const Scale& of_a, const Scale& of_b, const at::Tensor& b) {
  if (!of_a || !of_b || of_a->dim() < 2 || of_b->dim() < 2) {
    return false;
  }
  const c10::SymInt common = of_a->sym_size(-1), columns = of_b->sym_size(-1);
  return common == of_b->sym_size(-2) &&
      (common != 1 || (columns != 1 && columns != b.sym_size(-1)));
}

/// Returns the size of each of `count` equal blocks, or -1 if `size` is not divisible by `count`.
c10::SymInt size_of_blocks(const c10::SymInt& size, const c10::SymInt& count) {
  if (count == 0) {
    return size == 0 ? 1 : -1;
  }
  return size % count == 0 ? size / count : -1;
}

/// Multiplies each block of an operand by its factor in `scale`.
at::Tensor scaled_in_blocks(const at::Tensor& operand, const at::Tensor& scale) {
  const c10::SymInt rows = scale.sym_size(-2), columns = scale.sym_size(-1);
  const c10::SymInt height = size_of_blocks(operand.sym_size(-2), rows);
  const c10::SymInt width = size_of_blocks(operand.sym_size(-1), columns);
  TORCH_CHECK(
      height >= 0 && width >= 0, "A scale of shape ", scale.sym_sizes(),
      " does not divide an operand of shape ", operand.sym_sizes(), " into equal blocks.");
  const at::Tensor factor = scale.to(ScalarType::Float).unsqueeze(-2).unsqueeze(-1);
  return (in_blocks(operand, {rows, height, columns, width}) * factor)
      .reshape_symint(operand.sym_sizes());
}

/// Adds a term if it is defined.
at::Tensor plus(const at::Tensor& product, const Scale& term) {
  return is_defined(term) ? product + *term : product;
}

/// Checks that the scales, bias and accumulation tensor broadcast to the product's shape.
at::Tensor kept_shape(const at::Tensor& product, const at::Tensor& result) {
  TORCH_CHECK(
      result.sym_sizes() == product.sym_sizes(),
      "Scales, bias and accumulation tensor must broadcast to the product of shape ",
      product.sym_sizes(), ", but result in ", result.sym_sizes(), ".");
  return result;
}

at::Tensor fp8_gemm_v2(
    const at::Tensor& A, bool trans_A, const at::Tensor& B, bool trans_B,
    const OptionalTensor& D, ScalarType out_dtype, const Scale& A_scale_inv,
    const Scale& B_scale_inv, const OptionalTensor& bias, bool accumulate,
    ScaleShape B_scale_shape) {
  check_formats("Fp8GemmV2", A, B);
  check_out_dtype("Fp8GemmV2", out_dtype);
  TORCH_CHECK(
      !accumulate || is_defined(D),
      "Accumulation tensor must be provided at index 4 for Fp8GemmV2, when accumulate is true");
  if (out_dtype == ScalarType::BFloat16 && !accumulate) {
    const auto product =
        matmul_in_bfloat16(A, trans_A, B, trans_B, A_scale_inv, B_scale_inv, bias);
    if (product) {
      return *product;
    }
  }
  const at::Tensor a = operand(A, trans_A);
  const at::Tensor b = operand(B, trans_B);
  check_shapes(a, b);
  const bool of_blocks = !B_scale_shape && are_of_blocks(A_scale_inv, B_scale_inv, b);
  const at::Tensor product = of_blocks
      ? at::matmul(scaled_in_blocks(a, *A_scale_inv), scaled_in_blocks(b, *B_scale_inv))
      : at::matmul(a, b);
  at::Tensor result =
      of_blocks ? product : scaled(scaled(product, A_scale_inv), B_scale_inv, B_scale_shape);
  result = plus(plus(result, bias), accumulate ? D : std::nullopt);
  return kept_shape(product, result).to(out_dtype);
}

void check_out(const at::Tensor& out, const at::Tensor& result) {
  TORCH_CHECK(
      out.scalar_type() == result.scalar_type(), "Fp8Gemm out must have out_dtype ",
      toString(result.scalar_type()), ", but got ", toString(out.scalar_type()), ".");
  TORCH_CHECK(
      out.sym_sizes() == result.sym_sizes(), "Fp8Gemm out must have the product's shape ",
      result.sym_sizes(), ", but got ", out.sym_sizes(), ".");
}

at::Tensor fp8_gemm(
    const at::Tensor& A, bool trans_A, const at::Tensor& B, bool trans_B, const at::Tensor& D,
    ScalarType out_dtype, const Scale& A_scale_inv, const Scale& B_scale_inv,
    const OptionalTensor& bias, bool accumulate, at::Tensor out) {
  const at::Tensor result = fp8_gemm_v2(
      A, trans_A, B, trans_B, D, out_dtype, A_scale_inv, B_scale_inv, bias, accumulate,
      std::nullopt);
  check_out(out, result);
  return out.copy_(result);
}

at::Tensor traced_fp8_gemm(
    const at::Tensor& A, bool trans_A, const at::Tensor& B, bool trans_B, const at::Tensor& D,
    ScalarType out_dtype, const Scale& A_scale_inv, const Scale& B_scale_inv,
    const OptionalTensor& bias, bool accumulate, at::Tensor out) {
  static const auto gemm = vendor_operator<decltype(fp8_gemm_v2)>("fp8_gemm_v2");
  const at::Tensor result = gemm.call(
      A, trans_A, B, trans_B, D, out_dtype, A_scale_inv, B_scale_inv, bias, accumulate,
      std::nullopt);
  check_out(out, result);
  return written(out, result);
}

at::Tensor conv2d_fp8(
    const at::Tensor& input, const at::Tensor& weight, const OptionalTensor& bias,
    c10::SymIntArrayRef stride, c10::SymIntArrayRef padding, c10::SymIntArrayRef dilation,
    int64_t groups, std::optional<ScalarType> out_dtype, const Scale& scale_input,
    const Scale& scale_weight) {
  const bool has_bias = is_defined(bias);
  const ScalarType dtype = out_dtype.value_or(ScalarType::BFloat16);
  check_formats("Conv2dFp8", input, weight);
  check_out_dtype("Conv2dFp8", dtype);
  TORCH_CHECK(input.dim() == 4 && weight.dim() == 4, "Input and weight must be 4D tensors");
  TORCH_CHECK(
      !has_bias || (bias->dim() == 1 && bias->sym_size(0) == weight.sym_size(0)),
      "Bias must be 1D tensor with size equal to weight dim0");
  for (const Scale* scale : {&scale_input, &scale_weight}) {
    TORCH_CHECK(
        !is_defined(*scale) || (*scale)->sym_numel() == 1,
        "Multi-element scale tensors are not supported yet.");
  }
  at::Tensor result = at::conv2d_symint(
      widened(input, ScalarType::Float), widened(weight, ScalarType::Float), {}, stride, padding,
      dilation, groups);
  result = scaled(scaled(result, scale_input), scale_weight);
  return (has_bias ? result + bias->reshape({-1, 1, 1}) : result).to(dtype);
}

at::Tensor sum_fp8(
    const at::Tensor& self, at::OptionalIntArrayRef dim, bool keepdim,
    std::optional<ScalarType> out_dtype) {
  TORCH_CHECK(
      is_fp8(self.scalar_type()),
      "SumFp8 input must be of float8_e5m2 or float8_e4m3fn dtype, but got ",
      toString(self.scalar_type()), ".");
  const ScalarType dtype = out_dtype.value_or(self.scalar_type());
  TORCH_CHECK(
      at::isFloatingType(dtype), "SumFp8 out_dtype must be a floating-point dtype, but got ",
      toString(dtype), ".");
  return narrow(at::sum(widened(self, ScalarType::Float), dim, keepdim), dtype);
}

/// Checks the tensor that `softmax_fp8` adds to its input, which may broadcast along the middle
/// dimensions.
void check_fused_add(const at::Tensor& input, const at::Tensor& add) {
  TORCH_CHECK(
      add.scalar_type() == ScalarType::BFloat16, "Input fused_add must be of dtype: BFloat16");
  TORCH_CHECK(
      add.dim() == input.dim(), "FusedAdd tensor must have the same rank as the input tensor");
  const int64_t last = input.dim() - 1;
  TORCH_CHECK(
      add.sym_size(0) == input.sym_size(0) && add.sym_size(last) == input.sym_size(last),
      "FusedAdd tensor must have the same first and last dim as the input tensor");
  for (int64_t i = 1; i < last; ++i) {
    TORCH_CHECK(
        add.sym_size(i) == 1 || add.sym_size(i) == input.sym_size(i),
        "FusedAdd tensor's dim other than first and last should be equal to 1 or the same as the "
        "input tensor");
  }
}

at::Tensor softmax_fp8(
    const at::Tensor& input, int64_t dim, const Scale& input_scale, const Scale& output_scale,
    const Scale& inv_attn_heads, const OptionalTensor& fused_add) {
  const ScalarType input_type = input.scalar_type();
  const bool scaled_input = is_defined(input_scale);
  const bool scaled_output = is_defined(output_scale);
  TORCH_CHECK(
      input_type == ScalarType::BFloat16 || input_type == kE4M3,
      "Input tensor must be of torch.bfloat16 or torch.float8_e4m3fn dtype.");
  TORCH_CHECK(
      input.dim() > 0 && (dim == -1 || dim == input.dim() - 1),
      "SoftmaxFp8 supports only the last dimension of its input, but dim is ", dim, " for ", input.dim(),
      " dimensions.");
  TORCH_CHECK(
      scaled_input == scaled_output, "Output and input scales must be both given or None");
  TORCH_CHECK(
      input_type != kE4M3 || scaled_input,
      "If Input is of torch.float8_e4m3fn dtype then input scale must be given.");
  for (const Scale* scale : {&input_scale, &output_scale}) {
    TORCH_CHECK(
        !scaled_input || (*scale)->scalar_type() == ScalarType::Float,
        scale == &input_scale ? "Input" : "Output", " scale must be of dtype: Float");
  }
  at::Tensor scores =
      scaled(scaled(widened(input, ScalarType::Float), inv_attn_heads), input_scale);
  if (is_defined(fused_add)) {
    TORCH_CHECK(
        scaled_input,
        "FusedAdd available only for Float8 output, but input scale is not given.");
    check_fused_add(input, *fused_add);
    scores = scores + *fused_add;
  }
  const at::Tensor result = at::softmax(scores, -1).to(ScalarType::BFloat16);
  return scaled_output ? to_fp8(scaled(result, output_scale), kE4M3) : result;
}

const Operators products([](Operators& define) {
  define(
      "fp8_gemm(Tensor A, bool trans_A, Tensor B, bool trans_B, Tensor D, ScalarType out_dtype, "
      "Tensor? A_scale_inv, Tensor? B_scale_inv, Tensor? bias, bool accumulate, Tensor(a!) out) "
      "-> Tensor(a!)",
      &fp8_gemm);
  define.compiled_as("fp8_gemm", &traced_fp8_gemm);
  const std::string operands =
      "(Tensor A, bool trans_A, Tensor B, bool trans_B, Tensor? D, ScalarType out_dtype, ";
  const std::string options =
      "Tensor? bias=None, bool accumulate=False, int[]? B_scale_shape=None) -> Tensor";
  define(
      "fp8_gemm_v2" + operands + "Tensor? A_scale_inv=None, Tensor? B_scale_inv=None, " + options,
      &fp8_gemm_v2);
  define.with_numbers(
      "fp8_gemm_v2.scalar" + operands + "float A_scale_inv, float B_scale_inv, " + options,
      "fp8_gemm_v2");
  define.with_numbers(
      "fp8_gemm_v2.scalar_list" + operands + "float[] A_scale_inv, float[] B_scale_inv, " + options,
      "fp8_gemm_v2");
  const std::string convolution =
      "(Tensor input, Tensor weight, Tensor? bias=None, SymInt[2] stride=1, SymInt[2] padding=0, "
      "SymInt[2] dilation=1, int groups=1, ScalarType? out_dtype=None, ";
  define(
      "conv2d_fp8" + convolution + "Tensor? scale_input=None, Tensor? scale_weight=None) -> Tensor",
      &conv2d_fp8);
  define.with_numbers(
      "conv2d_fp8.scalar" + convolution +
          "float scale_input=1.0, float scale_weight=1.0) -> Tensor",
      "conv2d_fp8");
  define(
      "sum_fp8(Tensor self, int[1]? dim=None, bool keepdim=False, ScalarType? out_dtype=None) "
      "-> Tensor",
      &sum_fp8);
  define(
      "softmax_fp8(Tensor input, int dim, Tensor? input_scale=None, Tensor? output_scale=None, "
      "Tensor? inv_attn_heads=None, Tensor? fused_add=None) -> Tensor",
      &softmax_fp8);
  define.with_numbers(
      "softmax_fp8.Scalar(Tensor input, int dim, float input_scale, float output_scale, "
      "float inv_attn_heads, Tensor? fused_add=None) -> Tensor",
      "softmax_fp8");
  define.with_numbers(
      "softmax_fp8.Scalar_scales(Tensor input, int dim, float input_scale, float output_scale, "
      "Tensor? inv_attn_heads=None, Tensor? fused_add=None) -> Tensor",
      "softmax_fp8");
});

}  // namespace
}  // namespace hpu::custom
