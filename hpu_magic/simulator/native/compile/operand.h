// The operands of an instruction in a compiled graph.
#pragma once

#include <ATen/core/function_schema.h>
#include <ATen/core/ivalue.h>

#include <variant>
#include <vector>

namespace hpu {

/// The index of a value in a program.
struct Slot {
  size_t index;
};

using Values = std::vector<c10::IValue>;
using Item = std::variant<c10::IValue, Slot>;
using ItemList = std::vector<Item>;
/// A constant, the slot of a value, or a list that contains slots.
using Operand = std::variant<c10::IValue, Slot, ItemList>;

Operand as_operand(const Item& item);

template <class Visit>
void for_each_slot(const Operand& operand, const Visit& visit) {
  if (const auto* slot = std::get_if<Slot>(&operand)) {
    visit(slot->index);
  } else if (const auto* list = std::get_if<ItemList>(&operand)) {
    for (const Item& item : *list) {
      if (const auto* slot = std::get_if<Slot>(&item)) {
        visit(slot->index);
      }
    }
  }
}

const c10::IValue& value_of(const Item& item, const Values& values);

/// Returns the operand's value in this run, converted to the declared type. If necessary, a number
/// is converted to a tensor, a floating-point number or a list.
c10::IValue argument_of(
    const Operand& operand, const c10::Argument& declared, const Values& values);

}  // namespace hpu
