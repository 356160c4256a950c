#include "graphs/parts.h"

#include "prices/source.h"
#include "threads/interpreter.h"

#include <algorithm>
#include <unordered_set>

namespace hpu {
namespace {

using Storages = std::unordered_set<const c10::StorageImpl*>;

Storages storages_of(const std::vector<Node>& nodes, const Part& part) {
  Storages storages;
  for (size_t i = part.first_node; i < part.end_node; ++i) {
    for (const auto& [tensor, written] : nodes[i].tensors()) {
      storages.insert(tensor.storage().unsafeGetStorageImpl());
    }
  }
  return storages;
}

/// Returns an empty part that follows another one.
Part after(const Part& part) {
  return {part.end_node, part.end_node, part.end_signature, part.end_signature};
}

bool overlap(const Storages& some, const Storages& others) {
  return std::any_of(
      some.begin(), some.end(), [&](const auto* storage) { return others.count(storage) > 0; });
}

/// Lists the collectives that each part waits for. A part waits only for the collectives that no
/// earlier part has waited for. The last part waits for all.
void find_waits(std::vector<Part>& parts, const std::vector<Node>& nodes) {
  std::map<size_t, Storages> running;
  for (size_t i = 0; i < parts.size(); ++i) {
    const Storages used = storages_of(nodes, parts[i]);
    for (auto each = running.begin(); each != running.end();) {
      if (overlap(each->second, used)) {
        parts[i].waits.push_back(each->first);
        each = running.erase(each);
      } else {
        ++each;
      }
    }
    if (parts[i].is_collective) {
      running.emplace(i, used);
    }
  }
  if (!running.empty()) {
    Part& last = parts.emplace_back(after(parts.back()));
    for (const auto& [part, storages] : running) {
      last.waits.push_back(part);
    }
  }
}

}  // namespace

std::vector<Part> parts_of(const recorder::Captured& captured) {
  std::vector<Part> parts;
  Part next{0, 0, 0, 0};
  const auto add_operations = [&](size_t end_node, size_t end_signature) {
    next.end_node = end_node;
    next.end_signature = end_signature;
    if (parts.empty() || next.first_node < end_node || next.first_signature < end_signature) {
      parts.push_back(next);
    }
  };
  for (const recorder::CapturedCollective& at : captured.collectives) {
    add_operations(at.node, at.signature);
    parts.push_back(
        {at.node, at.node + 1, at.signature, at.signature, /*is_collective=*/true, at.exchange});
    next = after(parts.back());
  }
  add_operations(captured.nodes.size(), captured.signatures.size());
  find_waits(parts, captured.nodes);
  return parts;
}

RunningCollectives::RunningCollectives(
    const std::vector<recorder::CapturedCollective>& captured) {
  for (const recorder::CapturedCollective& each : captured) {
    if (each.work) {
      running_.emplace(running_.size(), each.work);
    }
  }
}

void RunningCollectives::start(size_t number, const Part& part, const Node& node) {
  TORCH_CHECK(!recorder::capturing(), "GRAPH:: Capture in progress");
  const prices::CalledAgain called(part.exchange);
  torch::jit::Stack stack = node.arguments;
  node.op.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::HPU), &stack);
  running_.emplace(number, stack.back().toCustomClass<c10d::Work>());
}

void RunningCollectives::wait_for(size_t number) {
  running_.at(number)->wait();
  running_.erase(number);
}

void RunningCollectives::wait_for_earlier() {
  for (; !running_.empty(); running_.erase(running_.begin())) {
    try {
      running_.begin()->second->wait();
    } catch (...) {
      rethrow_interrupt();
    }
  }
}

}  // namespace hpu
