#include "custom/define.h"

#include "calls/tensors_of.h"

#include <ATen/FunctionalTensorWrapper.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <torch/csrc/jit/frontend/function_schema_parser.h>

#include <map>

namespace hpu::custom {
at::Tensor written(const at::Tensor& traced, const at::Tensor& value) {
  namespace functional = at::functionalization::impl;
  functional::sync(value);
  functional::replace_(traced, functional::from_functional_tensor(value));
  functional::commit_update(traced);
  functional::sync(traced);
  return traced;
}

void run_tracking_writes(
    const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
  const auto& declared = op.schema().arguments();
  const size_t first = stack->size() - declared.size();
  std::vector<at::Tensor> written;
  for (size_t i = 0; i < declared.size(); ++i) {
    if (is_written(declared[i])) {
      for_each_tensor((*stack)[first + i], [&written](const at::Tensor& tensor) {
        written.push_back(tensor);
      });
    }
  }
  {
    const at::AutoDispatchBelowADInplaceOrView below;
    op.redispatchBoxed(keys & c10::after_ADInplaceOrView_keyset, stack);
  }
  for (const at::Tensor& tensor : written) {
    if (tensor.defined() && !tensor.is_inference()) {
      tensor.unsafeGetTensorImpl()->bump_version();
    }
  }
}

void Operators::track_writes(const std::string& schema) {
  const c10::FunctionSchema parsed = torch::jit::parseSchema(schema);
  if (parsed.is_mutable()) {
    const std::string name = schema.substr(0, schema.find('('));
    library("hpu").impl(
        name.c_str(),
        torch::dispatch(
            c10::DispatchKey::ADInplaceOrView,
            torch::CppFunction::makeFromBoxedFunction<&run_tracking_writes>()));
  }
}

void Operators::define_of_mode(bool lazy) {
  for (const auto& definition : of_mode(lazy)) {
    definition();
  }
  of_mode(lazy).clear();
}

std::vector<std::function<void()>>& Operators::of_mode(bool lazy) {
  static auto* definitions = new std::vector<std::function<void()>>[2];
  return definitions[lazy];
}

// Leaked, because a destroyed library unregisters its operators.
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
