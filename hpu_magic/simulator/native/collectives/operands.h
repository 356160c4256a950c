// Checks the tensors of a collective and provides the memory that the transport reads and writes.
#pragma once

#include "collectives/work.h"

#include <ATen/core/Tensor.h>

#include <utility>
#include <vector>

namespace hpu::collectives {

/// The operands of a collective. Contiguous tensors of a dtype that the transport supports are used
/// directly. As on a card, other tensors are copied on the device before or after the collective.
class Operands {
 public:
  /// Returns a contiguous device tensor with the values of `tensor`, in its own dtype or in
  /// `dtype`.
  at::Tensor read(const at::Tensor& tensor);
  at::Tensor read(const at::Tensor& tensor, c10::ScalarType dtype);

  /// Returns a contiguous device tensor whose values `finish` stores in `tensor`.
  at::Tensor write(const at::Tensor& tensor);
  at::Tensor write(const at::Tensor& tensor, c10::ScalarType dtype);

  /// Like `read`, but `finish` also stores the values of the returned tensor in `tensor`.
  at::Tensor update(const at::Tensor& tensor, c10::ScalarType dtype);

  /// Returns the concatenation of tensors of the same dtype.
  at::Tensor joined(const std::vector<at::Tensor>& tensors);
  /// Makes `finish` split the tensor `joined` into `tensors`.
  void part(const at::Tensor& joined, const std::vector<at::Tensor>& tensors);

  /// Returns temporary memory for the collective. `copied` also copies a tensor's values into it.
  at::Tensor scratch(c10::IntArrayRef sizes, c10::ScalarType dtype);
  at::Tensor copied(const at::Tensor& tensor, c10::ScalarType dtype);

  /// Runs the recorded operations and allocates memory. After this call, tensors are accessed only
  /// through their memory.
  void settle();

  /// Returns whether all tensors have values that a dry run computes.
  bool known() const;

  /// Copies temporary results back to their destination tensors. Can be called on any thread.
  void finish();

 private:
  struct Copy {
    at::Tensor from;
    at::Tensor to;
  };

  at::Tensor keep(at::Tensor tensor);

  std::vector<at::Tensor> kept_;
  std::vector<Copy> copies_;  // contains CPU views after a call to `settle`
};

/// Returns the memory of a contiguous device tensor as a 1D tensor of its elements or its bytes.
at::Tensor numbers(const at::Tensor& tensor);
at::Tensor bytes(const at::Tensor& tensor);
std::vector<at::Tensor> bytes(const std::vector<at::Tensor>& tensors);

/// Returns the only tensor in a list, for collectives that accept one tensor per rank. Raises an
/// error if the list does not contain exactly one tensor.
const at::Tensor& only(const std::vector<at::Tensor>& tensors, const char* name);

/// Returns the only list in `lists`, for collectives that accept one list with a tensor for each
/// rank. Raises an error if there is not exactly one list, or if its length is not `size`.
const std::vector<at::Tensor>& only(
    const std::vector<std::vector<at::Tensor>>& lists, int size, const char* name);

/// Raises an error unless both lists have the same length.
void check_pairs(
    const std::vector<at::Tensor>& outputs, const std::vector<at::Tensor>& inputs,
    const char* name);

/// Raises an error unless both tensors have the same dtype and number of elements.
void check_same_size(const at::Tensor& one, const at::Tensor& other, const char* name);

/// Raises an error unless `whole` has as many elements as the parts of all ranks.
void check_parts(const at::Tensor& whole, const at::Tensor& part, int size, const char* name);

/// Returns the properties that must be the same in the calls of all ranks.
Subject like(const at::Tensor& tensor, int64_t root = -1);
Subject like(const std::vector<at::Tensor>& tensors);

}  // namespace hpu::collectives
