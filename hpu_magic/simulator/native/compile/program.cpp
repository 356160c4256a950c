#include "compile/program.h"

#include "calls/geometry.h"
#include "memory/memory_reuse.h"
#include "prices/observer.h"
#include "prices/signature.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/empty_strided.h>

#include <algorithm>
#include <atomic>
#include <string>

namespace hpu {
namespace {

using torch::jit::Stack;

bool is_in_order(const at::Tensor& tensor, const Order& order) {
  int64_t expected = 1;
  for (auto dim = order.rbegin(); dim != order.rend(); ++dim) {
    const int64_t size = tensor.size(*dim);
    if (size > 1 && tensor.stride(*dim) != expected) {
      return false;
    }
    expected *= size;
  }
  return true;
}

std::vector<int64_t> strides_in(const Order& order, c10::IntArrayRef sizes) {
  std::vector<int64_t> strides(sizes.size());
  int64_t next = 1;
  for (auto dim = order.rbegin(); dim != order.rend(); ++dim) {
    const auto i = static_cast<size_t>(*dim);
    strides[i] = next;
    next *= std::max<int64_t>(sizes[i], 1);
  }
  return strides;
}

/// Returns a result in the memory order that it had during tracing. The views in a graph depend on
/// this order, but the strides of a kernel's result may depend on the processor.
at::Tensor in_order(const at::Tensor& result, const Order& order) {
  if (result.dim() != static_cast<int64_t>(order.size()) || result.numel() == 0 ||
      is_in_order(result, order)) {
    return result;
  }
  at::Tensor ordered =
      at::empty_strided(result.sizes(), strides_in(order, result.sizes()), result.options());
  return ordered.copy_(result);
}

/// Raises an error that names the operator if the geometry of a result differs from the traced one.
void check_traced(
    const c10::OperatorName& op, const std::string& which, const Traced& traced,
    const at::Tensor& result) {
  Geometry expected = geometry_of(result);
  expected.dtype = c10::scalarTypeToTypeMeta(traced.dtype);
  expected.sizes.resize(traced.sizes.size(), 0);
  expected.strides.resize(traced.sizes.size(), 0);
  for (size_t i = 0; i < traced.sizes.size(); ++i) {
    if (traced.sizes[i] >= 0) {
      expected.sizes[i] = traced.sizes[i];
    }
    // Strides have no effect in dimensions of size 1 and in empty tensors.
    if (traced.strides[i] >= 0 && expected.sizes[i] > 1 && result.numel() > 0) {
      expected.strides[i] = traced.strides[i];
    }
  }
  check_geometry(op, which, expected, result);
}

int64_t rounded_down(int64_t left, int64_t right) {
  const int64_t quotient = left / right;
  return left % right != 0 && (left < 0) != (right < 0) ? quotient - 1 : quotient;
}

int64_t compute(char operation, int64_t left, int64_t right) {
  TORCH_CHECK(
      right != 0 || (operation != '/' && operation != '%'), "A size is divided by zero: ", left,
      " ", operation, " 0.");
  switch (operation) {
    case '+':
      return left + right;
    case '-':
      return left - right;
    case '*':
      return left * right;
    case '/':
      return rounded_down(left, right);
    case '%':
      return left - right * rounded_down(left, right);
    default:
      TORCH_CHECK(false, "Sizes do not support the operation '", operation, "'.");
  }
}

/// Returns whether the sizes of results may depend on values. The memory order of a result is known
/// only if its sizes are known.
bool depends_on_values(const c10::OperatorHandle& op, const Program::Orders& orders) {
  const bool sizes_are_known = !orders.empty() &&
      std::all_of(orders.begin(), orders.end(), [](const auto& order) { return order.has_value(); });
  const bool varies = op.hasTag(at::Tag::dynamic_output_shape) ||
      op.operator_name().name.rfind("aten::", 0) != 0;
  return op.hasTag(at::Tag::data_dependent_output) || (varies && !sizes_are_known);
}

}  // namespace

uint64_t Program::next_number() {
  static std::atomic<uint64_t> numbers{0};
  return ++numbers;
}

Slot Program::add(Instruction instruction) {
  instruction.first = slots_;
  slots_ += instruction.results;
  instructions_.push_back(std::move(instruction));
  return {instructions_.back().first};
}

Slot Program::call(
    const c10::OperatorHandle& op, std::vector<Operand> operands, Orders orders,
    AllTraced traced) {
  Instruction instruction{Kind::call, std::move(operands), op.schema().returns().size()};
  instruction.op = op;
  depends_on_values_ = depends_on_values_ || depends_on_values(op, orders);
  instruction.orders = std::move(orders);
  instruction.traced = std::move(traced);
  return add(std::move(instruction));
}

Slot Program::element(Slot list, int64_t index) {
  Instruction instruction{Kind::element, {list}};
  instruction.index = index;
  return add(std::move(instruction));
}

Slot Program::arithmetic(char operation, Item left, Item right) {
  Instruction instruction{Kind::arithmetic, {as_operand(left), as_operand(right)}};
  instruction.operation = operation;
  return add(std::move(instruction));
}

void Program::finish(std::vector<Item> results) {
  results_ = std::move(results);
  std::vector<bool> read(slots_, false);
  for (const Item& result : results_) {
    if (const auto* slot = std::get_if<Slot>(&result)) {
      read[slot->index] = true;
    }
  }
  for (auto instruction = instructions_.rbegin(); instruction != instructions_.rend();
       ++instruction) {
    const auto note = [&](size_t slot) {
      if (!read[slot]) {
        read[slot] = true;
        instruction->dead.push_back(slot);
      }
    };
    for (size_t i = 0; i < instruction->results; ++i) {
      note(instruction->first + i);
    }
    for (const Operand& operand : instruction->operands) {
      for_each_slot(operand, note);
    }
  }
  for (size_t input = 0; input < inputs_; ++input) {
    if (!read[input]) {
      unused_inputs_.push_back(input);
    }
  }
}

void Program::run_call(const Instruction& call, Values& values, Stack& stack) {
  const auto& declared = call.op->schema().arguments();
  for (size_t i = 0; i < declared.size(); ++i) {
    stack.push_back(argument_of(call.operands[i], declared[i], values));
  }
  call.op->callBoxed(&stack);
  for (size_t i = 0; i < call.results; ++i) {
    const bool ordered = i < call.orders.size() && call.orders[i] && stack[i].isTensor() &&
        stack[i].toTensor().defined();
    values[call.first + i] = ordered ? c10::IValue(in_order(stack[i].toTensor(), *call.orders[i]))
                                      : std::move(stack[i]);
    if (i < call.traced.size() && call.traced[i] && values[call.first + i].isTensor()) {
      check_traced(
          call.op->operator_name(), "result " + std::to_string(i), *call.traced[i],
          values[call.first + i].toTensor());
    }
  }
  stack.clear();
}

void refuse_forward_mode(at::TensorList tensors) {
  for (const at::Tensor& tensor : tensors) {
    TORCH_CHECK_NOT_IMPLEMENTED(
        !tensor._fw_grad(/*level=*/0).defined(),
        "A compiled graph does not support forward-mode derivatives, but one of its inputs is a "
        "dual tensor; run this model without torch.compile.");
  }
}

/// Returns nothing if the clock is off, or if values may determine which operators run.
std::optional<uint64_t> Program::signature_of_run(const Values& inputs) const {
  return clock::on() && !depends_on_values_
      ? prices::signature_of_run(number_, inputs)
      : std::nullopt;
}

Values Program::run(Values inputs) const {
  TORCH_CHECK(
      inputs.size() == inputs_, "The compiled graph needs ", inputs_, " inputs, but got ",
      inputs.size(), ".");
  const std::optional<uint64_t> signature = signature_of_run(inputs);
  Values values = std::move(inputs);
  values.resize(slots_);
  for (size_t input : unused_inputs_) {
    values[input] = {};
  }
  const CachedMemory kept;
  prices::Collected launched(signature);
  // AOTAutograd has already handled autograd and autocast. Writes still increment tensor versions.
  const at::AutoDispatchBelowAutograd below_autograd;
  const c10::impl::ExcludeDispatchKeyGuard below_autocast(c10::autocast_dispatch_keyset);
  Stack stack;
  for (const Instruction& instruction : instructions_) {
    const auto integer = [&](size_t i) {
      const Operand& operand = instruction.operands[i];
      const auto* slot = std::get_if<Slot>(&operand);
      return (slot ? values[slot->index] : std::get<c10::IValue>(operand)).toInt();
    };
    if (instruction.kind == Kind::call) {
      run_call(instruction, values, stack);
    } else if (instruction.kind == Kind::element) {
      const auto& list = values[std::get<Slot>(instruction.operands[0]).index].toListRef();
      values[instruction.first] = list[static_cast<size_t>(instruction.index)];
    } else {
      values[instruction.first] = compute(instruction.operation, integer(0), integer(1));
    }
    for (size_t slot : instruction.dead) {
      values[slot] = {};
    }
  }
  Values results;
  results.reserve(results_.size());
  for (const Item& result : results_) {
    results.push_back(value_of(result, values));
  }
  launched.launch();
  return results;
}

}  // namespace hpu
