#include "prices/sequence.h"

#include "prices/source.h"

namespace hpu::prices {

size_t Sequence::locate(const Operand& operand) {
  const auto* key = operand.storage._unsafe_get_target();
  const auto [entry, fresh] = numbers_.try_emplace(key, storages_.size());
  if (fresh) {
    storages_.push_back({operand.storage, operand.bytes, operand.dtype, operand.base});
  }
  return entry->second;
}

void Sequence::add(uint64_t signature, Operation operation) {
  hash_ = mixed(hash_, signature);
  Located located{std::move(operation)};
  for (const Operand& operand : located.operation.reads) {
    located.reads.push_back(locate(operand));
    hash_ = mixed(hash_, located.reads.back());
  }
  for (const Operand& operand : located.operation.writes) {
    located.writes.push_back(locate(operand));
    hash_ = mixed(hash_, located.writes.back());
  }
  operations_.push_back(std::move(located));
  labels_.push_back(clock::current_label());
}

uint64_t Sequence::launch_graph(const std::function<Handles()>& handles, bool runs) const {
  if (runs ? clock::launch(hash_, labels_) : clock::knows(hash_)) {
    return hash_;
  }
  const std::string name =
      "graph of " + std::to_string(operations_.size()) + " operators";
  ask(hash_, name, /*graph=*/true, handles());
  if (runs) {
    clock::launch(hash_, labels_);
  }
  return hash_;
}

void Sequence::launch_operator(uint64_t signature) const {
  const c10::OperatorName& name = operations_.front().operation.op.operator_name();
  ask(signature, c10::toString(name), /*graph=*/false, {});
  clock::launch(signature);
}

void Sequence::ask(
    uint64_t signature, const std::string& name, bool graph, const Handles& handles) const {
  std::vector<Question::Operation> operations;
  for (const Located& each : operations_) {
    operations.push_back({each.operation, each.reads, each.writes});
  }
  std::vector<Question::Storage> storages;
  for (const Storage& each : storages_) {
    const auto found = handles.find(each.storage._unsafe_get_target());
    const size_t own = found == handles.end() ? 0 : found->second;
    storages.push_back(
        {each.bytes, each.dtype, each.storage.use_count() > own, each.base});
  }
  if (const auto price = ask_source({operations, storages, graph})) {
    clock::learn(signature, name, *price);
  } else {
    clock::learn_unpriced(signature, name);
  }
}

}  // namespace hpu::prices
