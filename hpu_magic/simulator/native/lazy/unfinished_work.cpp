#include "lazy/unfinished_work.h"

#include "calls/host_call.h"
#include "memory/memory_reuse.h"
#include "threads/interpreter.h"

#include <algorithm>
#include <iterator>
#include <utility>
#include <unordered_map>
#include <unordered_set>

namespace hpu {
namespace {

bool draws(const Node& node) {
  const auto& arguments = node.op.schema().arguments();
  return std::any_of(arguments.begin(), arguments.end(), is_generator);
}

const c10::StorageImpl* storage_of(const at::Tensor& tensor) {
  return tensor.storage().unsafeGetStorageImpl();
}

}  // namespace

void UnfinishedWork::add(std::vector<Node> nodes, uint64_t graph) {
  first_graph_ = std::min(first_graph_, graph);
  std::move(nodes.begin(), nodes.end(), std::back_inserter(nodes_));
}

void UnfinishedWork::run(std::vector<Node>* ended) {
  if (std::exchange(interrupted_, false)) {
    drop_unseen();
  }
  Interruption interruption;
  const CachedMemory kept;
  Failures failures;
  while (!nodes_.empty()) {
    interrupted_ = true;
    interruption.check();
    interrupted_ = false;
    if (nodes_.empty()) {
      break;
    }
    Node node = std::move(nodes_.front());
    nodes_.pop_front();
    try {
      node.run();
    } catch (const std::exception& error) {
      failures.add(node, error);
    }
    if (ended) {
      ended->push_back(std::move(node));
    }
  }
  first_graph_ = UINT64_MAX;
  failures.rethrow_first();
}

/// Drops nodes whose results are no longer reachable. A cell that is rerun after an interrupt
/// should not wait for the operations of its first run.
void UnfinishedWork::drop_unseen() {
  std::unordered_map<const c10::StorageImpl*, size_t> handles;
  for (const Node& node : nodes_) {
    for (const auto& [tensor, written] : node.tensors()) {
      ++handles[storage_of(tensor)];
    }
  }
  std::unordered_set<const c10::StorageImpl*> read;
  std::deque<Node> seen;
  for (; !nodes_.empty(); nodes_.pop_back()) {
    Node& node = nodes_.back();
    const auto tensors = node.tensors();
    bool writes = false;
    bool needed = draws(node);
    for (const auto& [tensor, written] : tensors) {
      const auto* storage = storage_of(tensor);
      writes = writes || written;
      needed = needed ||
          (written &&
           (tensor.storage().use_count() > handles[storage] || read.count(storage) > 0));
    }
    if (needed || !writes) {
      for (const auto& [tensor, written] : tensors) {
        read.insert(storage_of(tensor));
      }
      seen.push_front(std::move(node));
    }
  }
  nodes_ = std::move(seen);
}

bool UnfinishedWork::uses(const c10::Storage& storage) const {
  const RecordMark* mark = record_mark(storage);
  return mark && mark->graph >= first_graph_;
}

}  // namespace hpu
