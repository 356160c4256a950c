#include "lazy/skipped_call.h"

#include "calls/tensors_of.h"
#include "lazy/inference.h"
#include "lazy/recorder.h"
#include "memory/memory.h"
#include "memory/zero_pages.h"

#include <ATen/Functions.h>

#include <iterator>

namespace hpu {
namespace {

using torch::jit::Stack;

at::Tensor zeros_of(const Geometry& geometry) {
  if (!geometry.defined) {
    return {};
  }
  at::Tensor result = at::empty_strided(
      geometry.sizes, geometry.strides,
      at::TensorOptions().device(device()).dtype(geometry.dtype));
  at::Tensor view = host_view(result);
  write_zeros(view);
  return result;
}

bool is_fill(const c10::FunctionSchema& schema) {
  return schema.name() == "aten::zero_" || schema.name() == "aten::fill_" ||
      schema.name() == "aten::normal_" || schema.name() == "aten::uniform_" ||
      schema.name() == "aten::random_";
}

bool returns_only_tensors(const c10::FunctionSchema& schema) {
  for (const c10::Argument& declared : schema.returns()) {
    const auto* alias = declared.alias_info();
    if (declared.type()->kind() != c10::TypeKind::TensorType || (alias && !alias->isWrite())) {
      return false;
    }
  }
  return true;
}

c10::IValue written_argument(
    const c10::FunctionSchema& schema, const Stack& arguments, const c10::AliasInfo& alias) {
  for (size_t i = 0; i < arguments.size(); ++i) {
    const auto* declared = schema.arguments()[i].alias_info();
    if (declared && *declared == alias) {
      return arguments[i];
    }
  }
  return {};
}

}  // namespace

bool skip_call(const c10::OperatorHandle& op, Stack* stack) {
  const c10::FunctionSchema& schema = op.schema();
  if (!returns_only_tensors(schema)) {
    return false;
  }
  const auto first = static_cast<ptrdiff_t>(stack->size() - schema.arguments().size());
  const Stack arguments(stack->begin() + first, stack->end());
  const recorder::Lock lock;  // guards the cache of inferences
  const Signature signature = signature_of(op, arguments);
  if (!signature.complete) {
    return false;
  }
  const Inference inference = infer(op, arguments, signature);
  if (!inference.known || inference.refusal || !inference.resized.empty()) {
    return false;
  }
  if (is_fill(schema) && on_device(arguments[0].toTensor())) {
    host_view(arguments[0].toTensor()).zero_();
  }
  stack->resize(static_cast<size_t>(first));
  auto next = inference.results.begin();
  for (const c10::Argument& declared : schema.returns()) {
    if (const auto* alias = declared.alias_info()) {
      stack->push_back(written_argument(schema, arguments, *alias));
    } else {
      stack->push_back(zeros_of(*next++));
    }
  }
  return true;
}

}  // namespace hpu
