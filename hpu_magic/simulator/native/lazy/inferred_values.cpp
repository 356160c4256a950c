#include "lazy/inferred_values.h"

#include "calls/stand_ins.h"
#include "calls/tensors_of.h"
#include "calls/thread_modes.h"
#include "lazy/known_values.h"
#include "memory/memory.h"

#include <ATen/Functions.h>

#include <cmath>
#include <string>
#include <unordered_set>

namespace hpu {
namespace {

using torch::jit::Stack;

constexpr int64_t kMostCompared = int64_t{1} << 16;

bool is_real_number(const at::Tensor& tensor) {
  return !at::isIntegralType(tensor.scalar_type(), /*includeBool=*/true);
}

/// Returns whether a tensor contains floating-point stand-ins that were not inferred.
bool is_any_number(const at::Tensor& tensor) {
  return on_device(tensor) && stand_ins::assumed(tensor) && is_real_number(tensor) &&
      !assumption_of(tensor.storage())->number;
}

bool is_copy(const std::string& name) {
  return name == "aten::copy_" || name == "aten::_to_copy" || name == "aten::clone";
}

size_t copied_argument(const std::string& name) {
  return name == "aten::copy_" ? 1 : 0;
}

/// Returns whether results contain elements of the first operand, such as the largest one, or their
/// mean or sum.
bool is_reduction(const std::string& name) {
  static const std::unordered_set<std::string> names{
      "aten::any", "aten::all", "aten::max", "aten::min",
      "aten::amax", "aten::amin", "aten::mean", "aten::sum"};
  return names.count(name) > 0;
}

/// Returns a CPU tensor with the value of a tensor's elements. Sets `usable` to false if the
/// elements are not all equal.
at::Tensor value_of_all(const at::Tensor& tensor, bool& usable) {
  if (!on_device(tensor)) {
    return tensor;
  }
  const KernelsOnly kernels_only;
  if (stand_ins::assumed(tensor)) {
    return at::scalar_tensor(stand_ins::value_of(tensor), tensor.scalar_type());
  }
  const at::Tensor values = host_view(tensor);
  usable = usable && values.numel() > 0 && values.numel() <= kMostCompared;
  if (!usable) {
    return at::scalar_tensor(0, tensor.scalar_type());
  }
  const at::Tensor first = values.flatten()[0].clone();
  usable = values.eq(first).all().item<bool>();
  return first;
}

/// The values of the results of a call. A value is a CPU tensor, or undefined if it is unknown.
class InferredValues {
 public:
  InferredValues(const c10::OperatorHandle& op, const Stack& arguments)
      : op_(op), name_(op.schema().name()), arguments_(arguments) {}

  /// Returns the value of all elements of a result.
  at::Tensor of(const at::Tensor& result) const {
    if (is_real_number(result) && (at::isComplexType(result.scalar_type()) || reads_any_number())) {
      return {};
    }
    if (is_copy(name_)) {
      bool usable = true;
      const at::Tensor value = value_of_all(arguments_[copied_argument(name_)].toTensor(), usable);
      return usable ? value : at::Tensor();
    }
    if (is_reduction(name_)) {
      return reduced(result);
    }
    if (name_ == "aten::cat" || name_ == "aten::stack") {
      return joined();
    }
    const bool is_elementwise =
        op_.hasTag(at::Tag::pointwise) && !op_.hasTag(at::Tag::nondeterministic_seeded);
    return is_elementwise ? elementwise() : at::Tensor();
  }

 private:
  bool reads_any_number() const {
    bool found = false;
    for (size_t i = 0; i < arguments_.size(); ++i) {
      if (is_overwritten(op_.schema(), i)) {
        continue;
      }
      for_each_tensor(arguments_[i], [&found](const at::Tensor& tensor) {
        found = found || is_any_number(tensor);
      });
    }
    return found;
  }

  at::Tensor reduced(const at::Tensor& result) const {
    const at::Tensor operand = arguments_[0].toTensor();
    bool usable = true;
    const at::Tensor value = value_of_all(operand, usable);
    const bool is_position =  // of the largest or smallest element
        op_.schema().returns().size() > 1 && is_real_number(value) && !is_real_number(result);
    if (!usable || is_position || result.numel() == 0) {
      return {};
    }
    const KernelsOnly kernels_only;
    const int64_t count = name_ == "aten::sum" ? operand.numel() / result.numel() : 1;
    return value.to(result.scalar_type()).mul(count);
  }

