#include "lazy/unfinished_work.h"

#include "memory/memory.h"

#include <unordered_set>

namespace hpu {
namespace {

Failures::Cause cause_of(const std::string& error) {
  return {
      std::make_shared<const std::string>(
          "This tensor was never computed: the graph that computes it failed with: " + error),
      std::make_shared<const std::string>(
          "This tensor was not written: the graph that writes it failed with: " + error +
          ". Overwrite the whole tensor, for example with copy_ or zero_, to use it again.")};
}

void fail_node(const Node& node, const Failures::Cause& cause) {
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

}  // namespace

void Failures::add(const Node& node, const std::exception& error) {
  first_ = first_ ? first_ : std::current_exception();
  fail_node(node, inherited(node, error));
}

void Failures::rethrow_first() const {
  if (first_) {
    std::rethrow_exception(first_);
  }
}

Failures::Cause Failures::inherited(const Node& node, const std::exception& error) {
  for (const auto& [tensor, written] : node.tensors()) {
    if (const auto reason = failure_of(tensor.storage())) {
      for (const Cause& cause : causes_) {
        if (cause.never_computed == reason || cause.not_written == reason) {
          return cause;
        }
      }
      return {reason, reason};  // from an earlier run
    }
  }
  causes_.push_back(cause_of(what_of(error)));
  return causes_.back();
}

void fail_results(c10::ArrayRef<Node> nodes, const std::string& error) {
  const Failures::Cause cause = cause_of(error);
  for (const Node& node : nodes) {
    for (const at::Tensor& output : node.outputs) {
      if (output.defined() && !has_memory(output.storage())) {
        fail(output, cause.never_computed);
      }
    }
  }
}

void fail_results(
    c10::ArrayRef<Node> nodes, const std::exception& error, c10::ArrayRef<c10::Storage> made) {
  const Failures::Cause cause = cause_of(what_of(error));
  std::unordered_set<const c10::StorageImpl*> storages;
  for (const c10::Storage& storage : made) {
    storages.insert(storage.unsafeGetStorageImpl());
  }
  for (const Node& node : nodes) {
    for (const auto& [tensor, written] : node.tensors()) {
      if (written && storages.count(tensor.storage().unsafeGetStorageImpl()) > 0) {
        fail(tensor, cause.never_computed);
      }
    }
  }
}

}  // namespace hpu
