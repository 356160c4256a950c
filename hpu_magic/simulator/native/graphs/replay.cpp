#include "graphs/replay.h"

#include "calls/generator.h"
#include "calls/host_kernel.h"
#include "calls/kernels_only.h"
#include "calls/products.h"
#include "memory/failure.h"
#include "memory/memory_reuse.h"
#include "memory/narrow_types.h"

#include <map>

namespace hpu {
namespace {

using torch::jit::Stack;

bool same_arguments(const c10::FunctionSchema& functional, const c10::FunctionSchema& out) {
  const auto& wanted = functional.arguments();
  const auto& offered = out.arguments();
  if (offered.size() != wanted.size() + functional.returns().size()) {
    return false;
  }
  for (size_t i = 0; i < wanted.size(); ++i) {
    if (wanted[i].name() != offered[i].name() || *wanted[i].type() != *offered[i].type()) {
      return false;
    }
  }
  return offered.back().is_out();
}

/// The form of a functional operator that writes into given tensors, if the CPU has a kernel of
/// its own for it: a derived one would compute a result and copy it.
std::optional<c10::OperatorHandle> find_out_form(const c10::OperatorHandle& op) {
  if (op.operator_name().name == "aten::smooth_l1_loss") {
    return std::nullopt;  // it writes a mean by way of a resize that PyTorch warns about
  }
  static const auto& by_name = *[] {
    auto* names = new std::multimap<std::string, std::string>;
    for (const auto& name : c10::Dispatcher::singleton().getAllOpNames()) {
      names->emplace(name.name, name.overload_name);
    }
    return names;
  }();
  auto [first, last] = by_name.equal_range(op.operator_name().name);
  for (; first != last; ++first) {
    const auto form = c10::Dispatcher::singleton().findSchema({first->first, first->second});
    if (form && same_arguments(op.schema(), form->schema()) &&
        form->hasKernelForDispatchKey(c10::DispatchKey::CPU)) {
      return form;
    }
  }
  return std::nullopt;
}

}  // namespace

/// A tensor that lacks a write leaves the step unprepared: its node says so, or overwrites it.
Step::Way Step::prepare() {
  arguments_.clear();
  views_.clear();
  const auto& schema = node_->op.schema();
  if (!node_->resized.empty() || !(host_kernel(node_->op) == node_->op)) {
    return Way::as_recorded;
  }
  if (!node_->outputs.empty()) {
    const auto out_form = find_out_form(node_->op);
    if (!out_form || node_->outputs.size() != schema.returns().size()) {
      return Way::as_recorded;
    }
    op_ = *out_form;
  }
  for (const auto& [tensor, written] : node_->tensors()) {
    if (failure_of(tensor.storage())) {
      return Way::unprepared;
    }
    if (narrow_types::includes_float64(tensor.scalar_type()) ||
        (written && narrow_types::include(tensor)) ||
        (is_product(node_->op.operator_name().name) && multiplies_slowly(tensor.scalar_type()))) {
      return Way::as_recorded;
    }
  }
  const auto view_of = [this](const at::Tensor& tensor) {
    if (!on_device(tensor)) {
      return tensor;
    }
    views_.emplace_back(tensor, host_view(tensor));
    return views_.back().second;
  };
  for (size_t i = 0; i < node_->arguments.size(); ++i) {
    const c10::IValue& value = node_->arguments[i];
    if (value.isTensor()) {
      arguments_.emplace_back(view_of(value.toTensor()));
    } else if (value.isTensorList() || value.isOptionalTensorList() || value.isDevice()) {
      return Way::as_recorded;
    } else if (takes_generator(schema.arguments()[i])) {
      arguments_.emplace_back(
          host_generator(value.isNone() ? at::Generator() : value.toGenerator()));
    } else {
      arguments_.push_back(value);
    }
  }
  for (const at::Tensor& output : node_->outputs) {
    if (!output.defined()) {
      return Way::as_recorded;
    }
    arguments_.emplace_back(view_of(output));
  }
  return Way::direct;
}

/// Whether the views still show the tensors' memory, which a resize between replays moves, and may
/// be used: a tensor that lacks a write may not.
bool Step::unchanged() const {
  for (const auto& [tensor, view] : views_) {
    if (tensor.storage().data() != view.storage().data() || failure_of(tensor.storage())) {
      return false;
    }
  }
  return true;
}

void Step::run(Stack& stack) {
  const DefaultDtype as_recorded(node_->default_dtype);
  if (way_ == Way::unprepared || (way_ == Way::direct && !unchanged())) {
    way_ = Way::unprepared;  // also where there is no memory for an output
    way_ = prepare();
  }
  if (way_ == Way::direct) {
    stack.assign(arguments_.begin(), arguments_.end());
    try {
      op_.redispatchBoxed(kHost, &stack);
      stack.clear();
      return;
    } catch (const c10::Error& error) {
      if (!lacks_dtype(error)) {
        throw;
      }
      way_ = Way::as_recorded;
    }
  }
  const MemoryReuse reuse(node_->outputs);
  node_->run();
}

}  // namespace hpu
