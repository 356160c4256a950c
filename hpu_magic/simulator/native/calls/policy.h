// The operators for which the vendor's bridge has a kernel; the others run on the CPU.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>

#include <cstdint>
#include <string>
#include <vector>

namespace hpu::policy {

/// `operators` are the operators that have a device kernel, for example "add.Tensor".
/// `place_on_cpu` is the value of PT_HPU_PLACE_ON_CPU. If `place_on_cpu` is empty, all other
/// operators may fall back to the CPU. "none" forbids all fallbacks, and a list of names allows
/// fallbacks of only those operators.
void set(const std::vector<std::string>& operators, const std::string& place_on_cpu);

bool falls_back(const c10::OperatorHandle& op);

/// Counts a fallback to the CPU, or raises the vendor's error if this operator must not fall back.
void check_fallback(const c10::OperatorHandle& op);

/// Returns how many fallbacks this thread has counted.
uint64_t fallbacks_of_thread();

}  // namespace hpu::policy
