// Definition of the vendor's own operators, `torch.ops.hpu`.
//
// An operator is a function of CPU tensors. It is also called with tensors without memory to
// determine its outputs, so it must not read values to choose a shape, and must read sizes as
// symbols for torch.compile. It needs no autograd, because none of these operators has a gradient.
#pragma once

#include "calls/host_kernel.h"
#include "operators/fallback.h"

#include <torch/library.h>

#include <algorithm>
#include <functional>
#include <string>
#include <vector>

namespace hpu::custom {

/// Whether an optional tensor is passed; Python's None arrives as nullopt or as an undefined
/// tensor.
inline bool is_defined(const std::optional<at::Tensor>& tensor) {
  return tensor && tensor->defined();
}

/// Whether a value is None or contains None: an undefined tensor represents Python's None if a
/// tensor is declared.
inline bool lacks_tensor(const c10::IValue& value) {
  if (value.isTensorList()) {
    const c10::List<at::Tensor> tensors = value.toTensorList();
    return std::any_of(tensors.begin(), tensors.end(), [](const at::Tensor& tensor) {
      return !tensor.defined();
    });
  }
  return value.isNone() || (value.isTensor() && !value.toTensor().defined());
}

/// Runs an operator on the device, after checking that required arguments are not None.
inline void run_checked(
    const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
  const auto& declared = op.schema().arguments();
  const size_t first = stack->size() - declared.size();
  for (size_t i = 0; i < declared.size(); ++i) {
    TORCH_CHECK(
        declared[i].type()->kind() == c10::TypeKind::OptionalType ||
            !lacks_tensor((*stack)[first + i]),
        op.operator_name().name, " needs its argument '", declared[i].name(), "', but it is None.");
  }
  run_boxed(op, keys, stack);
}

/// Runs an operator and increments the versions of the tensors that it writes, for autograd.
void run_tracking_writes(
    const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack);

/// A typed handle of one of the vendor's operators, for calls from C++.
template <class Signature>
c10::TypedOperatorHandle<Signature> vendor_operator(const char* name, const char* overload = "") {
  return c10::Dispatcher::singleton()
      .findSchemaOrThrow((std::string("hpu::") + name).c_str(), overload)
      .typed<Signature>();
}

/// Sets the next value of a tensor that torch.compile traces, and returns the tensor.
at::Tensor written(const at::Tensor& traced, const at::Tensor& value);

/// Defines the operators of a family's file: `const Operators family([](Operators& define) { ...
/// });`.
class Operators {
 public:
  template <class Definitions>
  explicit Operators(const Definitions& definitions) {
    definitions(*this);
  }

  /// `schema` is the vendor's, without namespace: "name.overload(Tensor input, ...) -> Tensor".
  template <class Function>
  void operator()(const std::string& schema, Function* function) {
    const std::string name = schema.substr(0, schema.find('('));
    torch::Library& vendors = library("hpu");
    vendors.def(torch::schema(schema.c_str()));
    vendors.impl(name.c_str(), torch::dispatch(c10::DispatchKey::Meta, function));
    vendors.impl(
        name.c_str(),
        torch::dispatch(
            c10::DispatchKey::HPU, torch::CppFunction::makeFromBoxedFunction<&run_checked>()));
    track_writes(schema);
    library(kHostKernels).def(torch::schema(schema.c_str()));
    compute(name, function);
  }

  /// Replaces the CPU kernel of a PyTorch operator, "name.overload", by the function.
  template <class Function>
  void in_place_of(const std::string& name, Function* function) {
    const size_t dot = name.find('.');
    const std::string base = name.substr(0, dot);
    const std::string overload = dot == std::string::npos ? "" : name.substr(dot + 1);
    const auto op = c10::Dispatcher::singleton().findSchemaOrThrow(
        ("aten::" + base).c_str(), overload.c_str());
    library(kHostKernels)
        .def(op.schema().cloneWithName(std::string(kHostKernels) + "::" + base, overload));
    compute(name, function);
  }

  /// Defines an operator that exists only in one mode, or has this schema only there.
  template <class Function>
  void in_eager_mode(const std::string& schema, Function* function) {
    of_mode(false).push_back([this, schema, function] { (*this)(schema, function); });
  }
  template <class Function>
  void in_lazy_mode(const std::string& schema, Function* function) {
    of_mode(true).push_back([this, schema, function] { (*this)(schema, function); });
  }

  /// Defines an operator of eager mode that gets the device tensors themselves.
  template <class Function>
  void on_device(const std::string& schema, Function* function) {
    of_mode(false).push_back([schema, function] {
      const std::string name = schema.substr(0, schema.find('('));
      torch::Library& vendors = library("hpu");
      vendors.def(torch::schema(schema.c_str()));
      for (const auto key : {c10::DispatchKey::HPU, c10::DispatchKey::Meta}) {
        vendors.impl(name.c_str(), torch::dispatch(key, function));
      }
      track_writes(schema);
    });
  }

  /// Makes torch.compile trace a function instead of an operator that returns an argument that it
  /// writes, because PyTorch does not functionalize those. The function has the operator's
  /// arguments, calls operators that write none, and passes their results to `written`.
  template <class Function>
  void compiled_as(const std::string& name, Function* function) {
    of_mode(false).push_back([name, function] {
      library("hpu").impl(
          name.c_str(), torch::dispatch(c10::DispatchKey::Functionalize, function));
    });
  }

  /// Implements an operator that a Python library declares in its own namespace when it is
  /// imported.
  template <class Function>
  void declared_by(
      const std::string& its_namespace, const std::string& schema, Function* function) {
    const std::string name = schema.substr(0, schema.find('('));
    library(its_namespace.c_str())
        .impl(
            name.c_str(),
            torch::dispatch(
                c10::DispatchKey::HPU, torch::CppFunction::makeFromBoxedFunction<&run_checked>()));
    library(kHostKernels).def(torch::schema(schema.c_str()));
    compute(name, function);
  }

  /// Defines the operators that exist only in this mode.
  static void define_of_mode(bool lazy);

 private:
  template <class Function>
  static void compute(const std::string& name, Function* function) {
    for (const auto key : {c10::DispatchKey::CPU, c10::DispatchKey::Meta}) {
      library(kHostKernels).impl(name.c_str(), torch::dispatch(key, function));
    }
  }

  /// Makes autograd see the writes of an operator, if it has any.
  static void track_writes(const std::string& schema);
  static std::vector<std::function<void()>>& of_mode(bool lazy);
  static torch::Library& library(const char* name);
};

}  // namespace hpu::custom
