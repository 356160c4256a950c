#include "graphs/hpu_graph.h"

#include "calls/dtypes.h"
#include "calls/generator.h"
#include "calls/host_call.h"
#include "calls/thread_modes.h"
#include "memory/card_types.h"
#include "memory/memory.h"
#include "memory/memory_reuse.h"
#include "memory/skipping.h"

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

/// Returns the out= variant of a functional operator, if it has a kernel specifically for the CPU.
/// A generic kernel would compute the result separately and copy it.
std::optional<c10::OperatorHandle> find_out_form(const c10::OperatorHandle& op) {
  if (op.operator_name().name == "aten::smooth_l1_loss") {
    return std::nullopt;  // with reduction="mean", it resizes the output, which causes a warning
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

/// Prepares the arguments of the kernel. If the computation of a tensor failed, the arguments are
/// not prepared, and the node either raises the tensor's error or overwrites the tensor.
ReplayStep::Mode ReplayStep::prepare() {
  arguments_.clear();
  views_.clear();
  const auto& schema = node_->op.schema();
  if (!node_->resized.empty() || !(host_kernel(node_->op) == node_->op)) {
    return Mode::as_recorded;
  }
  if (!node_->outputs.empty()) {
    const auto out_form = find_out_form(node_->op);
    if (!out_form || node_->outputs.size() != schema.returns().size()) {
      return Mode::as_recorded;
    }
    op_ = *out_form;
  }
  for (const auto& [tensor, written] : node_->tensors()) {
    if (failure_of(tensor.storage())) {
      return Mode::unprepared;
    }
    if (narrow_types::includes_float64(tensor.scalar_type()) ||
        (written && narrow_types::include(tensor)) ||
        (is_product(node_->op.operator_name().name) && multiplies_slowly(tensor.scalar_type()))) {
      return Mode::as_recorded;
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
      return Mode::as_recorded;
    } else if (is_generator(schema.arguments()[i])) {
      arguments_.emplace_back(
          host_generator(value.isNone() ? at::Generator() : value.toGenerator()));
    } else {
      arguments_.push_back(value);
    }
  }
  for (const at::Tensor& output : node_->outputs) {
    if (!output.defined()) {
      return Mode::as_recorded;
    }
    arguments_.emplace_back(view_of(output));
  }
  return Mode::direct;
}

/// Returns whether the views are still valid. Views become invalid if a resize between replays
/// moves the memory, or if a tensor fails.
bool ReplayStep::unchanged() const {
  for (const auto& [tensor, view] : views_) {
    if (tensor.storage().data() != view.storage().data() || failure_of(tensor.storage())) {
      return false;
    }
  }
  return true;
}

void ReplayStep::run(Stack& stack) {
  if (skipping::dry_run()) {
    node_->run();
    return;
  }
  const DefaultDtype as_recorded(node_->default_dtype);
  if (mode_ == Mode::unprepared || (mode_ == Mode::direct && !unchanged())) {
    mode_ = Mode::unprepared;  // prepare() may throw if an output cannot be allocated
    mode_ = prepare();
  }
  if (mode_ == Mode::direct) {
    stack.assign(arguments_.begin(), arguments_.end());
    try {
      op_.redispatchBoxed(kHost, &stack);
      stack.clear();
      return;
    } catch (const c10::Error& error) {
      if (!lacks_dtype(error)) {
        throw;
      }
      mode_ = Mode::as_recorded;
    }
  }
  const MemoryReuse reuse(node_->outputs);
  node_->run();
}

}  // namespace hpu
