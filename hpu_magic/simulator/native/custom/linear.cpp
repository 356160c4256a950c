// The bridge's own linear and matmul operators, which exist only if a flag is set when the engine
// is loaded. Models call PyTorch's operators regardless of the flag, and the results are the same.
#include "custom/define.h"

#include <array>
#include <cstdlib>

namespace hpu::custom {
namespace {

bool is_enabled() {
  const char* flag = std::getenv("PT_HPU_OVERRIDE_LINEAR_MATMUL_EAGER");
  return flag != nullptr && (std::string(flag) == "1" || std::string(flag) == "true");
}

at::Tensor linear(
    const at::Tensor& input, const at::Tensor& weight, const OptionalTensor& bias) {
  return at::linear(input, weight, bias);
}

ThreeTensors linear_backward(
    const at::Tensor& self, const at::Tensor& grad_output, const at::Tensor& weight,
    std::array<bool, 3> output_mask) {
  TORCH_CHECK(
      self.dim() > 0 && grad_output.dim() == self.dim() && weight.dim() == 2,
      "linear_backward requires an input and a gradient of equal dimensions and a 2D weight, but "
      "got ", self.dim(), ", ", grad_output.dim(), " and ", weight.dim(), ".");
  const at::Tensor rows = grad_output.reshape_symint({-1, grad_output.sym_size(-1)});
  ThreeTensors grads;
  if (output_mask[0]) {
    std::get<0>(grads) = at::matmul(grad_output, weight);
  }
  if (output_mask[1]) {
    std::get<1>(grads) = at::mm(rows.t(), self.reshape_symint({-1, self.sym_size(-1)}));
  }
  if (output_mask[2]) {
    std::get<2>(grads) = rows.sum(0);
  }
  return grads;
}

at::Tensor matmul(const at::Tensor& self, const at::Tensor& other) {
  return at::matmul(self, other);
}

/// Treats a vector on the left as a matrix with one row, and a vector on the right as a matrix with
/// one column.
TwoTensors matmul_bwd(
    const at::Tensor& grad_out, const at::Tensor& self, const at::Tensor& other) {
  TORCH_CHECK(
      self.dim() > 0 && other.dim() > 0, "matmul_bwd requires operands of at least one dimension, "
      "but got ", self.dim(), " and ", other.dim(), ".");
  const at::Tensor left = self.dim() == 1 ? self.unsqueeze(0) : self;
  const at::Tensor right = other.dim() == 1 ? other.unsqueeze(1) : other;
  at::Tensor grad = other.dim() == 1 ? grad_out.unsqueeze(-1) : grad_out;
  grad = self.dim() == 1 ? grad.unsqueeze(-2) : grad;
  return {
      at::matmul(grad, right.transpose(-2, -1))
          .sum_to_size_symint(left.sym_sizes())
          .reshape_symint(self.sym_sizes()),
      at::matmul(left.transpose(-2, -1), grad)
          .sum_to_size_symint(right.sym_sizes())
          .reshape_symint(other.sym_sizes())};
}

const Operators linears([](Operators& define) {
  if (!is_enabled()) {
    return;
  }
  define.in_eager_mode("linear(Tensor input, Tensor weight, Tensor? bias=None) -> Tensor", &linear);
  define.in_eager_mode(
      "linear_backward(Tensor self, Tensor grad_output, Tensor weight, bool[3] output_mask) -> "
      "(Tensor, Tensor, Tensor)",
      &linear_backward);
  define.in_eager_mode("matmul(Tensor self, Tensor other) -> Tensor", &matmul);
  define.in_eager_mode(
      "matmul_bwd(Tensor grad_out, Tensor self, Tensor other) -> (Tensor, Tensor)", &matmul_bwd);
});

}  // namespace
}  // namespace hpu::custom
