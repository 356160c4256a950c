#include "memory/unsupported_types.h"

#include <c10/util/Exception.h>

namespace hpu::unsupported_types {
namespace {

// Leaked, because tensors may be created until the process ends.
std::map<std::string, std::string>& messages() {
  static auto* const by_type = new std::map<std::string, std::string>;
  return *by_type;
}

}  // namespace

uint64_t unsupported = 0;

void set(const std::map<std::string, std::string>& texts) {
  messages() = texts;
  unsupported = 0;
  for (unsigned type = 0; type < static_cast<unsigned>(c10::ScalarType::NumOptions); ++type) {
    if (texts.count(c10::toString(static_cast<c10::ScalarType>(type))) > 0) {
      unsupported |= uint64_t{1} << type;
    }
  }
}

void refuse(c10::ScalarType type) {
  TORCH_CHECK(false, messages().at(c10::toString(type)));
}

}  // namespace hpu::unsupported_types
