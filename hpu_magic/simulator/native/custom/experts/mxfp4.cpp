#include "custom/experts/mxfp4.h"

#include <array>

namespace hpu::custom {
namespace {

/// The values of the 4-bit numbers: a sign, two bits of exponent and one bit of mantissa.
constexpr std::array<float, 16> kFp4{0.0F,  0.5F,  1.0F,  1.5F,  2.0F,  3.0F,  4.0F,  6.0F,
                                     -0.0F, -0.5F, -1.0F, -1.5F, -2.0F, -3.0F, -4.0F, -6.0F};
constexpr int64_t kExponentBias = 127;

}  // namespace

void check_mxfp4(const at::Tensor& packed, const at::Tensor& scales, int64_t block_size) {
  TORCH_CHECK(
      packed.dim() == 2 && packed.scalar_type() == ScalarType::Byte &&
          scales.dim() == 2 && scales.scalar_type() == ScalarType::Byte,
      "MXFP4 weights and scales must be 2D tensors of uint8, but got ", packed.dim(), "D of ",
      toString(packed.scalar_type()), " and ", scales.dim(), "D of ",
      toString(scales.scalar_type()), ".");
  TORCH_CHECK(
      block_size > 0 && scales.sym_size(0) == packed.sym_size(0) &&
          scales.sym_size(1) * block_size == packed.sym_size(1) * 2,
      "MXFP4 weights of shape ", packed.sym_sizes(), " need a scale for each ", block_size,
      " numbers of a row, but got scales of shape ", scales.sym_sizes(), ".");
}

at::Tensor from_mxfp4(const at::Tensor& packed, const at::Tensor& scales, int64_t block_size) {
  const at::Tensor bytes = packed.to(ScalarType::Long);
  const at::Tensor codes =
      at::stack({bytes.bitwise_and(15), bytes.bitwise_right_shift(4)}, -1).flatten(-2);
  const at::Tensor table = at::empty({16}, packed.options().dtype(ScalarType::Float));
  std::copy(kFp4.begin(), kFp4.end(), table.data_ptr<float>());
  const at::Tensor values = table.index({codes});
  const at::Tensor factors = at::exp2(scales.to(ScalarType::Float) - kExponentBias);
  return values * factors.repeat_interleave(block_size, 1);
}

}  // namespace hpu::custom
