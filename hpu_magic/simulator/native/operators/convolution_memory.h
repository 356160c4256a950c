// Memory that convolutions need on the card. The copies that CPU kernels create when they reorder
// tensors into blocks of sixteen channels are not included.
#pragma once

#include "memory/card.h"
#include "operators/kernel.h"

#include <ATen/Operators.h>

#include <algorithm>
#include <array>
#include <tuple>
#include <utility>

namespace hpu {

/// Returns the number of elements in a convolution's output, or 0 if the arguments are invalid (the
/// kernel reports the error).
inline int64_t convolved_elements(
    const at::Tensor& input, const at::Tensor& weight, c10::SymIntArrayRef stride,
    c10::SymIntArrayRef padding, c10::SymIntArrayRef dilation, bool transposed,
    c10::SymIntArrayRef output_padding, const c10::SymInt& groups) {
  if (input.dim() != weight.dim() || input.dim() < 2) {
    return 0;
  }
  const auto of = [](c10::SymIntArrayRef list, size_t i) {
    return list.empty() ? 0 : list[list.size() == 1 ? 0 : i].expect_int();
  };
  int64_t elements =
      input.size(0) * (transposed ? weight.size(1) * groups.expect_int() : weight.size(0));
  for (int64_t dim = 2; dim < weight.dim(); ++dim) {
    const auto i = static_cast<size_t>(dim - 2);
    const int64_t step = std::max<int64_t>(of(stride, i), 1);
    const int64_t reach = of(dilation, i) * (weight.size(dim) - 1);
    const int64_t length = transposed
        ? (input.size(dim) - 1) * step - 2 * of(padding, i) + reach + of(output_padding, i) + 1
        : (input.size(dim) + 2 * of(padding, i) - reach - 1) / step + 1;
    elements *= std::max<int64_t>(length, 0);
  }
  return elements;
}

template <>
struct MemoryOf<at::_ops::convolution> {
  MemoryOf(
      const at::Tensor& input, const at::Tensor& weight, const std::optional<at::Tensor>& /*bias*/,
      c10::SymIntArrayRef stride, c10::SymIntArrayRef padding, c10::SymIntArrayRef dilation,
      bool transposed, c10::SymIntArrayRef output_padding, const c10::SymInt& groups) {
    const int64_t elements = convolved_elements(
        input, weight, stride, padding, dilation, transposed, output_padding, groups);
    card::check_room(static_cast<size_t>(elements) * input.element_size());
  }

  const CachedMemory kept;
};

template <>
struct MemoryOf<at::_ops::convolution_backward> {
  template <class... Others>
  MemoryOf(
      const at::Tensor& /*grad_output*/, const at::Tensor& input, const at::Tensor& weight,
      const Others&... others) {
    const std::array<bool, 3>& wanted = std::get<sizeof...(Others) - 1>(std::tie(others...));
    int64_t unreserved = 0;
    for (const auto& [tensor, index] : {std::pair(&input, 0), std::pair(&weight, 1)}) {
      if (wanted[static_cast<size_t>(index)]) {
        card::check_room(tensor->nbytes(), unreserved);
        unreserved += static_cast<int64_t>(tensor->nbytes());
      }
    }
  }

  const CachedMemory kept;
};

}  // namespace hpu
