#include "lazy/unfinished_work.h"

#include "calls/host_call.h"
#include "lazy/interruption.h"
#include "memory/failure.h"
#include "memory/memory_reuse.h"

#include <algorithm>
#include <iterator>
#include <utility>
#include <unordered_map>
#include <unordered_set>

namespace hpu {
namespace {

using Reason = std::shared_ptr<const std::string>;

/// An error as the tensors tell it that suffer from it.
struct Cause {
  Reason never_computed;
  Reason not_written;
};

Cause cause_of(const std::string& error) {
  return {
      std::make_shared<const std::string>(
          "This tensor was never computed: the graph that it belongs to failed with: " + error),
      std::make_shared<const std::string>(
          "This tensor was not written: the graph that writes it failed with: " + error +
          ". Overwrite it as a whole, for example with copy_ or zero_, to use it again.")};
}

void fail_node(const Node& node, const Cause& cause) {
  for (const auto& [tensor, written] : node.tensors()) {
    if (written) {
      fail(tensor, has_memory(tensor.storage()) ? cause.not_written : cause.never_computed);
    }
  }
}

std::string what_of(const std::exception& error) {
  const auto* ours = dynamic_cast<const c10::Error*>(&error);
  return ours ? ours->what_without_backtrace() : error.what();
}

/// The failures of a run, each told in the words of the error that began it.
class Failures {
 public:
  void add(const Node& node, const std::exception& error) {
    fail_node(node, inherited(node, error));
  }

 private:
  Cause inherited(const Node& node, const std::exception& error) {
    for (const auto& [tensor, written] : node.tensors()) {
      if (const Reason reason = failure_of(tensor.storage())) {
        for (const Cause& cause : causes_) {
          if (cause.never_computed == reason || cause.not_written == reason) {
            return cause;
          }
        }
        return {reason, reason};  // of an earlier run
      }
    }
    causes_.push_back(cause_of(what_of(error)));
    return causes_.back();
  }

  std::vector<Cause> causes_;
};

bool draws(const Node& node) {
  const auto& arguments = node.op.schema().arguments();
  return std::any_of(arguments.begin(), arguments.end(), takes_generator);
}

const c10::StorageImpl* storage_of(const at::Tensor& tensor) {
  return tensor.storage().unsafeGetStorageImpl();
}

}  // namespace

void UnfinishedWork::add(std::vector<Node> nodes, uint64_t graph) {
  if (nodes_.empty()) {
    first_graph_ = graph;
  }
  std::move(nodes.begin(), nodes.end(), std::back_inserter(nodes_));
}

void UnfinishedWork::run(std::vector<Node>* ended) {
  if (std::exchange(interrupted_, false)) {
    drop_unseen();
  }
  Interruption interruption;
  const KeptMemory kept;
  Failures failures;
  std::exception_ptr first;
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
      first = first ? first : std::current_exception();
    }
    if (ended) {
      ended->push_back(std::move(node));
    }
  }
  if (first) {
    std::rethrow_exception(first);
  }
}

/// Drops nodes whose results nobody can see any more. Who runs a cell again after an interrupt
/// does not wait for what its first run recorded.
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
  return mark && !nodes_.empty() && mark->graph >= first_graph_;
}

void fail_results(c10::ArrayRef<Node> nodes, const std::string& error) {
  const Cause cause = cause_of(error);
  for (const Node& node : nodes) {
    for (const at::Tensor& output : node.outputs) {
      if (output.defined() && !has_memory(output.storage())) {
        fail(output, cause.never_computed);
      }
    }
  }
}

}  // namespace hpu
