// One call of an operator on device tensors: arguments to the host, the CPU's kernel, results to
// the device.
#pragma once

#include "calls/geometry.h"
#include "memory/memory.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

#include <optional>
#include <utility>
#include <vector>

namespace hpu {

class HostCall {
 public:
  /// The arguments are the last ones on `stack`, which gets the results in their place.
  HostCall(const c10::OperatorHandle& op, torch::jit::Stack* stack);

  /// Fresh results become new device tensors.
  void run();

  /// Fresh results go into `outputs`, device tensors promised for them, in order. Whatever the
  /// kernel chooses, written arguments get the values at the geometry that was promised: their
  /// own, or that in `resized`.
  void run_into(c10::ArrayRef<at::Tensor> outputs, c10::ArrayRef<Resized> resized);

  /// For operators that look at shapes only, such as views: touches no memory.
  void run_on_shapes();

 private:
  /// A device tensor among the arguments, and the CPU view that stands for it in the call.
  struct Operand {
    at::Tensor tensor;
    at::Tensor view;
    size_t argument;
    size_t item;  // within a list of tensors, else 0
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
  at::Tensor as_promised(const at::Tensor& tensor, size_t argument, size_t item) const;
  void keep_promise(const Operand& operand) const;
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
  bool narrow_ = false;   // whether an operand is of a type that the card keeps in half its size
  bool float64_ = false;  // whether that type is float64
  std::optional<c10::ArrayRef<at::Tensor>> promised_;  // the outputs to fill
  c10::ArrayRef<Resized> resized_;
  size_t placed_ = 0;  // of the promised
  c10::SmallVector<Operand, 4> operands_;
  std::vector<std::pair<const c10::StorageImpl*, c10::Storage>> shared_;
};

/// Raises the vendor's error unless `tensor` may stand beside device tensors: eager mode takes
/// device tensors and 0-dim CPU tensors.
void check_operand(const at::Tensor& tensor, size_t index);

/// Whether an error says that the CPU's kernel lacks a dtype.
bool lacks_dtype(const c10::Error& error);

/// Whether a declared argument takes a random generator.
bool takes_generator(const c10::Argument& argument);

}  // namespace hpu
