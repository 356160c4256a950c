// Which operators the vendor's bridge has a kernel for; the others run on the CPU there.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>

#include <string>
#include <vector>

namespace hpu::policy {

/// `operators` have a device kernel ("add.Tensor"); `place_on_cpu` is PT_HPU_PLACE_ON_CPU: empty
/// lets every other operator fall back, "none" forbids it, a list allows only its names.
void set(const std::vector<std::string>& operators, const std::string& place_on_cpu);

bool falls_back(const c10::OperatorHandle& op);

/// Counts the fallback; raises the vendor's error where it is forbidden.
void check_fallback(const c10::OperatorHandle& op);

}  // namespace hpu::policy
