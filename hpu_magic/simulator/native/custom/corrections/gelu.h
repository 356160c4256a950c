// PT_HPU_FORCE_TANH_FOR_GELU: whether the device uses the tanh approximation of GELU.
#pragma once

#include <strings.h>

#include <cstdlib>
#include <cstring>

namespace hpu::custom {

constexpr const char* kForceTanh = "PT_HPU_FORCE_TANH_FOR_GELU";

/// Returns whether PT_HPU_FORCE_TANH_FOR_GELU is set to true.
inline bool tanh_gelu_is_set() {
  const char* setting = std::getenv(kForceTanh);
  return setting && std::strcmp(setting, "0") != 0 && strcasecmp(setting, "false") != 0;
}

/// Returns whether torch's GELU uses the tanh approximation, which is the default.
inline bool replaces_gelu_by_tanh() {
  return !std::getenv(kForceTanh) || tanh_gelu_is_set();
}

}  // namespace hpu::custom
