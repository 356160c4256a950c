#include "collectives/checks.h"

#include <c10/util/Exception.h>

namespace hpu::collectives {

const at::Tensor& only(const std::vector<at::Tensor>& tensors, const char* name) {
  TORCH_CHECK(
      tensors.size() == 1, "hccl's ", name, " needs one tensor on the rank's card, but got ",
      tensors.size(), ".");
  return tensors[0];
}

const std::vector<at::Tensor>& only(
    const std::vector<std::vector<at::Tensor>>& lists, int size, const char* name) {
  TORCH_CHECK(
      lists.size() == 1 && lists[0].size() == static_cast<size_t>(size), "hccl's ", name,
      " needs one list with a tensor for each of the ", size, " ranks.");
  return lists[0];
}

void check_same_size(const at::Tensor& one, const at::Tensor& other, const char* name) {
  TORCH_CHECK(
      one.scalar_type() == other.scalar_type() && one.numel() == other.numel(), "hccl's ", name,
      " needs tensors of one type and size, but got ", one.scalar_type(), " of ", one.sizes(),
      " and ", other.scalar_type(), " of ", other.sizes(), ".");
}

void check_parts(const at::Tensor& whole, const at::Tensor& part, int size, const char* name) {
  TORCH_CHECK(
      whole.scalar_type() == part.scalar_type() && whole.numel() == part.numel() * size,
      "hccl's ", name, " needs two tensors of one type, the larger with the elements of all ",
      size, " ranks, but got ", whole.scalar_type(), " of ", whole.sizes(), " and ",
      part.scalar_type(), " of ", part.sizes(), ".");
}

Subject like(const at::Tensor& tensor, int64_t root) {
  return {tensor.numel(), tensor.scalar_type(), static_cast<int>(root)};
}

Subject like(const std::vector<at::Tensor>& tensors) {
  Subject subject{0};
  for (const at::Tensor& tensor : tensors) {
    subject.elements += tensor.numel();
    subject.dtype = tensor.scalar_type();
  }
  return subject;
}

}  // namespace hpu::collectives
