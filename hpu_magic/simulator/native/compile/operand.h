// What an instruction of a compiled graph gets for one declared argument.
#pragma once

#include <ATen/core/function_schema.h>
#include <ATen/core/ivalue.h>

#include <variant>
#include <vector>

namespace hpu {

/// Where a value of a program lives between the instruction that makes it and its last use.
struct Slot {
  size_t index;
};

using Values = std::vector<c10::IValue>;
using Item = std::variant<c10::IValue, Slot>;
using ItemList = std::vector<Item>;
/// A constant, a value, or a list with values in it.
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

/// The operand's value in this run, in the form in which `declared` is passed: a number stands for
/// a tensor, a fraction or a list of itself where one is declared.
c10::IValue argument_of(
    const Operand& operand, const c10::Argument& declared, const Values& values);

}  // namespace hpu
