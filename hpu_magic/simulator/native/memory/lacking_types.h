// Types that the card's generation does not have: no tensor of them comes to lie on it.
#pragma once

#include <c10/core/ScalarType.h>

#include <cstdint>
#include <map>
#include <string>

namespace hpu::lacking_types {

/// Sets which types are lacking, by PyTorch's names of them, and what to say of each. Before the
/// first tensor.
void set(const std::map<std::string, std::string>& sentences);

static_assert(static_cast<unsigned>(c10::ScalarType::NumOptions) <= 64);
extern uint64_t lacking;  // a bit for each type
[[noreturn]] void refuse(c10::ScalarType type);

/// Refuses a type that the card lacks.
inline void check(c10::ScalarType type) {
  if (lacking & (uint64_t{1} << static_cast<unsigned>(type))) {
    refuse(type);
  }
}

}  // namespace hpu::lacking_types
