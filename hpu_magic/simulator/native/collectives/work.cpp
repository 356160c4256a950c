#include "collectives/work.h"

#include "threads/interpreter.h"
#include "threads/locks.h"

#include <ATen/core/ivalue.h>
#include <torch/csrc/distributed/c10d/Types.hpp>

#include <algorithm>
#include <thread>

namespace hpu::collectives {
namespace {

constexpr auto kWaitInterval = std::chrono::milliseconds(100);  // how long Ctrl-C may be delayed

// Leaked on purpose, because threads may complete collectives until the process ends.
auto* outstanding = new std::vector<c10::intrusive_ptr<Work>>;

c10::intrusive_ptr<Work> any_outstanding() {
  const std::lock_guard<locks::Brief> guard(locks::collectives);
  return outstanding->empty() ? nullptr : outstanding->front();
}

/// Removes a Work object from the list and returns it, so that the caller can free it without
/// holding the lock.
c10::intrusive_ptr<Work> forget(const Work* work) {
  const std::lock_guard<locks::Brief> guard(locks::collectives);
  const auto found = std::find_if(
      outstanding->begin(), outstanding->end(),
      [work](const auto& other) { return other.get() == work; });
  if (found == outstanding->end()) {
    return {};
  }
  auto held = std::move(*found);
  outstanding->erase(found);
  return held;
}

bool is_message(c10d::OpType type) {
  return type == c10d::OpType::SEND || type == c10d::OpType::RECV;
}

}  // namespace

c10::intrusive_ptr<Work> Work::start(int rank, Call call, std::vector<at::Tensor> outputs) {
  auto work = c10::make_intrusive<Work>(rank, call, std::move(outputs));
  const std::lock_guard<locks::Brief> guard(locks::collectives);
  outstanding->push_back(work);
  return work;
}

Work::Work(int rank, Call call, std::vector<at::Tensor> outputs)
    : c10d::Work(rank, call.type),
      call_(call),
      outputs_(std::move(outputs)),
      future_(c10::make_intrusive<c10::ivalue::Future>(
          c10::ListType::create(c10::TensorType::get()))) {}

void Work::end(const std::exception_ptr& failure, double slowest) {
  const auto held = forget(this);
  if (transfer_ && !failure) {
    end_on_card_ = std::max(transfer_->ready, slowest) + transfer_->seconds;
    clock::occupy_links(end_on_card_);
  }
  finish(failure);
  if (failure) {
    future_->setErrorIfNeeded(failure);
  } else {
    future_->markCompleted(c10::IValue(outputs_));
  }
}

bool Work::wait(std::chrono::milliseconds timeout) {
  const WithoutGil released;
  const auto until = std::chrono::steady_clock::now() + timeout;
  Interruption interruption;
  std::unique_lock<std::mutex> lock(mutex_);
  while (!cv_.wait_for(lock, kWaitInterval, [this] { return completed_; })) {
    lock.unlock();
    interruption.check();
    TORCH_CHECK(
        timeout == kNoTimeout || std::chrono::steady_clock::now() < until, "The ", call_.name,
        " has not ended within ", timeout.count(), " ms.");
    lock.lock();
  }
  lock.unlock();
  future_->wait();  // end() completes it immediately afterwards, before it runs callbacks
  if (exception_) {
    std::rethrow_exception(exception_);
  }
  clock::join(end_on_card_);
  return true;
}

std::vector<at::Tensor> Work::result() {
  TORCH_CHECK(
      isCompleted(), "The ", call_.name, " has not completed: call wait() before result().");
  return outputs_;
}

c10::intrusive_ptr<c10::ivalue::Future> Work::getFuture() {
  return future_;
}

uint64_t Work::getSequencenumber() const {
  return call_.number;
}

void wait_for_all() {
  while (const auto work = any_outstanding()) {
    try {
      work->wait();
    } catch (...) {
      rethrow_interrupt();  // other errors are reported to the caller of work->wait()
    }
  }
  clock::join_links();
}

void on_completion(
    const c10::intrusive_ptr<c10d::Work>& transport,
    std::function<void(std::exception_ptr)> then) {
  if (!is_message(transport->retrieveOpType())) {
    transport->getFuture()->addCallback([then = std::move(then)](c10::ivalue::Future& ended) {
      then(ended.hasError() ? ended.exception_ptr() : nullptr);
    });
    return;
  }
  // The transport sends and receives messages only while a thread is waiting for them. The wait may
  // never end.
  std::thread([transport, then = std::move(then)] {
    std::exception_ptr failure;
    try {
      transport->wait();
    } catch (...) {
      failure = std::current_exception();
    }
    then(failure);
  }).detach();
}

}  // namespace hpu::collectives
