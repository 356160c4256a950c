// Definition of the vendor's own operators, `torch.ops.hpu`.
//
// An operator is a function of tensors that are all on the CPU. Run on tensors without memory, the
// same function says what the operator returns: it reads no values to choose a shape, and asks for
// sizes in the form that may be symbols, as torch.compile's are. It does not look at autograd: none
// of these operators has a gradient of its own.
#pragma once

#include "calls/host_kernel.h"
#include "operators/fallback.h"

#include <torch/library.h>

#include <algorithm>
#include <functional>
#include <string>
#include <vector>

namespace hpu::custom {

/// Whether a value is None, or has one among its tensors: Python's None is an undefined tensor where
/// a tensor is declared.
inline bool lacks_tensor(const c10::IValue& value) {
  if (value.isTensorList()) {
    const c10::List<at::Tensor> tensors = value.toTensorList();
    return std::any_of(tensors.begin(), tensors.end(), [](const at::Tensor& tensor) {
      return !tensor.defined();
    });
  }
  return value.isNone() || (value.isTensor() && !value.toTensor().defined());
}

/// Runs an operator on the device, unless an argument is None that may not be.
inline void run_given(
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

/// Runs an operator and has autograd notice what it writes.
void run_noticed(
    const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack);

/// What an operator of the vendor's is called with, for a call past Python.
template <class Signature>
c10::TypedOperatorHandle<Signature> vendors_operator(const char* name, const char* overload = "") {
  return c10::Dispatcher::singleton()
      .findSchemaOrThrow((std::string("hpu::") + name).c_str(), overload)
      .typed<Signature>();
}

/// Gives a tensor that torch.compile traces its next value, and returns it.
at::Tensor written(const at::Tensor& traced, const at::Tensor& value);

/// Defines operators in a family's file: `const Operators family([](Operators& define) { ... });`.
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
            c10::DispatchKey::HPU, torch::CppFunction::makeFromBoxedFunction<&run_given>()));
    notice_writes(schema);
    library(kHostKernels).def(torch::schema(schema.c_str()));
    compute(name, function);
  }

  /// Lets the function compute an operator of PyTorch, "name.overload", in place of the CPU's
  /// kernel.
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

  /// For an operator that only one mode has, or has with this schema.
  template <class Function>
  void in_eager_mode(const std::string& schema, Function* function) {
    of_mode(false).push_back([this, schema, function] { (*this)(schema, function); });
  }
  template <class Function>
  void in_lazy_mode(const std::string& schema, Function* function) {
    of_mode(true).push_back([this, schema, function] { (*this)(schema, function); });
  }

  /// For an operator of eager mode on device tensors themselves.
  template <class Function>
  void on_device(const std::string& schema, Function* function) {
    of_mode(false).push_back([schema, function] {
      const std::string name = schema.substr(0, schema.find('('));
      torch::Library& vendors = library("hpu");
      vendors.def(torch::schema(schema.c_str()));
      for (const auto key : {c10::DispatchKey::HPU, c10::DispatchKey::Meta}) {
        vendors.impl(name.c_str(), torch::dispatch(key, function));
      }
      notice_writes(schema);
    });
  }

  /// Lets torch.compile trace a function in place of an operator that returns what it writes, which
  /// PyTorch does not functionalize. It takes the operator's arguments, calls operators that write
  /// none, and has their results `written`.
  template <class Function>
  void compiled_as(const std::string& name, Function* function) {
    of_mode(false).push_back([name, function] {
      library("hpu").impl(
          name.c_str(), torch::dispatch(c10::DispatchKey::Functionalize, function));
    });
  }

  /// Computes what a library of Python's declares, in a namespace of its own, when it is imported.
  template <class Function>
  void declared_by(const std::string& its_namespace, const std::string& schema, Function* function) {
    const std::string name = schema.substr(0, schema.find('('));
    library(its_namespace.c_str())
        .impl(
            name.c_str(),
            torch::dispatch(
                c10::DispatchKey::HPU, torch::CppFunction::makeFromBoxedFunction<&run_given>()));
    library(kHostKernels).def(torch::schema(schema.c_str()));
    compute(name, function);
  }

  /// Defines what the mode has beside the operators of both.
  static void define_of_mode(bool lazy);

 private:
  template <class Function>
  static void compute(const std::string& name, Function* function) {
    for (const auto key : {c10::DispatchKey::CPU, c10::DispatchKey::Meta}) {
      library(kHostKernels).impl(name.c_str(), torch::dispatch(key, function));
    }
  }

  /// Lets autograd see the writes of an operator that has some.
  static void notice_writes(const std::string& schema);
  static std::vector<std::function<void()>>& of_mode(bool lazy);
  static torch::Library& library(const char* name);
};

}  // namespace hpu::custom
