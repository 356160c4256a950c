// Types that the card's generation does not support.
#pragma once

#include <c10/core/ScalarType.h>

#include <cstdint>
#include <map>
#include <string>

namespace hpu::unsupported_types {

/// Sets the unsupported types, by PyTorch's names, and the error message of each. Must be called
/// before the first tensor is created.
void set(const std::map<std::string, std::string>& texts);

static_assert(static_cast<unsigned>(c10::ScalarType::NumOptions) <= 64);
extern uint64_t unsupported;  // one bit per type
[[noreturn]] void refuse(c10::ScalarType type);

/// Raises an error for an unsupported type.
inline void check(c10::ScalarType type) {
  if (unsupported & (uint64_t{1} << static_cast<unsigned>(type))) {
    refuse(type);
  }
}

}  // namespace hpu::unsupported_types
