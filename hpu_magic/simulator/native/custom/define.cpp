#include "custom/define.h"

#include <ATen/FunctionalTensorWrapper.h>
#include <ATen/core/LegacyTypeDispatch.h>

#include <map>

namespace hpu::custom {
namespace {

/// Calls an operator's out-of-place form on what functional tensors wrap.
void run_out_of_place(
    const c10::OperatorHandle& op, c10::DispatchKeySet /*keys*/, torch::jit::Stack* stack) {
  namespace functional = at::functionalization::impl;
  const c10::OperatorName& name = op.operator_name();
  const auto out_of_place = c10::Dispatcher::singleton().findSchemaOrThrow(
      name.name.substr(0, name.name.size() - 1).c_str(), name.overload_name.c_str());
  torch::jit::Stack inner = torch::jit::pop(*stack, op.schema().arguments().size());
  const at::Tensor written = inner[0].toTensor();
  for (c10::IValue& value : inner) {
    if (value.isTensor() && functional::isFunctionalTensor(value.toTensor())) {
      functional::sync(value.toTensor());
      value = functional::from_functional_tensor(value.toTensor());
    }
  }
  {
    const at::AutoDispatchSkipFunctionalize below;
    out_of_place.callBoxed(&inner);
  }
  functional::replace_(written, inner[0].toTensor());
  functional::commit_update(written);
  functional::sync(written);
  torch::jit::push(*stack, written);
}

}  // namespace

void Operators::define_of_mode(bool lazy) {
  for (const auto& definition : of_mode(lazy)) {
    definition();
  }
  of_mode(lazy).clear();
}

void Operators::compiled_out_of_place(const std::string& name) {
  of_mode(false).push_back([name] {
    library("hpu").impl(
        name.c_str(), torch::dispatch(
                          c10::DispatchKey::Functionalize,
                          torch::CppFunction::makeFromBoxedFunction<&run_out_of_place>()));
  });
}

std::vector<std::function<void()>>& Operators::of_mode(bool lazy) {
  static auto* definitions = new std::vector<std::function<void()>>[2];
  return definitions[lazy];
}

// Leaked: a library takes its operators with it.
torch::Library& Operators::library(const char* name) {
  static auto* libraries = new std::map<std::string, torch::Library>;
  const auto found = libraries->find(name);
  return found != libraries->end()
      ? found->second
      : libraries
            ->try_emplace(
                name, torch::Library::FRAGMENT, name, std::nullopt, __FILE__, __LINE__)
            .first->second;
}

}  // namespace hpu::custom
