// A single operator call on device tensors: convert the arguments to CPU tensors, run the CPU
// kernel, and convert the results to device tensors.
#pragma once

#include "calls/geometry.h"
#include "memory/memory.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

#include <optional>
#include <utility>
#include <vector>

namespace hpu {

/// The namespace of kernels that replace an operator's own CPU kernels. As on a card, the vendor's
/// operators have no CPU kernels under their own names, and some of PyTorch's CPU kernels support
/// fewer dtypes than a card.
constexpr const char* kHostKernels = "hpu_host";

/// Returns the operator whose kernels compute `op` on CPU tensors and infer its results: the
/// operator with the same name in `kHostKernels` if there is one, otherwise `op` itself.
const c10::OperatorHandle& host_kernel(const c10::OperatorHandle& op);

class HostCall {
 public:
  /// The arguments are at the top of `stack`, and are replaced by the results.
  HostCall(const c10::OperatorHandle& op, torch::jit::Stack* stack);

  /// Runs the call and creates device tensors for new results.
  void run();

  /// Runs the call and stores new results, in order, in `outputs`, which are pending device tensors.
  /// Arguments that the call writes to keep their sizes and strides, or take those in `resized`,
  /// even if the kernel chooses different ones.
  void run_into(c10::ArrayRef<at::Tensor> outputs, c10::ArrayRef<Resized> resized);

  /// Runs an operator that only uses shapes, such as a view. Does not access memory.
  void run_on_shapes();

 private:
  /// A device tensor in the arguments, and the CPU view that replaces it during the call.
  struct Operand {
    at::Tensor tensor;
    at::Tensor view;
    size_t argument;
    size_t item;  // index in a list of tensors, otherwise 0
    bool written;
  };

  c10::IValue& argument(size_t i);
  bool overwrites(size_t i) const;
  void arguments_to_host();
  void argument_to_host(size_t i);
  at::Tensor tensor_to_host(const at::Tensor& tensor, size_t i, bool written, size_t item = 0);
  void round_numbers();
  void check_supported() const;

  void run_kernel();
  bool multiplies_slowly() const;
  bool keeps_strides_in_float32() const;
  void drop_unwanted(const std::vector<bool>& wanted);
  void redispatch(int64_t widening = 1);
  void run_reduced();
  void run_widened();
  std::optional<c10::ScalarType> widen_dtype_argument();
  void replace(const Operand& operand, const at::Tensor& by);
  void narrow_results(c10::ScalarType target);
  bool is_operand(const at::Tensor& view) const;

  void results_to_device();
  void move_apart();
  at::Tensor with_final_size(const at::Tensor& tensor, size_t argument, size_t item) const;
  void keep_geometry(const Operand& operand) const;
  at::Tensor written_operand(const c10::AliasInfo& alias, const at::Tensor& result) const;
  at::Tensor tensor_to_device(const at::Tensor& result);
  void place_next(const at::Tensor& result);

  const c10::OperatorHandle& op_;
  const c10::OperatorHandle& kernel_;
  const c10::FunctionSchema& schema_;
  torch::jit::Stack* stack_;
  size_t first_;
  bool shapes_only_ = false;
  bool reduced_ = false;
  bool narrow_ = false;  // whether the card stores the elements of an operand at half their size
  bool float64_ = false;  // whether an operand is float64 or complex128
  std::optional<c10::ArrayRef<at::Tensor>> outputs_;  // the outputs to fill
  c10::ArrayRef<Resized> resized_;
  size_t placed_ = 0;  // number of filled outputs
  c10::SmallVector<Operand, 4> operands_;
  std::vector<std::pair<const c10::StorageImpl*, c10::Storage>> shared_;
};

/// Raises the vendor's error unless `tensor` can be mixed with device tensors in an operation.
/// Eager mode allows only device tensors and 0-dim CPU tensors.
void check_operand(const at::Tensor& tensor, size_t index);

/// Returns whether an error reports that the CPU kernel does not support a dtype.
bool lacks_dtype(const c10::Error& error);

/// Returns whether a declared argument is a random generator.
bool is_generator(const c10::Argument& argument);

}  // namespace hpu
