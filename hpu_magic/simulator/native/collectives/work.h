// A collective on its way, in the form in which torch.distributed hands it out.
#pragma once

#include <torch/csrc/distributed/c10d/Work.hpp>

#include <functional>
#include <string>
#include <vector>

namespace hpu::collectives {

/// What all ranks must bring alike: how much, and the root; -1 where that is open.
struct Subject {
  int64_t elements = -1;
  c10::ScalarType dtype = c10::ScalarType::Byte;
  int root = -1;
};

/// What a collective is called, and its number among those of its group; 0 for a message from one
/// rank to another.
struct Call {
  c10d::OpType type;
  const char* name;
  uint64_t number;
  Subject subject{};
  uint64_t place = 0;  // among those of its group that this rank has begun; 0 for a message
};

class Work final : public c10d::Work {
 public:
  /// `outputs` are what the caller finds the results in.
  static c10::intrusive_ptr<Work> start(int rank, Call call, std::vector<at::Tensor> outputs);
  Work(int rank, Call call, std::vector<at::Tensor> outputs);

  /// Ends it, with an error unless `failure` is null.
  void end(const std::exception_ptr& failure);

  /// Like the base's, and Ctrl-C ends the wait; the collective itself goes on.
  bool wait(std::chrono::milliseconds timeout = kNoTimeout) override;
  void synchronize() override {}
  void abort() override {}
  std::vector<at::Tensor> result() override;
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;
  uint64_t getSequencenumber() const override;

  const Call& call() const {
    return call_;
  }

 private:
  const Call call_;
  const std::vector<at::Tensor> outputs_;
  const c10::intrusive_ptr<c10::ivalue::Future> future_;
};

/// Calls `then` once with what `transport` ended with: null, or its error. On which thread is open.
void when_ended(
    const c10::intrusive_ptr<c10d::Work>& transport, std::function<void(std::exception_ptr)> then);

}  // namespace hpu::collectives
