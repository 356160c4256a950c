#include "collectives/backend.h"

#include "memory/memory.h"
#include "memory/skipping.h"
#include "prices/source.h"
#include "threads/interpreter.h"

#include <c10/util/Exception.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <thread>

namespace hpu::collectives {
namespace {

std::string numbered(const Call& call) {
  return call.number > 0 ? c10::str(call.name, " number ", call.number) : call.name;
}

int64_t bytes_of(const Call& call) {
  const Subject& subject = call.subject;
  return call.bytes >= 0
      ? call.bytes
      : std::max<int64_t>(subject.elements, 0) *
          static_cast<int64_t>(c10::elementSize(subject.dtype));
}

std::string words_of(const std::exception_ptr& failure) {
  try {
    std::rethrow_exception(failure);
  } catch (const c10::Error& error) {
    return error.what_without_backtrace();
  } catch (const std::exception& error) {
    return error.what();
  }
}

}  // namespace

constexpr const char* kLeft = "this rank has left it.";

/// State that Work objects need even after their process group has been destroyed. After a failure,
/// the connections are closed, so that the ranks that are waiting for this rank get an error.
struct Hccl::State {
  State(
      c10::intrusive_ptr<c10d::Backend> transport, Explain why,
      std::shared_ptr<Announcements> announced)
      : explain(std::move(why)),
        announcements(std::move(announced)),
        transport_(std::move(transport)) {}
  ~State() {
    give_up("");
  }

  /// Returns the transport. Throws an error if the group has failed.
  c10::intrusive_ptr<c10d::Backend> transport() {
    const std::lock_guard<std::mutex> guard(mutex_);
    if (!transport_) {
      C10_THROW_ERROR(
          DistBackendError,
          "This process group has failed and can no longer run collectives: " +
              failure_);
    }
    return transport_;
  }

  /// Announces a call. Throws an error if another rank's call does not match this call.
  void announce(const Call& call) {
    announcements->announce(call);
    if (auto others = announcements->differing(call); !others.empty()) {
      std::rethrow_exception(failed(call, "", std::move(others)));
    }
  }

  double last_ready(const Call& call) const {
    return announcements->last_ready(call);
  }

  std::exception_ptr failed(const Call& call, const std::exception_ptr& failure) {
    return failed(call, words_of(failure), announcements->differing(call));
  }

  /// Closes the connections. Must not be called on one of the transport's threads.
  void close() {
    const std::lock_guard<std::mutex> guard(mutex_);
    failure_ = kLeft;
    transport_.reset();
  }

  /// Closes the connections while collectives are running.
  void leave() {
    give_up(kLeft);
  }

 private:
  std::exception_ptr failed(
      const Call& call, std::string words, std::map<int, std::string> others) {
    const std::string sentence =
        explain({numbered(call), std::move(words), described(call), std::move(others)});
    give_up(sentence);
    return std::make_exception_ptr(c10::DistBackendError(
        {__func__, __FILE__, static_cast<uint32_t>(__LINE__)}, sentence));
  }

  void give_up(const std::string& failure) {
    c10::intrusive_ptr<c10d::Backend> given_up;
    {
      const std::lock_guard<std::mutex> guard(mutex_);
      given_up = std::move(transport_);
      if (given_up) {
        failure_ = failure;
      }
    }
    if (given_up) {
      // The transport's destructor waits for its threads, and this thread may be one of them.
      std::thread([transport = std::move(given_up)]() mutable { transport.reset(); }).detach();
    }
  }

  const Explain explain;
  const std::shared_ptr<Announcements> announcements;
  std::mutex mutex_;
  c10::intrusive_ptr<c10d::Backend> transport_;
  std::string failure_;
};

/// The running steps of a collective, owned by the threads that complete them.
class Hccl::Pending {
 public:
  static std::shared_ptr<Pending> make(
      std::shared_ptr<State> state, Operands operands, std::vector<Step> steps) {
    return {new Pending(std::move(state), std::move(operands), std::move(steps)), &drop};
  }

  const std::vector<Step>& steps() const {
    return steps_;
  }

  /// Completes one step. The last step to complete also completes `work`.
  void end(const std::exception_ptr& with) {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      if (with && !failure_) {
        failure_ = with;
      }
      if (--left_ > 0) {
        return;
      }
    }
    const InterpreterGuard guard;
    const auto failure = failure_ ? state_->failed(work->call(), failure_) : finish();
    if (guard) {  // free the memory before others see that the work is complete
      steps_.clear();
      operands_ = {};
    }
    work->end(failure, state_->last_ready(work->call()));
  }

  c10::intrusive_ptr<Work> work;

 private:
  Pending(std::shared_ptr<State> state, Operands operands, std::vector<Step> steps)
      : state_(std::move(state)),
        operands_(std::move(operands)),
        steps_(std::move(steps)),
        left_(steps_.size()) {}

  /// Deletes a collective. An interpreter guard is needed because the collective's tensors may have
  /// Python objects.
  static void drop(const Pending* pending) {
    if (const InterpreterGuard guard; guard) {
      delete pending;
    }
  }

  std::exception_ptr finish() {
    try {
      for (const Step& step : steps_) {
        if (step.finish) {
          step.finish();
        }
      }
      operands_.finish();
      return nullptr;
    } catch (...) {
      return std::current_exception();
    }
  }

  const std::shared_ptr<State> state_;
  Operands operands_;
  std::vector<Step> steps_;
  size_t left_;
  std::mutex mutex_;
  std::exception_ptr failure_;
};

