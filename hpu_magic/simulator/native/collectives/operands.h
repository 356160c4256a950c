// The device tensors of a collective as the memory that its transport reads and writes.
#pragma once

#include <ATen/core/Tensor.h>

#include <utility>
#include <vector>

namespace hpu::collectives {

/// Contiguous tensors in a type that the transport takes are used as they are. Others are copied
/// on the device, before it or after, as on a card.
class Operands {
 public:
  /// A contiguous device tensor with the values of `tensor`, in a type of choice.
  at::Tensor read(const at::Tensor& tensor);
  at::Tensor read(const at::Tensor& tensor, c10::ScalarType dtype);

  /// A contiguous device tensor whose values `tensor` has in the end.
  at::Tensor write(const at::Tensor& tensor);
  at::Tensor write(const at::Tensor& tensor, c10::ScalarType dtype);

  /// Both at once.
  at::Tensor update(const at::Tensor& tensor);
  at::Tensor update(const at::Tensor& tensor, c10::ScalarType dtype);

  /// Tensors of one type one behind the other, and the reverse in the end.
  at::Tensor joined(const std::vector<at::Tensor>& tensors);
  void part(const at::Tensor& joined, const std::vector<at::Tensor>& tensors);

  /// Memory for the time of the collective.
  at::Tensor scratch(c10::IntArrayRef sizes, c10::ScalarType dtype);
  at::Tensor copied(const at::Tensor& tensor, c10::ScalarType dtype);

  /// Runs what lazy mode has recorded. From here on only memory is used.
  void settle();

  /// Copies what was written for other tensors to them; on any thread.
  void finish();

 private:
  struct Copy {
    at::Tensor from;
    at::Tensor to;
  };

  at::Tensor keep(at::Tensor tensor);

  std::vector<at::Tensor> kept_;
  std::vector<Copy> copies_;  // of CPU views, once settled
};

/// The memory of a contiguous device tensor as one dimension of numbers, or of bytes.
at::Tensor numbers(const at::Tensor& tensor);
at::Tensor bytes(const at::Tensor& tensor);
std::vector<at::Tensor> bytes(const std::vector<at::Tensor>& tensors);

}  // namespace hpu::collectives
