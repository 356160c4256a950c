#include "custom/define.h"

#include "calls/tensors_of.h"

#include <ATen/FunctionalTensorWrapper.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <torch/csrc/jit/frontend/function_schema_parser.h>

#include <map>
#include <memory>

namespace hpu::custom {
namespace {

using torch::jit::Stack;

std::string name_in(const std::string& schema) {
  return schema.substr(0, schema.find('('));
}

c10::OperatorHandle find_operator(const std::string& its_namespace, const std::string& name) {
  const size_t dot = name.find('.');
  return c10::Dispatcher::singleton().findSchemaOrThrow(
      (its_namespace + "::" + name.substr(0, dot)).c_str(),
      dot == std::string::npos ? "" : name.substr(dot + 1).c_str());
}

/// Returns whether a value is None or contains None. If the declared type is a tensor, an undefined
/// tensor represents Python's None.
bool lacks_tensor(const c10::IValue& value) {
  bool lacks = value.isNone();
  for_each_tensor(value, [&lacks](const at::Tensor& tensor) {
    lacks = lacks || !tensor.defined();
  });
  return lacks;
}

/// Runs an operator on the device, after checking that required arguments are not None.
void run_checked(const c10::OperatorHandle& op, c10::DispatchKeySet keys, Stack* stack) {
  const auto& declared = op.schema().arguments();
  const size_t first = stack->size() - declared.size();
  for (size_t i = 0; i < declared.size(); ++i) {
    TORCH_CHECK(
        declared[i].type()->kind() == c10::TypeKind::OptionalType ||
            !lacks_tensor((*stack)[first + i]),
        op.operator_name().name, " needs its argument '", declared[i].name(), "', but it is None.");
  }
  run_boxed(op, keys, stack);
}

/// Runs an operator and increments the versions of the tensors that it writes to, for autograd.
void run_tracking_writes(const c10::OperatorHandle& op, c10::DispatchKeySet keys, Stack* stack) {
  const auto& declared = op.schema().arguments();
  const size_t first = stack->size() - declared.size();
  std::vector<at::Tensor> written;
  for (size_t i = 0; i < declared.size(); ++i) {
    if (is_written(declared[i])) {
      for_each_tensor((*stack)[first + i], [&written](const at::Tensor& tensor) {
        written.push_back(tensor);
      });
    }
  }
  {
    const at::AutoDispatchBelowADInplaceOrView below;
    op.redispatchBoxed(keys & c10::after_ADInplaceOrView_keyset, stack);
  }
  for (const at::Tensor& tensor : written) {
    if (tensor.defined() && !tensor.is_inference()) {
      tensor.unsafeGetTensorImpl()->bump_version();
    }
  }
}

torch::CppFunction on_hpu() {
  return torch::dispatch(
      c10::DispatchKey::HPU, torch::CppFunction::makeFromBoxedFunction<&run_checked>());
}

/// Converts number arguments to tensors on the device of the first argument, and calls the overload
/// that takes tensors.
struct NumbersToTensors final : c10::OperatorKernel {
  explicit NumbersToTensors(const c10::OperatorHandle& base) : base(base) {}

  void operator()(const c10::OperatorHandle& op, c10::DispatchKeySet keys, Stack* stack) {
    const auto& declared = op.schema().arguments();
    const size_t first = stack->size() - declared.size();
    const at::Tensor like = (*stack)[first].toTensor();
    for (size_t i = 0; i < declared.size(); ++i) {
      c10::IValue& value = (*stack)[first + i];
      if (*declared[i].type() == *base.schema().arguments()[i].type()) {
        continue;
      }
      if (value.isDouble()) {
        value = tensor_of(like, value.toDouble());
      } else if (value.isDoubleList()) {
        value = tensor_of(like, value.toDoubleVector());
      }
    }
    base.redispatchBoxed(keys, stack);
  }

  const c10::OperatorHandle base;
};

}  // namespace

at::Tensor tensor_of(const at::Tensor& like, at::ArrayRef<double> numbers) {
  return at::tensor(numbers, at::dtype(at::kFloat)).to(like.device());
}

at::Tensor written(const at::Tensor& traced, const at::Tensor& value) {
  namespace functional = at::functionalization::impl;
  functional::sync(value);
  functional::replace_(traced, functional::from_functional_tensor(value));
  functional::commit_update(traced);
  functional::sync(traced);
  return traced;
}

void Operators::add(const std::string& schema, const MakeKernel& kernel) {
  library("hpu").def(torch::schema(schema.c_str()));
  library("hpu").impl(name_in(schema).c_str(), torch::dispatch(c10::DispatchKey::Meta, kernel()));
  track_writes(schema);
  add_host_kernel("hpu", schema, kernel);
}

void Operators::add_on_device(const std::string& schema, const MakeKernel& kernel) {
  library("hpu").def(torch::schema(schema.c_str()));
  for (const auto key : {c10::DispatchKey::HPU, c10::DispatchKey::Meta}) {
    library("hpu").impl(name_in(schema).c_str(), torch::dispatch(key, kernel()));
  }
  track_writes(schema);
}

void Operators::add_host_kernel(
    const std::string& its_namespace, const std::string& schema, const MakeKernel& kernel) {
  library(its_namespace).impl(name_in(schema).c_str(), on_hpu());
  library(kHostKernels).def(torch::schema(schema.c_str()));
  compute(name_in(schema), kernel);
}

void Operators::with_numbers(const std::string& schema, const std::string& base) {
  const c10::OperatorHandle op = find_operator(kHostKernels, base);
  add(schema, [op] {
    return torch::CppFunction::makeFromBoxedFunctor(std::make_unique<NumbersToTensors>(op));
  });
}

void Operators::replace(const std::string& name, const MakeKernel& kernel) {
  const c10::OperatorHandle op = find_operator("aten", name);
  library(kHostKernels)
      .def(op.schema().cloneWithName(
          kHostKernels + op.operator_name().name.substr(std::string("aten").size()),
          op.operator_name().overload_name));
  compute(name, kernel);
}

void Operators::compute(const std::string& name, const MakeKernel& kernel) {
  for (const auto key : {c10::DispatchKey::CPU, c10::DispatchKey::Meta}) {
    library(kHostKernels).impl(name.c_str(), torch::dispatch(key, kernel()));
  }
}

void Operators::track_writes(const std::string& schema) {
  if (torch::jit::parseSchema(schema).is_mutable()) {
    library("hpu").impl(
        name_in(schema).c_str(),
        torch::dispatch(
            c10::DispatchKey::ADInplaceOrView,
            torch::CppFunction::makeFromBoxedFunction<&run_tracking_writes>()));
  }
}

void Operators::define_of_mode(bool lazy) {
  for (const auto& definition : of_mode(lazy)) {
    definition();
  }
  of_mode(lazy).clear();
}

std::vector<std::function<void()>>& Operators::of_mode(bool lazy) {
  static auto* definitions = new std::vector<std::function<void()>>[2];
  return definitions[lazy];
}

// Leaked, because destroying a library unregisters its operators.
torch::Library& Operators::library(const std::string& name) {
  static auto* libraries = new std::map<std::string, torch::Library>;
  return libraries
      ->try_emplace(name, torch::Library::FRAGMENT, name, std::nullopt, __FILE__, __LINE__)
      .first->second;
}

}  // namespace hpu::custom
