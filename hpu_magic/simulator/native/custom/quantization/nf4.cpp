// NF4 weights of bitsandbytes: 4-bit codes of the quantiles of a normal distribution.
#include "custom/define.h"

#include <array>

namespace hpu::custom {
namespace {

/// The value of each code, from the QLoRA paper (appendix E).
constexpr std::array<float, 16> kNf4{
    -1.0F,
    -0.6961928009986877F,
    -0.5250730514526367F,
    -0.39491748809814453F,
    -0.28444138169288635F,
    -0.18477343022823334F,
    -0.09105003625154495F,
    0.0F,
    0.07958029955625534F,
    0.16093020141124725F,
    0.24611230194568634F,
    0.33791524171829224F,
    0.44070982933044434F,
    0.5626170039176941F,
    0.7229568362236023F,
    1.0F};

/// Returns the weights. Each byte contains two codes; the higher four bits are the first one.
/// `absmax` is the factor of each block of `blocksize` weights.
at::Tensor dequantize_nf4(
    const at::Tensor& input, const at::Tensor& absmax, int64_t blocksize,
    c10::SymIntArrayRef out_shape, ScalarType out_dtype) {
  const c10::SymInt count = c10::multiply_integers(out_shape);
  TORCH_CHECK(
      input.scalar_type() == ScalarType::Byte && input.sym_numel() * 2 >= count,
      "DequantizeNf4 input must contain ", count, " codes in uint8, two per byte, but got ",
      input.sym_numel(), " elements of ", toString(input.scalar_type()), ".");
  TORCH_CHECK(
      blocksize > 0 && absmax.sym_numel() * blocksize >= count, "DequantizeNf4 absmax must have an "
      "element for each ", blocksize, " of ", count, " weights, but got ", absmax.sym_numel(), ".");
  TORCH_CHECK(
      c10::isFloatingType(out_dtype), "DequantizeNf4 out_dtype must be a floating-point dtype, but "
      "got ", toString(out_dtype), ".");
  if (input.is_meta()) {
    return at::empty_symint(out_shape, input.options().dtype(out_dtype));
  }
  const at::Tensor bytes = input.flatten().to(ScalarType::Long);
  const int64_t size = count.guard_int(__FILE__, __LINE__);
  const at::Tensor codes =
      at::stack({bytes.bitwise_right_shift(4), bytes.bitwise_and(15)}, -1).flatten().slice(
          0, 0, size);
  const at::Tensor table = at::empty({16}, input.options().dtype(ScalarType::Float));
  std::copy(kNf4.begin(), kNf4.end(), table.data_ptr<float>());
  const at::Tensor factors =
      absmax.flatten().to(ScalarType::Float).repeat_interleave(blocksize).slice(0, 0, size);
  return (table.index({codes}) * factors).reshape_symint(out_shape).to(out_dtype);
}

const Operators nf4([](Operators& define) {
  define(
      "dequantize_nf4(Tensor input, Tensor absmax, int blocksize, SymInt[] out_shape, "
      "ScalarType out_dtype) -> Tensor",
      &dequantize_nf4);
});

}  // namespace
}  // namespace hpu::custom
