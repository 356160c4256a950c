#include "graphs/hpu_graph.h"

#include "calls/thread_modes.h"
#include "lazy/unfinished_work.h"
#include "memory/memory.h"
#include "memory/memory_reuse.h"
#include "prices/observer.h"

#include <unordered_set>
#include <utility>

namespace hpu {
namespace {

void free_all(const std::vector<c10::Storage>& storages) {
  static const auto why = std::make_shared<const std::string>(
      "This tensor's memory was freed by the replay that computed it: its graph was captured "
      "with disable_tensor_cache=True. Return the tensor from the captured function to keep it.");
  for (const c10::Storage& storage : storages) {
    free_memory(storage, why);
  }
}

}  // namespace

void HpuGraph::capture_begin(bool dry_run) {
  TORCH_CHECK(
      recorder::enabled(),
      "HPU Graphs need lazy mode: restart, and set PT_HPU_LAZY_MODE=1 before the first import.");
  const recorder::Lock lock;
  check_not_replaying();
  capture_ = recorder::begin_capture(dry_run);
  reset();
  begun_ = last_number();
}

void HpuGraph::abandon() {
  const recorder::Lock lock;
  recorder::abandon(std::exchange(capture_, 0));
  reset();
}

void HpuGraph::capture_end() {
  const recorder::Lock lock;
  if (capture_ != 0) {
    recorder::Captured captured = recorder::end_capture(std::exchange(capture_, 0));
    parts_ = parts_of(captured);
    running_ = RunningCollectives(captured.collectives);
    nodes_ = std::move(captured.nodes);
    signatures_ = std::move(captured.signatures);
    note_made();
  }
}

void HpuGraph::replay() {
  {
    const recorder::Lock lock;
    TORCH_CHECK(!recorder::capturing(), "GRAPH:: Capture in progress");
    check_not_replaying();
    if (parts_.size() == 1) {
      Failures failures;
      run(parts_[0], failures);
      failures.rethrow_first();
      return;
    }
    replaying_ = true;
  }
  struct End {
    bool& replaying;
    ~End() {
      const recorder::Lock lock;
      replaying = false;
    }
  } const end{replaying_};
  replay_parts();
}

void HpuGraph::check_not_replaying() const {
  TORCH_CHECK(
      !replaying_, "Another thread is replaying this HPU graph: wait until its replay() returns.");
}

/// Replays a graph with collectives. Between the parts, other threads can use the device.
void HpuGraph::replay_parts() {
  running_.wait_for_earlier();
  Failures failures;
  for (size_t i = 0; i < parts_.size(); ++i) {
    try {
      replay_part(i, failures);
    } catch (const std::exception& error) {
      const recorder::Lock lock;
      const auto rest = c10::ArrayRef<Node>(nodes_).slice(parts_[i].first_node);
      fail_results(rest, error, made_);
      throw;
    }
  }
  failures.rethrow_first();
}

void HpuGraph::replay_part(size_t number, Failures& failures) {
  const Part& part = parts_[number];
  for (const size_t earlier : part.waits) {
    running_.wait_for(earlier);
    if (!freed_.empty()) {
      free_all(freed_[parts_[earlier].first_node]);
    }
  }
  if (part.is_collective) {
    failures.rethrow_first();
    running_.start(number, part, nodes_[part.first_node]);
  } else {
    run(part, failures);
  }
}

void HpuGraph::run(const Part& part, Failures& failures) {
  const recorder::Lock lock;  // other threads must not see tensors in an intermediate state
  TORCH_CHECK(!recorder::capturing(), "GRAPH:: Capture in progress");
  recorder::flush(recorder::Cause::mark_step);
  launch(part);
  const prices::Unobserved unobserved;
  const KernelsOnly kernels_only;
  if (part.first_node == 0) {
    for (const c10::Storage& storage : made_) {  // an earlier replay may have failed to write to it
      clear_failure(storage);
    }
  }
  if (freed_.empty()) {
    replay_steps(part, failures);
  } else {
    replay_freeing(part, failures);
  }
}

/// Adds the time of a part to the clock.
void HpuGraph::launch(const Part& part) const {
  if (!clock::on() || part.first_node == part.end_node) {
    return;
  }
  if (signatures_.empty()) {
    clock::count_unpriced("HPU Graph that was captured while the clock was off");
  }
  for (size_t i = part.first_signature; i < part.end_signature; ++i) {
    if (!clock::launch(signatures_[i])) {
      clock::count_unpriced("HPU Graph whose price was forgotten");
    }
  }
}

void HpuGraph::replay_steps(const Part& part, Failures& failures) {
  if (steps_.empty()) {
    for (const Node& node : nodes_) {
      steps_.emplace_back(node);
    }
  }
  torch::jit::Stack stack;
  for (size_t i = part.first_node; i < part.end_node; ++i) {
    try {
      steps_[i].run(stack);
    } catch (const std::exception& error) {
      failures.add(nodes_[i], error);
      stack.clear();
    }
  }
}

void HpuGraph::replay_freeing(const Part& part, Failures& failures) {
  for (size_t i = part.first_node; i < part.end_node; ++i) {
    try {
      const MemoryReuse reuse(nodes_[i].outputs);
      nodes_[i].run();
    } catch (const std::exception& error) {
      failures.add(nodes_[i], error);
    }
    free_all(freed_[i]);
  }
}

void HpuGraph::note_made() {
  Known seen;
  for (const Node& node : nodes_) {
    const auto& arguments = node.op.schema().arguments();
    const bool writes_out = !arguments.empty() && arguments.back().is_out();
    Known results;
    for (const at::Tensor& output : node.outputs) {
      if (output.defined()) {
        results.insert(output.storage().unsafeGetStorageImpl());
      }
    }
    for (const auto& [tensor, written] : node.tensors()) {
      const auto* storage = tensor.storage().unsafeGetStorageImpl();
      const bool first = seen.insert(storage).second;
      if (first && number_of(tensor.storage()) > begun_ &&
          ((written && writes_out) || results.count(storage) > 0)) {
        made_.push_back(tensor.storage());
      }
    }
  }
}

void HpuGraph::free_for_backward() {
  const recorder::Lock lock;
  check_not_replaying();
  free_all(for_backward_);
}

void HpuGraph::free_intermediates(const std::vector<at::Tensor>& kept, HpuGraph* backward) {
  const recorder::Lock lock;
  Known needed;
  for (const at::Tensor& tensor : kept) {
    needed.insert(tensor.storage().unsafeGetStorageImpl());
  }
  if (backward) {
    backward->plan_freeing(needed, begun_);
    Known own;
    for (const c10::Storage& storage : backward->made_) {
      own.insert(storage.unsafeGetStorageImpl());
    }
    for (const Storages& storages : backward->freed_) {
      for (const c10::Storage& storage : storages) {
        if (own.count(storage.unsafeGetStorageImpl()) == 0) {
          for_backward_.push_back(storage);
          needed.insert(storage.unsafeGetStorageImpl());
        }
      }
    }
  }
  plan_freeing(std::move(needed), begun_);
}

/// Determines which tensors to free after each node. Only tensors created after `since` that are
/// not in `needed` are freed.
void HpuGraph::plan_freeing(Known needed, uint64_t since) {
  const auto is_made_here = [since](const c10::Storage& storage) {
    return !has_memory(storage) && number_of(storage) > since;
  };
  made_.clear();
  Known seen;
  for (const Node& node : nodes_) {
    for (const auto& [tensor, written] : node.tensors()) {
      const c10::Storage& storage = tensor.storage();
      if (seen.insert(storage.unsafeGetStorageImpl()).second && written && is_made_here(storage)) {
        made_.push_back(storage);
      }
    }
  }
  freed_.assign(nodes_.size(), {});
  for (size_t i = nodes_.size(); i-- > 0;) {
    for (const auto& [tensor, written] : nodes_[i].tensors()) {
      const c10::Storage& storage = tensor.storage();
      if (is_made_here(storage) && needed.insert(storage.unsafeGetStorageImpl()).second) {
        freed_[i].push_back(storage);
      }
    }
  }
}

void HpuGraph::reset() {
  const recorder::Lock lock;
  check_not_replaying();
  steps_.clear();
  freed_.clear();
  made_.clear();
  for_backward_.clear();
  nodes_.clear();
  signatures_.clear();
  parts_ = parts_of({});
  running_ = {};
}

bool HpuGraph::is_capturing() const {
  const recorder::Lock lock;
  return recorder::capturing(capture_);
}

std::vector<std::string> HpuGraph::operations() const {
  const recorder::Lock lock;
  std::vector<std::string> names;
  for (const Node& node : nodes_) {
    names.push_back(c10::toString(node.op.operator_name()));
  }
  return names;
}

bool HpuGraph::is_empty() const {
  const recorder::Lock lock;
  return nodes_.empty();
}

}  // namespace hpu
