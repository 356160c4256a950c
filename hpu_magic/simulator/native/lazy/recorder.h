// Lazy mode: operations are recorded with the shapes of their results and run together later.
#pragma once

#include "lazy/recorded_graph.h"
#include "threads/locks.h"

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace hpu {

namespace recorder {

/// Holds the recorder, and with it all device memory in lazy mode: nobody else records, runs,
/// replays, reads or writes meanwhile.
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

/// Why recorded work must run now. Inside a capture only `step` may happen.
enum class Cause { step, host_read, host_write, fallback, data_dependent_shape };

/// Switches lazy mode on, at load.
void enable(size_t most_operations);
bool enabled();

/// Records the operator, or runs it at once where only running it tells its results.
void record(const c10::OperatorHandle& op, torch::jit::Stack* stack);

/// Runs what was recorded. An operation's error surfaces here; see UnfinishedWork.
void flush(Cause cause, const std::string& operation = "");

/// Flushes if recorded work reads or writes the storage.
void flush_users_of(const at::Tensor& tensor, Cause cause, const std::string& operation);

/// The same for a tensor that the host is about to read, which no capture allows.
void flush_before_read(const at::Tensor& tensor, const std::string& operation);

/// The same for a tensor that the host is about to write. A capture allows that for a tensor
/// without memory, which is a constant of the graph.
void flush_before_write(const at::Tensor& tensor, const std::string& operation);

size_t pending();

/// Number of different graphs that have run, of those that are remembered.
size_t compiled_graphs();

/// Lets go of their recipes: each compiles again when it next runs.
void clear_compiled_graphs();

// Captures, for HPU graphs. What any thread records belongs to the capture.
/// Returns the capture's number.
size_t begin_capture(bool dry_run);
/// Returns what that capture recorded; nothing where it was abandoned.
std::vector<Node> end_capture(size_t number);
/// Ends that capture for nothing. Its operations run, unless in a dry run: its results are lost.
void abandon(size_t number);
bool capturing();
bool capturing(size_t number);

}  // namespace recorder
}  // namespace hpu
