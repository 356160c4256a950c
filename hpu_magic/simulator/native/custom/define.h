// Defines the vendor's own operators, `torch.ops.hpu`.
//
// An operator is implemented by a function that takes CPU tensors. The function is also called with
// meta tensors to infer its outputs. Therefore, the shapes of its outputs must not depend on
// values, and it must read sizes as symbolic integers to support torch.compile. The operators do
// not need autograd, because none of them is differentiable.
#pragma once

#include "operators/operators.h"

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <torch/library.h>

#include <functional>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

namespace hpu::custom {

using at::ScalarType;
using OptionalTensor = std::optional<at::Tensor>;
using TwoTensors = std::tuple<at::Tensor, at::Tensor>;
using ThreeTensors = std::tuple<at::Tensor, at::Tensor, at::Tensor>;
using FourTensors = std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor>;

/// Returns whether an optional tensor was passed. Python's None is passed as nullopt or as an
/// undefined tensor.
inline bool is_defined(const std::optional<at::Tensor>& tensor) {
  return tensor && tensor->defined();
}

/// The arguments of a call, accessed by name, for functions that implement several overloads.
class Arguments {
 public:
  Arguments(const c10::OperatorHandle& op, const torch::jit::Stack& stack)
      : schema_(op.schema()), values_(torch::jit::last(stack, schema_.arguments().size())) {}

  bool has(const char* name) const {
    return schema_.argumentIndexWithName(name).has_value();
  }
  const c10::IValue& operator[](const char* name) const {
    return values_[static_cast<size_t>(schema_.argumentIndexWithName(name).value())];
  }
  /// Returns a tensor argument, or nullopt if it is None or the overload does not have it.
  OptionalTensor optional(const char* name) const {
    const bool passed = has(name) && (*this)[name].isTensor() && (*this)[name].toTensor().defined();
    return passed ? OptionalTensor((*this)[name].toTensor()) : std::nullopt;
  }

 private:
  const c10::FunctionSchema& schema_;
  const c10::ArrayRef<c10::IValue> values_;
};

/// Returns a typed handle to one of the vendor's operators, for calls from C++.
template <class Signature>
c10::TypedOperatorHandle<Signature> vendor_operator(const char* name, const char* overload = "") {
  return c10::Dispatcher::singleton()
      .findSchemaOrThrow((std::string("hpu::") + name).c_str(), overload)
      .typed<Signature>();
}

/// Returns a float32 tensor that contains the numbers, on the device of `like`.
at::Tensor tensor_of(const at::Tensor& like, at::ArrayRef<double> numbers);

/// Sets the new value of a tensor that torch.compile is tracing, and returns the tensor.
at::Tensor written(const at::Tensor& traced, const at::Tensor& value);

/// Defines a family of operators: `const Operators family([](Operators& define) { ... });`.
class Operators {
 public:
  template <class Definitions>
  explicit Operators(const Definitions& definitions) {
    definitions(*this);
  }

  /// `schema` is the vendor's schema without the namespace, for example
  /// "name.overload(Tensor input, ...) -> Tensor".
  template <class Function>
  void operator()(const std::string& schema, Function* function) {
    add(schema, kernel_of(function));
  }

  /// Defines an operator whose function reads its arguments from a stack.
  template <c10::BoxedKernel::BoxedKernelFunction_withDispatchKeys* function>
  void boxed(const std::string& schema) {
    add(schema, &boxed_kernel<function>);
  }
  template <c10::BoxedKernel::BoxedKernelFunction_withDispatchKeys* function>
  void boxed_in_eager_mode(const std::string& schema) {
    of_mode(false).push_back([schema] { add(schema, &boxed_kernel<function>); });
  }

  /// Defines an overload that takes numbers where the overload `base` ("name.overload") takes
  /// tensors.
  static void with_numbers(const std::string& schema, const std::string& base);

  /// Replaces the CPU kernel of a PyTorch operator, given as "name.overload", with the function.
  template <class Function>
  void in_place_of(const std::string& name, Function* function) {
    replace(name, kernel_of(function));
  }

  /// Defines an operator that exists only in one mode, or that has this schema only in that mode.
  template <class Function>
  void in_eager_mode(const std::string& schema, Function* function) {
    of_mode(false).push_back([schema, function] { add(schema, kernel_of(function)); });
  }
  template <class Function>
  void in_lazy_mode(const std::string& schema, Function* function) {
    of_mode(true).push_back([schema, function] { add(schema, kernel_of(function)); });
  }

  /// Defines an eager-mode operator that receives the device tensors themselves.
  template <class Function>
  void on_device(const std::string& schema, Function* function) {
    of_mode(false).push_back([schema, function] { add_on_device(schema, kernel_of(function)); });
  }

  /// For an operator that writes to an argument and returns it, makes torch.compile trace a
  /// function instead, because PyTorch does not functionalize such operators. The function takes
  /// the operator's arguments, calls operators that do not write to their arguments, and passes
  /// their results to `written`.
  template <class Function>
  void compiled_as(const std::string& name, Function* function) {
    of_mode(false).push_back([name, function] {
      library("hpu").impl(
          name.c_str(), torch::dispatch(c10::DispatchKey::Functionalize, function));
    });
  }

  /// Implements an operator that a Python library declares in its own namespace when the library is
  /// imported. The function reads its arguments from a stack.
  template <c10::BoxedKernel::BoxedKernelFunction_withDispatchKeys* function>
  void declared_by(const std::string& its_namespace, const std::string& schema) {
    add_host_kernel(its_namespace, schema, &boxed_kernel<function>);
  }

  /// Defines the operators that exist only in the given mode.
  static void define_of_mode(bool lazy);

 private:
  /// Creates a kernel. Each registration needs its own kernel.
  using MakeKernel = std::function<torch::CppFunction()>;

  template <class Function>
  static MakeKernel kernel_of(Function* function) {
    return [function] { return torch::CppFunction(function); };
  }

  template <c10::BoxedKernel::BoxedKernelFunction_withDispatchKeys* function>
  static torch::CppFunction boxed_kernel() {
    return torch::CppFunction::makeFromBoxedFunction<function>();
  }

  static void add(const std::string& schema, const MakeKernel& kernel);
  static void add_on_device(const std::string& schema, const MakeKernel& kernel);
  /// Registers the device kernel in the namespace `its_namespace`, and `kernel` in the namespace of
  /// host kernels.
  static void add_host_kernel(
      const std::string& its_namespace, const std::string& schema, const MakeKernel& kernel);
  static void replace(const std::string& name, const MakeKernel& kernel);
  static void compute(const std::string& name, const MakeKernel& kernel);
  /// Makes autograd track the tensors that an operator writes to, if any.
  static void track_writes(const std::string& schema);
  static std::vector<std::function<void()>>& of_mode(bool lazy);
  static torch::Library& library(const std::string& name);
};

}  // namespace hpu::custom
