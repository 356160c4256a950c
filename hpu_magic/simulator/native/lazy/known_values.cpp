#include "lazy/known_values.h"

#include "calls/host_call.h"
#include "calls/stand_ins.h"
#include "calls/tensors_of.h"
#include "memory/memory.h"

#include <algorithm>
#include <string_view>

namespace hpu {

using torch::jit::Stack;

namespace {

constexpr int64_t kMostIntegers = int64_t{1} << 20;
constexpr int64_t kMostFloats = int64_t{1} << 12;

bool is_countable(c10::IntArrayRef sizes, at::ScalarType dtype) {
  const int64_t elements = c10::multiply_integers(sizes);
  return (at::isIntegralType(dtype, /*includeBool=*/true) && elements <= kMostIntegers) ||
      (elements == 1 && sizes.size() <= 1);
}

/// Returns whether an operator draws random numbers other than integers. Dropout masks are not
/// computed.
bool draws_reals(const c10::FunctionSchema& schema) {
  return schema.name().find("bernoulli") != std::string::npos ||
      (schema.name() != "aten::random_" && schema.name() != "aten::randperm" &&
       std::any_of(schema.arguments().begin(), schema.arguments().end(), is_generator));
}

/// Returns whether a kernel can run with this operand: the operand's values are known or
/// overwritten.
bool usable(const at::Tensor& tensor, bool overwritten) {
  if (!on_device(tensor)) {
    return true;
  }
  return keeps_host_values(tensor) && (overwritten || !stand_ins::assumed(tensor));
}

}  // namespace

bool countable(const at::Tensor& tensor) {
  return is_countable(tensor.sizes(), tensor.scalar_type());
}

bool uses_trained(const Stack& arguments) {
  bool found = false;
  for (const c10::IValue& value : arguments) {
    for_each_tensor(value, [&found](const at::Tensor& tensor) {
      found = found || (tensor.defined() && tensor.requires_grad());
    });
  }
  return found;
}

bool has_computed_results(const Inference& inference, bool uses_trained) {
  const auto fits = [uses_trained](const Geometry& geometry) {
    return !geometry.defined ||
        is_countable(geometry.sizes, c10::typeMetaToScalarType(geometry.dtype)) ||
        (!uses_trained && c10::multiply_integers(geometry.sizes) <= kMostFloats);
  };
  return std::all_of(inference.results.begin(), inference.results.end(), fits) &&
      std::all_of(
             inference.resized.begin(), inference.resized.end(),
             [&fits](const Resized& each) { return fits(each.geometry); });
}

bool keeps_host_values(const at::Tensor& tensor) {
  return countable(tensor) || tensor.numel() <= kMostFloats;
}

bool covers_storage(const at::Tensor& tensor) {
  return tensor.is_non_overlapping_and_dense() && tensor.nbytes() == tensor.storage().nbytes();
}

bool has_known_operands(const c10::OperatorHandle& op, const Stack& arguments) {
  const c10::FunctionSchema& schema = op.schema();
  bool known = !draws_reals(schema);
  for (size_t i = 0; i < arguments.size(); ++i) {
    const bool overwritten = i == 0 && overwrites(schema);
    for_each_tensor(arguments[i], [&](const at::Tensor& tensor) {
      known = known && usable(tensor, overwritten);
    });
  }
  return known;
}

bool overwrites(const c10::FunctionSchema& schema) {
  const std::string_view name = schema.name();
  return name == "aten::zero_" || name == "aten::fill_" || name == "aten::random_" ||
      name == "aten::copy_";
}

bool is_overwritten(const c10::FunctionSchema& schema, size_t argument) {
  return schema.arguments()[argument].is_out() || (argument == 0 && overwrites(schema));
}

void know_overwritten(const c10::FunctionSchema& schema, const Stack& arguments) {
  if (!overwrites(schema)) {
    return;
  }
  const at::Tensor tensor = arguments[0].toTensor();
  if (on_device(tensor) && covers_storage(tensor)) {
    *assumption_of(tensor.storage()) = {};
  }
}

}  // namespace hpu
