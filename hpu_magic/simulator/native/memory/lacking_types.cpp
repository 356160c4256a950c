#include "memory/lacking_types.h"

#include <c10/util/Exception.h>

namespace hpu::lacking_types {
namespace {

// Leaked: tensors may be made until the process ends.
std::map<std::string, std::string>& said() {
  static auto* const sentences = new std::map<std::string, std::string>;
  return *sentences;
}

}  // namespace

uint64_t lacking = 0;

void set(const std::map<std::string, std::string>& sentences) {
  said() = sentences;
  lacking = 0;
  for (unsigned type = 0; type < static_cast<unsigned>(c10::ScalarType::NumOptions); ++type) {
    if (sentences.count(c10::toString(static_cast<c10::ScalarType>(type))) > 0) {
      lacking |= uint64_t{1} << type;
    }
  }
}

void refuse(c10::ScalarType type) {
  TORCH_CHECK(false, said().at(c10::toString(type)));
}

}  // namespace hpu::lacking_types
