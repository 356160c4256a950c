#include "operators/operators.h"

#include "calls/tensors_of.h"
#include "memory/memory.h"

#include <ATen/autocast_mode.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/library.h>

#include <map>
#include <set>

namespace hpu::autocast {
namespace {

using torch::jit::Stack;

enum class Policy { lower, fp32, promote };

bool eligible(const at::Tensor& tensor) {
  return on_device(tensor) && tensor.is_floating_point() && tensor.scalar_type() != at::kDouble;
}

at::Tensor cast(const at::Tensor& tensor, c10::ScalarType dtype) {
  return eligible(tensor) && tensor.scalar_type() != dtype ? tensor.to(dtype) : tensor;
}

c10::ScalarType widest(const Stack& stack, size_t first) {
  c10::ScalarType dtype = at::autocast::get_lower_precision_fp_from_device_type(kDevice);
  for (size_t i = first; i < stack.size(); ++i) {
    for_each_tensor(stack[i], [&](const at::Tensor& tensor) {
      if (eligible(tensor)) {
        dtype = c10::promoteTypes(dtype, tensor.scalar_type());
      }
    });
  }
  return dtype;
}

/// Returns the dtype of the argument that an in-place or out= variant writes to, if it is a
/// floating-point dtype. The operator keeps this dtype. For integer dtypes, the operator raises its
/// own error.
std::optional<c10::ScalarType> written_dtype(
    const c10::FunctionSchema& schema, const Stack& stack) {
  const size_t first = stack.size() - schema.arguments().size();
  for (size_t i = 0; i < schema.arguments().size(); ++i) {
    if (is_written(schema.arguments()[i]) && stack[first + i].isTensor()) {
      const c10::ScalarType dtype = stack[first + i].toTensor().scalar_type();
      return at::isFloatingType(dtype) ? std::optional(dtype) : std::nullopt;
    }
  }
  return std::nullopt;
}

bool casts_first_argument_only(const std::string& name) {
  static const std::set<std::string> names{
      "aten::batch_norm", "aten::layer_norm", "aten::group_norm", "aten::instance_norm"};
  return names.count(name) > 0;
}

template <Policy policy>
void run(const c10::OperatorHandle& op, c10::DispatchKeySet, Stack* stack) {
  c10::impl::ExcludeDispatchKeyGuard no_autocast(
      c10::DispatchKeySet(c10::DispatchKey::AutocastHPU));
  const c10::FunctionSchema& schema = op.schema();
  const size_t first = stack->size() - schema.arguments().size();
  const size_t last = casts_first_argument_only(schema.name()) ? first + 1 : stack->size();
  c10::ScalarType dtype = at::kFloat;
  if constexpr (policy == Policy::lower) {
    dtype = at::autocast::get_lower_precision_fp_from_device_type(kDevice);
  } else if constexpr (policy == Policy::promote) {
    dtype = widest(*stack, first);
  }
  const auto written = written_dtype(schema, *stack);
  for (size_t i = first; i < last; ++i) {
    if (is_written(schema.arguments()[i - first])) {
      continue;
    }
    map_tensors((*stack)[i], [&](const at::Tensor& tensor) {
      return cast(tensor, written.value_or(dtype));
    });
  }
  op.callBoxed(stack);
}

/// Returns the operators to which a name in an operator list refers. Python's operator methods have
/// different names.
std::vector<std::string> operators_named(const std::string& name) {
  static const std::map<std::string, std::vector<std::string>> aliases{
      {"truediv", {"div", "true_divide"}}, {"iadd", {"add_"}}, {"dist", {"dist"}},
      {"mul", {"mul", "multiply"}}, {"div", {"div", "divide"}}, {"sub", {"sub", "subtract"}}};
  const auto found = aliases.find(name);
  return found == aliases.end() ? std::vector<std::string>{name} : found->second;
}

torch::CppFunction kernel_for(Policy policy) {
  switch (policy) {
    case Policy::lower:
      return torch::CppFunction::makeFromBoxedFunction<&run<Policy::lower>>();
    case Policy::fp32:
      return torch::CppFunction::makeFromBoxedFunction<&run<Policy::fp32>>();
    default:
      return torch::CppFunction::makeFromBoxedFunction<&run<Policy::promote>>();
  }
}

}  // namespace

void set_operators(
    const std::vector<std::string>& lower, const std::vector<std::string>& fp32,
    const std::vector<std::string>& promote) {
  static torch::Library* library = nullptr;
  TORCH_CHECK(
      !library, "The autocast operator lists are read when the bridge loads and cannot be changed "
                "later; restart Python with the new lists.");
  library = new torch::Library(
      torch::Library::IMPL, "aten", c10::DispatchKey::AutocastHPU, __FILE__, __LINE__);
  std::map<std::string, Policy> policies;
  const auto assign = [&](const std::vector<std::string>& names, Policy policy) {
    for (const auto& name : names) {
      for (const auto& op : operators_named(name)) {
        policies.emplace("aten::" + op, policy);  // the first list with this name wins
      }
    }
  };
  assign(lower, Policy::lower);
  assign(fp32, Policy::fp32);
  assign(promote, Policy::promote);
  for (const auto& name : c10::Dispatcher::singleton().getAllOpNames()) {
    const auto found = policies.find(name.name);
    if (found != policies.end()) {
      const std::string full =
          name.overload_name.empty() ? name.name : name.name + "." + name.overload_name;
      library->impl(full.c_str(), kernel_for(found->second));
    }
  }
}

TORCH_LIBRARY_IMPL(_, AutocastHPU, library) {
  library.fallback(torch::CppFunction::makeFallthrough());
}

}  // namespace hpu::autocast
