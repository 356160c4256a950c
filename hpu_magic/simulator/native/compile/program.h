// A compiled graph: operators with their operands in order, run without Python in between.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>
#include <ATen/core/stack.h>

#include <variant>
#include <vector>

namespace hpu {

/// Where a value of a program lives between the instruction that makes it and its last use.
struct Slot {
  size_t index;
};

class Program {
 public:
  using Item = std::variant<c10::IValue, Slot>;
  using List = std::vector<Item>;
  /// What an operator gets: a constant, a value, or a list with values in it.
  using Operand = std::variant<c10::IValue, Slot, List>;

  explicit Program(size_t inputs) : inputs_(inputs), slots_(inputs) {}

  /// Adds a call; returns the slot of its first result, the others follow.
  Slot call(const c10::OperatorHandle& op, std::vector<Operand> operands);
  /// Adds the choice of one element of a list.
  Slot element(Slot list, int64_t index);
  /// Adds integer arithmetic, for sizes: one of + - * / %, of which the last two round down.
  Slot arithmetic(char operation, Item left, Item right);
  /// Names the results and ends the program: from now on it frees each value at its last use.
  void finish(std::vector<Item> results);

  std::vector<c10::IValue> run(std::vector<c10::IValue> inputs) const;

 private:
  enum class Kind { call, element, arithmetic };

  struct Instruction {
    Kind kind;
    std::vector<Operand> operands;
    size_t results;
    std::optional<c10::OperatorHandle> op{};
    int64_t index = 0;
    char operation = 0;
    size_t first = 0;            // slot of the first result
    std::vector<size_t> dead{};  // slots that nothing reads later
  };

  Slot add(Instruction instruction);

  size_t inputs_;
  size_t slots_;
  std::vector<Instruction> instructions_;
  std::vector<size_t> unused_inputs_;
  std::vector<Item> results_;
};

}  // namespace hpu
