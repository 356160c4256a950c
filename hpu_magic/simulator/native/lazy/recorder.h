// Lazy mode: operations are recorded with the shapes of their results and run together later.
#pragma once

#include "lazy/recorded_graph.h"
#include "threads/interpreter.h"
#include "threads/locks.h"

#include <torch/csrc/distributed/c10d/Work.hpp>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace hpu {

namespace recorder {

/// Why recorded work must run now. A capture allows only `mark_step`.
enum class Cause { mark_step, host_read, host_write, fallback, data_dependent_shape };

/// Locks the recorder and, in lazy mode, all device memory: no other thread can record, run,
/// replay, read or write.
class Lock {
 public:
  Lock() {
    locks::recorder.lock();
  }
  ~Lock() {
    locks::recorder.unlock();
  }
  Lock(const Lock&) = delete;
  Lock& operator=(const Lock&) = delete;
};

/// Enables lazy mode. Called when the engine is loaded. If `captures_collectives` is true, HPU
/// Graphs can contain collectives.
void enable(size_t most_operations, bool captures_collectives);
bool enabled();

/// Records an operator, or runs it immediately if its results cannot be determined without running
/// it.
void record(const c10::OperatorHandle& op, torch::jit::Stack* stack);

/// Runs the recorded operations and raises their errors; see UnfinishedWork.
void flush(Cause cause, const std::string& operation = "");

/// Flushes if recorded operations use the tensor's storage.
void flush_users_of(const at::Tensor& tensor, Cause cause, const std::string& operation);

/// Like `flush_users_of`, for a tensor that the host is about to read. Not allowed during a
/// capture.
void flush_before_read(const at::Tensor& tensor, const std::string& operation);

/// Like `flush_users_of`, for a tensor that the host is about to write. During a capture, this is
/// allowed only for a tensor without memory, which becomes a constant of the graph.
void flush_before_write(const at::Tensor& tensor, const std::string& operation);

size_t pending();

/// Returns the number of cached graphs.
size_t recipe_count();

/// Clears the recipe cache, so every graph is recompiled the next time it runs.
void clear_recipes();

/// A node of an HPU Graph that is a collective.
struct CapturedCollective {
  size_t node;
  size_t signature;  // the number of earlier signatures
  std::optional<std::string> exchange;  // see prices::exchange_of_caller
  c10::intrusive_ptr<c10d::Work> work{};  // started during the capture, unless that is a dry run
};

/// The operations of an HPU Graph, and the signatures that the clock uses to look up their times.
struct Captured {
  std::vector<Node> nodes{};
  std::vector<uint64_t> signatures{};
  std::vector<CapturedCollective> collectives{};
};

/// Begins the capture of an HPU Graph and returns its number.
size_t begin_capture(bool dry_run);
/// Returns the operations of this capture, or none if it was abandoned.
Captured end_capture(size_t number);
/// Ends this capture without a result. The captured operations still run, except in a dry run,
/// whose results are discarded.
void abandon(size_t number);
bool capturing();
bool capturing(size_t number);

/// Returns whether a capture is in progress and can include collectives.
bool captures_collectives();

/// Adds a collective to the capture in progress, and interrupts the capture while the collective
/// starts.
class CollectiveCapture {
 public:
  CollectiveCapture(const c10::OperatorHandle& op, c10::ArrayRef<c10::IValue> arguments);
  ~CollectiveCapture();
  CollectiveCapture(const CollectiveCapture&) = delete;
  CollectiveCapture& operator=(const CollectiveCapture&) = delete;

  /// Returns whether the collective must not run, because the capture is a dry run.
  bool is_dry_run() const;
  void started(c10::intrusive_ptr<c10d::Work> work);

 private:
  const WithoutGil released_;
  const Lock lock_;
};

}  // namespace recorder
}  // namespace hpu
