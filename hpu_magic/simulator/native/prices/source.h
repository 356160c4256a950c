// The Python function that determines prices.
#pragma once

#include "prices/sequence.h"

#include <optional>

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

/// Calls the price source. If the source raises an error, stores the error for the user and returns
/// nullopt.
std::optional<clock::Price> ask_source(const Question& question);

}  // namespace hpu::prices
