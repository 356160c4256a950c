#include "memory/card_types.h"

#include <ATen/Parallel.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/view_as_real.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

namespace hpu::narrow_types {
namespace {

Rules rules;  // set when the engine is loaded, before tensors exist

constexpr int64_t kBlock = 1024;
constexpr int64_t kGrain = 1 << 15;

double nearest(double value) {
  return static_cast<double>(static_cast<float>(value));
}

double towards_zero(double value) {
  const auto rounded = static_cast<float>(value);
  return std::abs(static_cast<double>(rounded)) > std::abs(value)
      ? static_cast<double>(std::nextafter(rounded, 0.0F))
      : static_cast<double>(rounded);
}

int64_t low_bits(int64_t value) {
  return static_cast<int64_t>(static_cast<int32_t>(static_cast<uint32_t>(value)));
}

int64_t low_bits_without_sign(int64_t value) {
  return value == low_bits(value) ? value : value & std::numeric_limits<int32_t>::max();
}

/// Applies a function to each element. Blocks in which no value changes are not written, because
/// most values fit and the memory may be shared.
template <class T, class Function>
void apply_to(T* data, int64_t count, const Function& function) {
  at::parallel_for(0, count, kGrain, [&](int64_t begin, int64_t end) {
    for (int64_t start = begin; start < end; start += kBlock) {
      const int64_t stop = std::min(start + kBlock, end);
      bool differs = false;
      for (int64_t i = start; i < stop; ++i) {
        differs |= function(data[i]) != data[i];
      }
      for (int64_t i = start; differs && i < stop; ++i) {
        data[i] = function(data[i]);
      }
    }
  });
}

void apply_dense(const at::Tensor& tensor, Values values) {
  const int64_t count = tensor.numel();
  const bool drawn = values == Values::drawn;
  if (includes_float64(tensor.scalar_type())) {
    const int64_t parts = tensor.is_complex() ? 2 : 1;
    auto* data = static_cast<double*>(tensor.mutable_data_ptr());
    apply_to(data, parts * count, drawn ? towards_zero : nearest);
  } else {
    apply_to(tensor.mutable_data_ptr<int64_t>(), count, drawn ? low_bits_without_sign : low_bits);
  }
}

/// Returns a view without the repeated elements along dimensions of stride 0.
at::Tensor without_repeats(at::Tensor tensor) {
  for (int64_t dim = 0; dim < tensor.dim(); ++dim) {
    if (tensor.stride(dim) == 0 && tensor.size(dim) > 1) {
      tensor = tensor.narrow(dim, 0, 1);
    }
  }
  return tensor;
}

template <class Wide, class Narrow>
void check(const at::Tensor& tensor, const char* wide, const char* narrow) {
  const at::Tensor dense = tensor.contiguous();
  const Wide* data = dense.const_data_ptr<Wide>();
  constexpr auto lowest = static_cast<Wide>(std::numeric_limits<Narrow>::lowest());
  constexpr auto highest = static_cast<Wide>(std::numeric_limits<Narrow>::max());
  Wide least = std::numeric_limits<Wide>::max();
  Wide most = std::numeric_limits<Wide>::lowest();
  for (int64_t i = 0; i < dense.numel(); ++i) {
    const Wide value = data[i];
    if (std::is_integral_v<Wide> || std::isfinite(static_cast<double>(value))) {
      least = std::min(least, value);
      most = std::max(most, value);
    }
  }
  TORCH_CHECK(
      least > most || (least >= lowest && most <= highest), "Error when trying to cast ", wide,
      " to ", narrow, ", Input values range [", least, ", ", most, "] exceeds ", narrow, " range [", lowest, ", ",
      highest, "]");
}

}  // namespace

void set(const Rules& chosen) {
  rules = chosen;
}

bool include(c10::ScalarType dtype) {
  return includes_float64(dtype) || (dtype == at::kLong && rules.int64);
}

bool includes_float64(c10::ScalarType dtype) {
  return (dtype == at::kDouble || dtype == at::kComplexDouble) && rules.float64;
}

bool include(const at::Tensor& tensor) {
  return tensor.defined() && include(tensor.scalar_type());
}

void apply(const at::Tensor& tensor, Values values) {
  if (!include(tensor) || !tensor.has_storage() || !tensor.storage().data() ||
      tensor.numel() == 0) {
    return;
  }
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  const at::Tensor elements = without_repeats(tensor);
  if (elements.is_non_overlapping_and_dense()) {
    apply_dense(elements, values);
    return;
  }
  const at::Tensor dense = elements.clone(at::MemoryFormat::Contiguous);
  apply_dense(dense, values);
  elements.copy_(dense);
}

at::Tensor narrowed(const at::Tensor& number) {
  if (!includes_float64(number.scalar_type())) {
    return number;
  }
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  at::Tensor rounded = number.clone();
  apply(rounded);
  rounded.unsafeGetTensorImpl()->set_wrapped_number(
      number.unsafeGetTensorImpl()->is_wrapped_number());
  return rounded;
}

double narrowed(double number) {
  return rules.float64 ? nearest(number) : number;
}

c10::complex<double> narrowed(c10::complex<double> number) {
  return {narrowed(number.real()), narrowed(number.imag())};
}

void check_range(const at::Tensor& tensor) {
  if (!rules.check_range || !include(tensor)) {
    return;
  }
  if (tensor.is_complex()) {
    check<double, float>(at::view_as_real(tensor.resolve_conj()), "Double", "Float");
  } else if (tensor.scalar_type() == at::kDouble) {
    check<double, float>(tensor, "Double", "Float");
  } else {
    check<int64_t, int32_t>(tensor, "Long", "Int");
  }
}

}  // namespace hpu::narrow_types

namespace hpu::unsupported_types {
namespace {

// Leaked on purpose, because tensors may be created until the process ends.
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
