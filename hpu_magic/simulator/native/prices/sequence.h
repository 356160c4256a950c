// Operators that ran on the device, described by the sizes and types of their operands. A price
// source outside the simulator determines how long they would take on a card.
#pragma once

#include "clock/clock.h"

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>

#include <cstdint>
#include <functional>
#include <string>
#include <unordered_map>
#include <vector>

namespace hpu::prices {

using WeakStorage = c10::weak_intrusive_ptr<c10::StorageImpl>;
using WeakTensor = c10::weak_intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl>;

/// A device tensor that an operator reads or writes.
struct Operand {
  WeakStorage storage;
  std::vector<int64_t> sizes;
  c10::ScalarType dtype;
  int64_t elements;  // how many elements of its storage the tensor covers
  int64_t bytes;     // size of the storage
  WeakTensor base;   // the tensor, or the one that it views
};

/// An operator call.
struct Operation {
  c10::OperatorHandle op;
  std::vector<Operand> reads{};
  std::vector<Operand> writes{};
  bool is_view = false;
  std::vector<c10::IValue> arguments{};  // without tensors
  int64_t host_bytes = 0;  // bytes that the operator copies from or to CPU tensors
};

/// The number of references that the engine itself holds to each storage.
using Handles = std::unordered_map<const c10::StorageImpl*, size_t>;

/// Calls that run together, with the storages that they share.
class Sequence {
 public:
  /// Adds a call; `signature` identifies the operator and the sizes and types of its operands.
  void add(uint64_t signature, Operation operation);

  bool empty() const {
    return operations_.empty();
  }

  /// Launches the calls as one graph. The price of the graph is determined the first time.
  /// `handles` returns the engine's own references to storages; a storage without other references
  /// is a temporary result. Returns the signature of the graph.
  uint64_t launch_graph(const std::function<Handles()>& handles, bool runs = true) const;

  /// Launches the only call of this sequence as an operator, after determining its price.
  void launch_operator(uint64_t signature) const;

 private:
  struct Located {
    Operation operation;
    std::vector<size_t> reads;  // numbers of the storages
    std::vector<size_t> writes;
  };
  struct Storage {
    WeakStorage storage;
    int64_t bytes;
    c10::ScalarType dtype;
    WeakTensor base;
  };

  size_t locate(const Operand& operand);
  void ask(uint64_t signature, const std::string& name, bool graph, const Handles& handles) const;
  std::vector<Located> operations_;
  std::vector<uint32_t> labels_;  // of the operations; not part of the signature
  std::vector<Storage> storages_;
  std::unordered_map<const c10::StorageImpl*, size_t> numbers_;
  uint64_t hash_ = 0x67726170;
};

/// Combines a hash with a 64-bit word.
inline uint64_t mixed(uint64_t hash, uint64_t word) {
  hash = (hash ^ word) * 0xff51afd7ed558ccd;
  return hash ^ hash >> 32;
}

}  // namespace hpu::prices
