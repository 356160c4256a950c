// The hccl backend of torch.distributed, which provides the vendor's collectives on device tensors.
// Another backend, called the transport, executes the collectives on the memory of the tensors.
#pragma once

#include "collectives/announcements.h"
#include "collectives/operands.h"
#include "collectives/work.h"

#include <torch/csrc/distributed/c10d/Backend.hpp>

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <tuple>
#include <vector>

namespace hpu::collectives {

/// Describes a collective that failed.
struct Failure {
  std::string call;  // name and number
  std::string message;  // the transport's error message; empty if the transport was not called
  std::string description;  // description of this rank's call
  std::map<int, std::string> others;  // calls of other ranks that do not match, by rank
};

/// Returns the error message for a failure.
using Explain = std::function<std::string(const Failure& failure)>;

class Hccl final : public c10d::Backend {
 public:
  using Tensors = std::vector<at::Tensor>;
  using Started = c10::intrusive_ptr<c10d::Work>;

  Hccl(
      c10::intrusive_ptr<c10d::Backend> transport, int rank, int size, int stride,
      std::chrono::milliseconds timeout, Explain explain,
      std::shared_ptr<Announcements> announcements);
  ~Hccl() override;

  const std::string getBackendName() const override {
    return "hccl";
  }
  uint64_t getSequenceNumberForGroup() override;
  void setSequenceNumberForGroup() override {}

  // The oldest supported release of PyTorch does not call these functions.
  bool supportsCoalescing() const {
    return true;
  }
  c10::intrusive_ptr<Options> getBackendOptions() {
    return c10::make_intrusive<Options>("hccl", timeout_);
  }
  void setTimeout(std::chrono::milliseconds timeout) {
    timeout_ = timeout;
  }
  /// Closes the connections, so that the ranks that are waiting for this one get an error.
  void shutdown();
  void abort() {
    shutdown();
  }
  void startCoalescing() override;
  Started endCoalescing() override;

  Started broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) override;
  Started allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) override;
  Started allreduce_coalesced(
      Tensors& tensors, const c10d::AllreduceCoalescedOptions& options) override;
  Started reduce(Tensors& tensors, const c10d::ReduceOptions& options) override;
  Started allgather(
      std::vector<Tensors>& outputs, Tensors& inputs,
      const c10d::AllgatherOptions& options) override;
  Started _allgather_base(
      at::Tensor& output, at::Tensor& input, const c10d::AllgatherOptions& options) override;
  Started allgather_coalesced(
      std::vector<Tensors>& outputs, Tensors& inputs,
      const c10d::AllgatherOptions& options) override;
  Started allgather_into_tensor_coalesced(
      Tensors& outputs, Tensors& inputs, const c10d::AllgatherOptions& options) override;
  Started gather(
      std::vector<Tensors>& outputs, Tensors& inputs, const c10d::GatherOptions& options) override;
  Started scatter(
      Tensors& outputs, std::vector<Tensors>& inputs,
      const c10d::ScatterOptions& options) override;
  Started reduce_scatter(
      Tensors& outputs, std::vector<Tensors>& inputs,
      const c10d::ReduceScatterOptions& options) override;
  Started _reduce_scatter_base(
      at::Tensor& output, at::Tensor& input, const c10d::ReduceScatterOptions& options) override;
  Started reduce_scatter_tensor_coalesced(
      Tensors& outputs, Tensors& inputs, const c10d::ReduceScatterOptions& options) override;
  Started alltoall_base(
      at::Tensor& output, at::Tensor& input, std::vector<int64_t>& output_rows,
      std::vector<int64_t>& input_rows, const c10d::AllToAllOptions& options) override;
  Started alltoall(
      Tensors& outputs, Tensors& inputs, const c10d::AllToAllOptions& options) override;
  Started send(Tensors& tensors, int destination, int tag) override;
  Started recv(Tensors& tensors, int source, int tag) override;
  Started recvAnysource(Tensors& tensors, int tag) override;
  Started barrier(const c10d::BarrierOptions& options) override;

 private:
  /// One collective that the transport executes. `finish` processes its results.
  struct Step {
    std::function<Started(c10d::Backend&)> start;
    std::function<void()> finish{};
    bool is_computed = true;  // in a dry run, if the values of the operands are known
  };
  struct State;
  class Pending;

  Call next(c10d::OpType type, const char* name, Subject subject = {}, int64_t bytes = -1);
  Call next_message(c10d::OpType type, const char* name, int peer, int tag, int64_t bytes);

  /// Returns the options, with the group's timeout if they do not specify one.
  template <class Options>
  Options limited(Options options) const {
    if (options.timeout == c10d::kUnsetTimeout) {
      options.timeout = timeout_;
    }
    return options;
  }

  /// Like `exchange`, but in a dry run, all other ranks are assumed to send this rank's values.
  Step exchange_or_repeat(
      const at::Tensor& from, const at::Tensor& to, const std::vector<int64_t>& sent,
      const std::vector<int64_t>& received, const c10d::AllToAllOptions& options) const;

  /// Sends a chunk of a tensor to each rank. `sent` and `received` are the sizes of the chunks in
  /// bytes, or empty if all chunks have the same size.
  static Step exchange(
      const at::Tensor& from, const at::Tensor& to, std::vector<int64_t> sent,
      std::vector<int64_t> received, const c10d::AllToAllOptions& options);

  // Collectives on one or more tensors, with a single Work object.
  Started reduce_each(
      c10d::OpType type, const char* name, const Tensors& tensors,
      const c10d::AllreduceOptions& requested);
  Started gather_each(
      c10d::OpType type, const char* name, const Tensors& outputs, const Tensors& inputs,
      const c10d::AllgatherOptions& requested);
  Started scatter_each(
      c10d::OpType type, const char* name, const Tensors& outputs, const Tensors& inputs,
      Operands operands, const c10d::ReduceScatterOptions& requested);

  /// Runs the recorded operations of lazy mode, then starts all steps of a collective. The returned
  /// work completes when all steps have completed.
  Started launch(Call call, Tensors outputs, Operands operands, std::vector<Step> steps);

  /// Completes a collective in a dry run, in which this rank represents all ranks.
  Started assume(
      const c10::intrusive_ptr<Work>& work, const Tensors& outputs, Operands operands,
      const std::vector<Step>& steps);

  const std::shared_ptr<State> state_;  // outlives the group while collectives are running
  const int stride_;  // distance between neighboring ranks of the group
  const int process_;  // the process that belongs to the group, unlike its forked children
  std::chrono::milliseconds timeout_;
  uint64_t sequence_ = 0;
  uint64_t begun_ = 0;
  std::map<std::tuple<c10d::OpType, int, int>, uint64_t> messages_;  // by direction, peer and tag
  std::unique_ptr<std::vector<c10::intrusive_ptr<Work>>> coalesced_;
};

}  // namespace hpu::collectives
