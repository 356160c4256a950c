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

#include <string>

namespace hpu::custom {

/// Runs an operator on the device. The vendor's schemas let some arguments be None that are none
/// of an optional type: those must be given.
inline void run_given(
    const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
  const auto& declared = op.schema().arguments();
  const size_t first = stack->size() - declared.size();
  for (size_t i = 0; i < declared.size(); ++i) {
    TORCH_CHECK(
        !(*stack)[first + i].isNone() || declared[i].type()->kind() == c10::TypeKind::OptionalType,
        op.operator_name().name, " needs its argument '", declared[i].name(), "', but it is None.");
  }
  run_boxed(op, keys, stack);
}

/// Defines operators in a family's file: `const Operators family([](Operators& define) { ... });`.
class Operators {
 public:
  template <class Definitions>
  explicit Operators(const Definitions& definitions)
      : vendors_(torch::Library::FRAGMENT, "hpu", std::nullopt, __FILE__, __LINE__),
        kernels_(torch::Library::FRAGMENT, kHostKernels, std::nullopt, __FILE__, __LINE__) {
    definitions(*this);
  }

  /// `schema` is the vendor's, without namespace: "name.overload(Tensor input, ...) -> Tensor".
  template <class Function>
  void operator()(const std::string& schema, Function* function) {
    const std::string name = schema.substr(0, schema.find('('));
    vendors_.def(torch::schema(schema.c_str()));
    vendors_.impl(name.c_str(), torch::dispatch(c10::DispatchKey::Meta, function));
    vendors_.impl(
        name.c_str(),
        torch::dispatch(
            c10::DispatchKey::HPU, torch::CppFunction::makeFromBoxedFunction<&run_given>()));
    kernels_.def(torch::schema(schema.c_str()));
    kernels_.impl(name.c_str(), torch::dispatch(c10::DispatchKey::CPU, function));
  }

 private:
  torch::Library vendors_;
  torch::Library kernels_;
};

}  // namespace hpu::custom
