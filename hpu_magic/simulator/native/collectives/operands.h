// The tensors of a collective: checks, and the memory that the transport reads and writes.
#pragma once

#include "collectives/work.h"

#include <ATen/core/Tensor.h>

#include <utility>
#include <vector>

namespace hpu::collectives {

/// Directly uses contiguous tensors of a type that the transport supports. Copies other tensors on
/// the device, before or after the collective, like a card.
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

  /// Temporary memory for the collective.
  at::Tensor scratch(c10::IntArrayRef sizes, c10::ScalarType dtype);
  at::Tensor copied(const at::Tensor& tensor, c10::ScalarType dtype);

  /// Runs recorded operations and allocates memory. Afterwards, only memory is used.
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

/// The single tensor that a collective gets from each rank.
const at::Tensor& only(const std::vector<at::Tensor>& tensors, const char* name);

/// The single list of a collective, with a tensor for each rank.
const std::vector<at::Tensor>& only(
    const std::vector<std::vector<at::Tensor>>& lists, int size, const char* name);

/// Raises an error unless both lists have the same length.
void check_pairs(
    const std::vector<at::Tensor>& outputs, const std::vector<at::Tensor>& inputs,
    const char* name);

/// Raises an error unless both tensors have the same type and number of elements.
void check_same_size(const at::Tensor& one, const at::Tensor& other, const char* name);

/// Raises an error unless `whole` has as many elements as the parts of all ranks.
void check_parts(const at::Tensor& whole, const at::Tensor& part, int size, const char* name);

/// The properties in which the calls of all ranks must agree.
Subject like(const at::Tensor& tensor, int64_t root = -1);
Subject like(const std::vector<at::Tensor>& tensors);

}  // namespace hpu::collectives
