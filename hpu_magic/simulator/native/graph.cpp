#include "graph.h"

#include <ATen/core/LegacyTypeDispatch.h>

#include <unordered_set>
#include <utility>

namespace hpu {

void Graph::capture_begin(bool dry_run) {
  TORCH_CHECK(
      recorder::enabled(),
      "HPU Graphs are for lazy mode: set PT_HPU_LAZY_MODE=1 before the first import and restart.");
  capture_ = recorder::begin_capture(dry_run);
  reset();
}

void Graph::capture_end() {
  if (capture_ != 0) {
    nodes_ = recorder::end_capture(std::exchange(capture_, 0));
  }
}

void Graph::replay() {
  TORCH_CHECK(!recorder::capturing(), "GRAPH:: Capture in progress");
  recorder::flush(recorder::Cause::step);
  at::AutoDispatchBelowADInplaceOrView below_autograd;
  if (!freed_.empty()) {
    replay_freeing();
    return;
  }
  if (steps_.empty()) {
    for (const Node& node : nodes_) {
      steps_.emplace_back(node);
    }
  }
  torch::jit::Stack stack;
  for (Step& step : steps_) {
    step.run(stack);
  }
}

void Graph::replay_freeing() {
  static const auto why = std::make_shared<const std::string>(
      "This tensor's memory was freed with the replay that computed it: its graph was captured "
      "with disable_tensor_cache=True. Return the tensor from the captured function to keep it.");
  for (const auto& storages : freed_) {
    for (const c10::Storage& storage : storages) {
      promise(storage);
    }
  }
  for (size_t i = 0; i < nodes_.size(); ++i) {
    nodes_[i].run();
    for (const c10::Storage& storage : freed_[i]) {
      free_memory(storage, why);
    }
  }
}

void Graph::free_intermediates(const std::vector<at::Tensor>& kept, const Graph* backward) {
  std::unordered_set<const c10::StorageImpl*> needed;
  for (const at::Tensor& tensor : kept) {
    needed.insert(tensor.storage().unsafeGetStorageImpl());
  }
  if (backward) {
    for (const Node& node : backward->nodes_) {
      for (const at::Tensor& tensor : node.tensors()) {
        needed.insert(tensor.storage().unsafeGetStorageImpl());
      }
    }
  }
  freed_.assign(nodes_.size(), {});
  for (size_t i = nodes_.size(); i-- > 0;) {
    for (const at::Tensor& tensor : nodes_[i].tensors()) {
      const c10::Storage& storage = tensor.storage();
      if (!has_memory(storage) && needed.insert(storage.unsafeGetStorageImpl()).second) {
        freed_[i].push_back(storage);
      }
    }
  }
}

void Graph::reset() {
  steps_.clear();
  freed_.clear();
  nodes_.clear();
}

bool Graph::is_capturing() const {
  return recorder::capturing(capture_);
}

std::vector<std::string> Graph::operations() const {
  std::vector<std::string> names;
  for (const Node& node : nodes_) {
    names.push_back(c10::toString(node.op.operator_name()));
  }
  return names;
}

bool Graph::is_empty() const {
  return nodes_.empty();
}

}  // namespace hpu
