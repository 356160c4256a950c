// A compiled graph: operators and their operands, executed in order without Python.
#pragma once

#include "compile/operand.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

#include <cstdint>
#include <optional>
#include <vector>

namespace hpu {

/// The dimensions of a dense tensor, sorted by decreasing stride.
using Order = std::vector<int64_t>;

/// The dtype, sizes and strides that a tensor had during tracing. -1 represents a size or stride
/// that varies between calls.
struct Traced {
  c10::ScalarType dtype;
  std::vector<int64_t> sizes;
  std::vector<int64_t> strides;
};

class Program {
 public:
  /// The memory order of each result of a call, or nullopt if the order is not fixed.
  using Orders = std::vector<std::optional<Order>>;
  /// The traced properties of each result of a call. Empty if the results are not checked.
  using AllTraced = std::vector<std::optional<Traced>>;

  explicit Program(size_t inputs) : inputs_(inputs), slots_(inputs) {}

  /// Adds a call and returns the slot of its first result. The other results are in the following
  /// slots.
  Slot call(
      const c10::OperatorHandle& op, std::vector<Operand> operands, Orders orders,
      AllTraced traced);
  /// Adds an instruction that selects one element of a list.
  Slot element(Slot list, int64_t index);
  /// Adds an integer operation on sizes: +, -, *, / or %. The last two round down.
  Slot arithmetic(char operation, Item left, Item right);
  /// Sets the results and completes the program. Each run frees values after their last use.
  void finish(std::vector<Item> results);

  Values run(Values inputs) const;

 private:
  enum class Kind { call, element, arithmetic };

  struct Instruction {
    Kind kind;
    std::vector<Operand> operands;
    size_t results = 1;
    size_t first = 0;  // slot of the first result
    std::vector<size_t> dead{};  // slots that are not read after this instruction
    std::optional<c10::OperatorHandle> op{};
    Orders orders{};
    AllTraced traced{};
    char operation = 0;
    int64_t index = 0;
  };

  Slot add(Instruction instruction);
  static uint64_t next_number();
  std::optional<uint64_t> signature_of_run(const Values& inputs) const;
  static void run_call(const Instruction& call, Values& values, torch::jit::Stack& stack);

  uint64_t number_ = next_number();
  size_t inputs_;
  size_t slots_;
  bool depends_on_values_ = false;  // whether the sizes of results may depend on values
  std::vector<Instruction> instructions_;
  std::vector<size_t> unused_inputs_;
  std::vector<Item> results_;
};

/// Raises an error if a tensor has a forward-mode tangent, which a program would ignore.
void refuse_forward_mode(at::TensorList tensors);

}  // namespace hpu
