// Events of the engine. Events are always counted, and are stored in a bounded buffer while there
// is a listener.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace hpu::events {

enum class Kind : uint8_t {
  graph_compilation,
  recipe_cache_hit,
  recipe_cache_miss,
  cpu_fallback,
  host_synchronization,
  mark_step,
  memory_defragmentation,
  device_acquired,
  stand_in,  // in a dry run, a value that was not computed was read
  assumed_shape,  // in a dry run, the size of a result depends on such values
  assumed_indices,  // in a dry run, such values were sorted, or the largest ones were selected
};
constexpr size_t kKinds = 11;
const char* name_of(Kind kind);

struct Event {
  uint64_t sequence;
  Kind kind;
  std::string name;
  int64_t timestamp;  // nanoseconds since the epoch
  int64_t duration;   // nanoseconds
  std::string file;  // file of the Python line that caused the event, or empty
  int line;
  std::string detail;
};

struct Counter {
  uint64_t count = 0;
  int64_t nanoseconds = 0;
  int64_t longest = 0;                   // nanoseconds
  std::map<std::string, uint64_t> names;  // the first 4,096 names; all others count as "(others)"
};

/// A line of the user's Python code.
struct PythonLine {
  std::string file;
  int number = 0;
};

/// Returns the current line of the innermost frame that is not in PyTorch, a related library or
/// hpu_magic. If all frames are in such files, returns the line of the innermost frame, preferring
/// Lightning's. The result is empty if there is no Python frame.
PythonLine python_line();

/// A line of the user's code, and the line of a library that it has called.
struct CallerLines {
  PythonLine own;      // like `python_line`, but preferably outside all installed packages
  PythonLine library;  // the innermost line outside PyTorch and hpu_magic, or empty if it is `own`
};

CallerLines caller_lines();

bool listening();
/// Adds or removes a listener. Calls can be nested, and each `true` must be matched by a `false`.
void listen(bool on);

/// Counts an event. If there is a listener, also stores the event with the current Python line.
void emit(Kind kind, const std::string& name, int64_t duration = 0, std::string detail = "");
/// Counts an event of a call that the user made at these lines and that runs later.
void emit_at(const CallerLines& lines, Kind kind, const std::string& name);

Counter counter(Kind kind);

/// Number of events of the same kind and name that the same lines caused.
struct LineCount {
  Kind kind;
  std::string name;
  CallerLines lines;
  uint64_t count;
};

/// Starts to count events by the lines that `caller_lines` returns.
void count_lines();
std::vector<LineCount> line_counts();

/// Returns the events starting at this sequence number. The oldest events may have been dropped.
std::vector<Event> since(uint64_t sequence);
uint64_t next_sequence();

}  // namespace hpu::events
