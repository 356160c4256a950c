// The graph that lazy mode records: its operations and a signature that identifies it.
#pragma once

#include "calls/host_call.h"
#include "events/events.h"
#include "lazy/inference.h"

#include <c10/core/DefaultDtype.h>

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

namespace hpu {

/// A recorded operation. The tensors in a node are the recorder's own handles, which keep their
/// sizes and strides even if the user's tensors change.
struct Node {
  c10::OperatorHandle op;
  torch::jit::Stack arguments;
  std::vector<at::Tensor> outputs;
  std::vector<Resized> resized;  // applied to the handles when the node runs
  bool uses_trained = false;  // see lazy/known_values.h; false outside of dry runs
  std::shared_ptr<const events::CallerLines> lines{};  // see lazy/assumed_indices.h
  bool is_collective = false;  // collectives do not declare which arguments they write
  c10::ScalarType default_dtype = c10::get_default_dtype_as_scalartype();

  static Node of_collective(
      const c10::OperatorHandle& op, c10::ArrayRef<c10::IValue> arguments);

  void run() const;
  /// Writes zeros to the outputs instead of running the operation.
  void skip() const;
  /// Returns the device tensors among the arguments and outputs, each with a flag that is true if
  /// the operation writes to it.
  std::vector<std::pair<at::Tensor, bool>> tensors() const;
};

class RecordedGraph {
 public:
  explicit RecordedGraph(uint64_t number) : number_(number) {}

  /// Appends a call and pushes its results: the written arguments, and pending tensors for new
  /// results. Resizes written arguments.
  void add(
      const c10::OperatorHandle& op, const torch::jit::Stack& arguments,
      const Inference& inference, uint64_t signature, torch::jit::Stack* stack);

  /// Returns whether a recorded operation reads or writes the storage.
  bool uses(const c10::Storage& storage) const;

  uint64_t number() const {
    return number_;
  }
  uint64_t hash() const {
    return hash_;
  }
  /// Returns the first tensor that uses each storage, for storages that the graph reads before it
  /// writes them.
  const std::vector<at::Tensor>& inputs() const {
    return inputs_;
  }
  std::vector<Node> nodes;

 private:
  void use(const at::Tensor& tensor, bool written);
  at::Tensor held(const at::Tensor& tensor, bool written);
  c10::IValue held(c10::IValue value, bool written);
  at::Tensor pending_result(const Geometry& geometry, Node& node);
  void push_results(
      const Inference& inference, Node& node, const torch::jit::Stack& call,
      torch::jit::Stack* stack);

  uint64_t number_;
  uint64_t storages_ = 0;
  uint64_t hash_ = 0;
  std::vector<at::Tensor> inputs_;
};

}  // namespace hpu
