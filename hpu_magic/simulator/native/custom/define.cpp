#include "custom/define.h"

#include <ATen/FunctionalTensorWrapper.h>

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