Hccl::Hccl(
    c10::intrusive_ptr<c10d::Backend> transport, int rank, int size, int stride,
    std::chrono::milliseconds timeout, Explain explain,
    std::shared_ptr<Announcements> announcements)
    : c10d::Backend(rank, size),
      state_(std::make_shared<State>(
          std::move(transport), std::move(explain), std::move(announcements))),
      stride_(stride),
      process_(getpid()),
      timeout_(timeout) {}

Hccl::~Hccl() {
  if (state_.use_count() == 1) {  // no collective is running
    const WithoutGil released;
    state_->close();
  }
}

void Hccl::shutdown() {
  const WithoutGil released;
  // A collective may still use the state for a short time after it has completed.
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(1);
  while (state_.use_count() > 1 && std::chrono::steady_clock::now() < until) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  if (state_.use_count() == 1) {
    state_->close();
  } else {
    state_->leave();
  }
}

uint64_t Hccl::getSequenceNumberForGroup() {
  return sequence_;
}

Call Hccl::next(c10d::OpType type, const char* name, Subject subject, int64_t bytes) {
  return {type, name, ++sequence_, subject, bytes};
}

Call Hccl::next_message(
    c10d::OpType type, const char* name, int peer, int tag, int64_t bytes) {
  TORCH_CHECK(
      peer >= 0 && peer < size_ && peer != rank_, "hccl's ", name, " needs another rank of the ",
      size_, " in its group, but rank ", rank_, " specified ", peer, ".");
  Call call{type, name, 0, {}, bytes};
  call.message = {peer, tag, ++messages_[{type, peer, tag}]};
  return call;
}

Hccl::Started Hccl::launch(
    Call call, Tensors outputs, Operands operands, std::vector<Step> steps) {
  TORCH_CHECK(
      getpid() == process_,
      "This process was forked from process ", process_, " and cannot use its process group: call ",
      "init_process_group in this process, or start it with the method \"spawn\".");
  const WithoutGil released;
  operands.settle();
  const auto transfer = prices::launch_transfer(
      {call.name, bytes_of(call), steps.size(), size_, stride_}, /*is_message=*/call.number == 0);
  if (transfer) {
    call.ready = transfer->ready;
  }
  const auto started_work = [&] {
    auto work = Work::start(rank_, call, outputs);
    if (transfer) {
      work->set_transfer(*transfer);
    }
    if (coalesced_) {
      coalesced_->push_back(work);
    }
    return work;
  };
  if (skipping::dry_run()) {
    return assume(started_work(), outputs, std::move(operands), steps);
  }
  const auto transport = state_->transport();
  call.place = call.number > 0 ? ++begun_ : 0;
  state_->announce(call);
  const auto pending = Pending::make(state_, std::move(operands), std::move(steps));
  std::vector<Started> started;
  try {
    for (const Step& step : pending->steps()) {
      started.push_back(step.start(*transport));
    }
  } catch (...) {
    for (const Started& work : started) {  // keep the memory of the steps that have started
      on_completion(work, [pending](const std::exception_ptr&) {});
    }
    throw;
  }
  auto work = started_work();
  pending->work = work;
  if (started.empty()) {
    work->end(nullptr);
  }
  for (const Started& step : started) {
    on_completion(step, [pending](const std::exception_ptr& with) { pending->end(with); });
  }
  return work;
}

Hccl::Started Hccl::assume(
    const c10::intrusive_ptr<Work>& work, const Tensors& outputs, Operands operands,
    const std::vector<Step>& steps) {
  const Call& call = work->call();
  const bool computed =
      std::all_of(steps.begin(), steps.end(), [](const Step& step) { return step.is_computed; });
  if (computed && operands.known()) {  // the transport copies this rank's values
    for (const Step& step : steps) {
      step.start(*state_->transport());
      if (step.finish) {
        step.finish();
      }
    }
    operands.finish();
  } else if (call.type != c10d::OpType::BROADCAST || call.subject.root != rank_) {
    for (const at::Tensor& output : outputs) {
      assumption_of(output.storage())->assumed = true;
    }
  }
  work->end(nullptr);
  return work;
}

void Hccl::startCoalescing() {
  coalesced_ = std::make_unique<std::vector<c10::intrusive_ptr<Work>>>();
}

/// Returns a single Work object for all collectives since startCoalescing().
Hccl::Started Hccl::endCoalescing() {
  TORCH_CHECK(coalesced_, "Call startCoalescing() before endCoalescing().");
  const auto parts = std::move(coalesced_);
  auto work = Work::start(rank_, {c10d::OpType::COALESCED, "coalesced operations", sequence_}, {});
  if (parts->empty()) {
    work->end(nullptr);
  }
  struct Left {
    std::mutex mutex;
    size_t count;
    std::exception_ptr failure;
    double end_on_card = 0;
  };
  const auto left = std::make_shared<Left>();
  left->count = parts->size();
  for (const c10::intrusive_ptr<Work>& part : *parts) {
    part->getFuture()->addCallback([left, work, part](c10::ivalue::Future& ended) {
      std::unique_lock<std::mutex> lock(left->mutex);
      if (ended.hasError() && !left->failure) {
        left->failure = ended.exception_ptr();
      }
      left->end_on_card = std::max(left->end_on_card, part->end_on_card());
      if (--left->count == 0) {
        lock.unlock();
        work->set_transfer({left->end_on_card});
        work->end(left->failure);
      }
    });
  }
  return work;
}

}  // namespace hpu::collectives
