// Root mean square normalization in float32. The fast variants compute the same results, because
// the vendor's approximations are not published.
#include "custom/define.h"

#include <numeric>

namespace hpu::custom {
namespace {

bool is_normalized(ScalarType dtype) {
  return dtype == ScalarType::Float || dtype == ScalarType::BFloat16 || dtype == ScalarType::Half;
}

void check_rms_norm(const at::Tensor& data_in, const at::Tensor& gamma) {
  for (const at::Tensor* tensor : {&data_in, &gamma}) {
    TORCH_CHECK(
        is_normalized(tensor->scalar_type()),
        "RmsNorm inputs must be of float, bfloat16 or half dtype, but got ",
        toString(tensor->scalar_type()), ".");
  }
  TORCH_CHECK(
      data_in.dim() > 0 && gamma.dim() == 1 && gamma.sym_size(0) == data_in.sym_size(-1),
      "RmsNorm gamma must be 1D with the size of the last dimension of its input, but got "
      "shapes ", gamma.sym_sizes(), " and ", data_in.sym_sizes(), ".");
}

TwoTensors rms_norm(
    const at::Tensor& data_in, const at::Tensor& gamma, double epsilon) {
  check_rms_norm(data_in, gamma);
  const bool same = data_in.scalar_type() == gamma.scalar_type();
  const ScalarType dtype = same ? gamma.scalar_type() : ScalarType::Float;
  const at::Tensor data = data_in.to(ScalarType::Float);
  const at::Tensor inverse_rms = at::square(data).mean(-1, /*keepdim=*/true).add_(epsilon).rsqrt_();
  return {(data * inverse_rms).mul_(gamma).to(dtype), inverse_rms.to(dtype)};
}

TwoTensors rms_norm_backward(
    const at::Tensor& grad_in, const at::Tensor& data_in, const at::Tensor& gamma,
    const at::Tensor& inverse_rms, bool /*use_stages*/, int64_t /*bwd_mode*/) {
  check_rms_norm(data_in, gamma);
  TORCH_CHECK(
      grad_in.sym_sizes() == data_in.sym_sizes(),
      "RmsNorm gradient must have the shape of the input, ", data_in.sym_sizes(), ", but got ",
      grad_in.sym_sizes(), ".");
  c10::SymDimVector of_rows(data_in.sym_sizes().begin(), data_in.sym_sizes().end());
  of_rows.back() = 1;
  TORCH_CHECK(
      inverse_rms.sym_sizes() == c10::SymIntArrayRef(of_rows),
      "RmsNorm backward needs an inverse_rms of shape ", c10::SymIntArrayRef(of_rows),
      ", but its shape is ", inverse_rms.sym_sizes(), ".");
  ScalarType dtype = gamma.scalar_type();
  for (const at::Tensor* tensor : {&grad_in, &data_in, &inverse_rms}) {
    dtype = tensor->scalar_type() == dtype ? dtype : ScalarType::Float;
  }
  const at::Tensor grad = grad_in.to(ScalarType::Float);
  const at::Tensor normalized = data_in.to(ScalarType::Float) * inverse_rms;
  const at::Tensor weighted = grad * gamma;
  const at::Tensor along = (weighted * normalized).mean(-1, /*keepdim=*/true);
  const at::Tensor of_data = (weighted - normalized * along).mul_(inverse_rms);
  std::vector<int64_t> leading(static_cast<size_t>(data_in.dim() - 1));
  std::iota(leading.begin(), leading.end(), 0);
  const at::Tensor each = grad * normalized;
  const at::Tensor of_gamma = leading.empty() ? each : each.sum(leading);
  return {of_data.to(dtype), of_gamma.to(dtype)};
}

const Operators norms([](Operators& define) {
  const std::string forward = "(Tensor data_in, Tensor gamma, float epsilon) -> (Tensor, Tensor)";
  const std::string backward =
      "(Tensor grad_in, Tensor data_in, Tensor gamma, Tensor inverse_rms, bool use_stages, "
      "int bwd_mode) -> (Tensor, Tensor)";
  define("rms_norm" + forward, &rms_norm);
  define("rms_norm_fast" + forward, &rms_norm);
  define("rms_norm_backward" + backward, &rms_norm_backward);
  define("rms_norm_fast_backward" + backward, &rms_norm_backward);
});

}  // namespace
}  // namespace hpu::custom