  /// Returns the common value of all operands in a list.
  at::Tensor joined() const {
    const KernelsOnly kernels_only;
    bool usable = true;
    at::Tensor common;
    for_each_tensor(arguments_[0], [&](const at::Tensor& tensor) {
      const at::Tensor value = value_of_all(tensor, usable);
      usable = usable && (!common.defined() || common.eq(value).all().item<bool>());
      common = value;
    });
    return usable ? common : at::Tensor();
  }

  /// Runs the operator once, on the common values of its operands, and returns the result.
  at::Tensor elementwise() const {
    const KernelsOnly kernels_only;
    bool usable = true;
    Stack stack = arguments_;
    for (size_t i = 0; i < stack.size(); ++i) {
      const bool is_out = op_.schema().arguments()[i].is_out();
      map_tensors(stack[i], [&usable, is_out](const at::Tensor& tensor) {
        return is_out ? at::empty({0}, tensor.scalar_type()) : value_of_all(tensor, usable);
      });
    }
    if (!usable) {
      return {};
    }
    try {
      op_.callBoxed(&stack);
      return stack.back().toTensor();
    } catch (const std::exception&) {  // not an operator on single numbers
      return {};
    }
  }

  const c10::OperatorHandle& op_;
  const std::string& name_;
  const Stack& arguments_;
};

/// Marks a tensor as assumed. Floating-point numbers take the value only if the value is finite and
/// applies to the whole storage.
void assume_value(const at::Tensor& tensor, const at::Tensor& value, double share) {
  Assumption& assumption = *assumption_of(tensor.storage());
  assumption = {true, 0, share};
  if (!value.defined() || value.numel() != 1) {
    return;
  }
  const KernelsOnly kernels_only;
  const at::Tensor converted = value.to(tensor.scalar_type());
  if (!is_real_number(tensor)) {
    assumption.value = converted.to(at::kLong).item<int64_t>();
  } else if (covers_storage(tensor)) {
    const auto number = converted.to(at::kDouble).item<double>();
    if (std::isfinite(number)) {
      assumption.number = number;
    }
  }
}

/// Returns which portion of a mask's elements are true.
double share_of(const at::Tensor& source) {
  return on_device(source) && stand_ins::assumed(source) ? assumption_of(source.storage())->share
                                                         : 1;
}

/// Returns whether an operand is a known mask with elements that are not selected, or an assumed
/// tensor that was computed from such a mask.
bool excludes_elements(const at::Tensor& operand, bool multiplies) {
  if (!operand.defined() || !on_device(operand)) {
    return false;
  }
  if (stand_ins::assumed(operand)) {
    return assumption_of(operand.storage())->excludes;
  }
  const at::ScalarType type = operand.scalar_type();
  const bool selects = type == at::kBool || (multiplies && at::isIntegralType(type, false));
  if (!selects || !keeps_host_values(operand) || !has_memory(operand.storage())) {
    return false;
  }
  const KernelsOnly kernels_only;
  return !host_view(operand).all().item<bool>();
}

bool excludes_elements(const c10::OperatorHandle& op, const Stack& arguments) {
  const std::string& name = op.schema().name();
  const bool multiplies = name == "aten::mul" || name == "aten::mul_" ||
      name == "aten::bitwise_and" || name == "aten::bitwise_and_" || name == "aten::logical_and" ||
      name == "aten::logical_and_";
  bool excludes = false;
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (is_overwritten(op.schema(), i)) {
      continue;
    }
    for_each_tensor(arguments[i], [&excludes, multiplies](const at::Tensor& tensor) {
      excludes = excludes || excludes_elements(tensor, multiplies);
    });
  }
  return excludes;
}

}  // namespace

void assume_result(const at::Tensor& result, const c10::OperatorHandle& op, const Stack& arguments) {
  const std::string& name = op.schema().name();
  const Assumption& before = *assumption_of(result.storage());
  const double share = is_copy(name) ? share_of(arguments[copied_argument(name)].toTensor())
      : before.assumed               ? 1
                                     : before.share;
  const bool excludes = excludes_elements(op, arguments);
  assume_value(result, InferredValues(op, arguments).of(result), share);
  assumption_of(result.storage())->excludes = excludes;
}

void assume_copy(const at::Tensor& source, const at::Tensor& destination) {
  const bool assumed = on_device(source) && stand_ins::assumed(source);
  at::Tensor value;
  if (assumed && !(is_real_number(destination) && is_any_number(source))) {
    bool usable = true;
    value = value_of_all(source, usable);
  }
  const bool excludes = excludes_elements(source, false);
  assume_value(destination, value, share_of(source));
  assumption_of(destination.storage())->excludes = excludes;
}

}  // namespace hpu
