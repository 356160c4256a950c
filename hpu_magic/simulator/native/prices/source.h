// The Python function that determines prices.
#pragma once

#include "prices/sequence.h"

#include <optional>
#include <string>

namespace hpu::prices {

/// Asks the Python function for the card time of a sequence of operations.
struct Question {
  struct Operation {
    const prices::Operation& operation;
    const std::vector<size_t>& reads;
    const std::vector<size_t>& writes;
  };
  struct Storage {
    int64_t bytes;
    c10::ScalarType dtype;  // of the first operand
    bool kept;              // whether it is used after the sequence
    const WeakTensor& base;
  };
  const std::vector<Operation>& operations;
  const std::vector<Storage>& storages;
  bool graph;
};

/// Asks for the time that a collective takes.
struct LinkQuestion {
  const char* name;
  int64_t bytes;   // size of this rank's share of the data
  size_t tensors;  // number of tensors, each of which is transferred separately
  int ranks;
  int stride;  // distance between neighboring ranks of the group
};

/// Asks for the time of a collective, and launches the collective on the clock. Returns nullopt
/// if the clock is off or the function raises an error.
std::optional<clock::Transfer> launch_transfer(const LinkQuestion& question, bool is_message);

/// How the framework that called the current collective exchanges gradients and weights; see
/// link_time.py. Empty if the clock is off.
std::optional<std::string> exchange_of_caller();

/// While an instance exists, the collectives of this thread are priced as if they had been called
/// by the framework that called a captured collective.
class CalledAgain {
 public:
  explicit CalledAgain(const std::optional<std::string>& exchange);
  ~CalledAgain();
  CalledAgain(const CalledAgain&) = delete;
  CalledAgain& operator=(const CalledAgain&) = delete;

 private:
  const std::optional<std::string>* const outer_;
};

/// Calls the price source. If the source raises an error, stores the error for the user and returns
/// nullopt.
std::optional<clock::Price> ask_source(const Question& question);

}  // namespace hpu::prices
