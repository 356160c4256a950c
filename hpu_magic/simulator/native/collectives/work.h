// Running collectives, which implement the Work interface of torch.distributed.
#pragma once

#include "clock/clock.h"

#include <torch/csrc/distributed/c10d/Work.hpp>

#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace hpu::collectives {

/// The properties that must be the same in the calls of all ranks. -1 means that a property is not
/// compared.
struct Subject {
  int64_t elements = -1;
  c10::ScalarType dtype = c10::ScalarType::Byte;
  int root = -1;
};

/// Identifies a point-to-point message in its process group.
struct Message {
  int peer = -1;  // the other rank
  int tag = 0;
  uint64_t number = 0;  // position among the messages with this tag in the same direction
};

/// A collective or a message. Only collectives have a sequence number in their process group; the
/// number of a message is 0.
struct Call {
  c10d::OpType type;
  const char* name;
  uint64_t number;
  Subject subject{};
  int64_t bytes = -1;  // size of this rank's data, if `subject` does not contain it
  // The position of this call among the collectives that this rank started in the group; 0 for a
  // message.
  uint64_t place = 0;
  // The time on the card's clock when this rank is ready; negative if the clock is off.
  double ready = -1;
  Message message{};
};

class Work final : public c10d::Work {
 public:
  /// `outputs` are the tensors that receive the results.
  static c10::intrusive_ptr<Work> start(int rank, Call call, std::vector<at::Tensor> outputs);
  Work(int rank, Call call, std::vector<at::Tensor> outputs);

  /// Sets the time that the work takes on the card's clock. Called before the work can complete.
  void set_transfer(const clock::Transfer& transfer) {
    transfer_ = transfer;
  }

  /// Completes the work, with an error unless `failure` is null. `slowest` is the time on the
  /// card's clock when the last rank, or the sender of a message, was ready.
  void end(const std::exception_ptr& failure, double slowest = 0);

  /// Returns the time on the card's clock when the completed work ended, or 0 if the clock was off.
  double end_on_card() const {
    return end_on_card_;
  }

  /// Like the base class's function, except that Ctrl-C interrupts the wait. The collective itself
  /// continues.
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
  std::optional<clock::Transfer> transfer_;
  double end_on_card_ = 0;  // does not change after the work has completed
};

/// Waits until all collectives of this process have completed, with or without an error, like
/// synchronizing all streams of a card. Rethrows an exception that was raised by a signal handler.
void wait_for_all();

/// Calls `then` once, on any thread, when `transport` completes. The argument of `then` is the
/// error, or null if there is none.
void on_completion(
    const c10::intrusive_ptr<c10d::Work>& transport, std::function<void(std::exception_ptr)> then);

}  // namespace hpu::collectives
