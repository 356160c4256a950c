// The device tensors of a collective as memory that the transport reads and writes.
#pragma once

#include <ATen/core/Tensor.h>

#include <utility>
#include <vector>

namespace hpu::collectives {

/// Uses contiguous tensors of a type that the transport supports directly. Copies others on the
/// device, before or after the collective, like a card.
class Operands {
 public:
  /// A contiguous device tensor with the values of `tensor`, in its type or `dtype`.
  at::Tensor read(const at::Tensor& tensor);
  at::Tensor read(const at::Tensor& tensor, c10::ScalarType dtype);

  /// A contiguous device tensor whose values are stored in `tensor` at the end.
  at::Tensor write(const at::Tensor& tensor);
  at::Tensor write(const at::Tensor& tensor, c10::ScalarType dtype);

  /// Reads and writes a tensor.
  at::Tensor update(const at::Tensor& tensor, c10::ScalarType dtype);

  /// Concatenates tensors of one type, and splits the result at the end.
  at::Tensor joined(const std::vector<at::Tensor>& tensors);
  void part(const at::Tensor& joined, const std::vector<at::Tensor>& tensors);

  /// Memory that exists as long as the collective.
  at::Tensor scratch(c10::IntArrayRef sizes, c10::ScalarType dtype);
  at::Tensor copied(const at::Tensor& tensor, c10::ScalarType dtype);

  /// Runs recorded operations. After this, only memory is used.
  void settle();

  /// Copies temporary results to their tensors; can be called on any thread.
  void finish();

 private:
  struct Copy {
    at::Tensor from;
    at::Tensor to;
  };

  at::Tensor keep(at::Tensor tensor);

  std::vector<at::Tensor> kept_;
  std::vector<Copy> copies_;  // of CPU views, after `settle`
};

/// The memory of a contiguous device tensor as a vector of numbers, or of bytes.
at::Tensor numbers(const at::Tensor& tensor);
at::Tensor bytes(const at::Tensor& tensor);
std::vector<at::Tensor> bytes(const std::vector<at::Tensor>& tensors);

}  // namespace hpu::collectives
