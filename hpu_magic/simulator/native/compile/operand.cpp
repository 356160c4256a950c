#include "compile/operand.h"

#include <ATen/ScalarOps.h>
#include <ATen/core/List.h>

namespace hpu {
namespace {

c10::TypePtr without_optional(const c10::TypePtr& type) {
  const auto optional = type->cast<c10::OptionalType>();
  return optional ? optional->getElementType() : type;
}

bool is_number(const c10::IValue& value) {
  return value.isInt() || value.isDouble() || value.isBool() || value.isComplexDouble();
}

c10::IValue converted(const c10::IValue& number, const c10::Type& declared);

/// Expands a number to a list. A list argument of fixed length, such as `int[2] size`, accepts a
/// single number for all of its elements.
c10::IValue repeated(
    const c10::IValue& number, const c10::TypePtr& element, std::optional<int32_t> length) {
  TORCH_CHECK(length, "A number cannot be expanded to a list without a fixed length.");
  c10::impl::GenericList list(element);
  for (int32_t i = 0; i < *length; ++i) {
    list.push_back(converted(number, *element));
  }
  return list;
}

c10::IValue converted(const c10::IValue& number, const c10::Type& declared) {
  switch (declared.kind()) {
    case c10::TypeKind::TensorType:
      return at::native::wrapped_scalar_tensor(number.toScalar());
    case c10::TypeKind::FloatType:
      return number.toScalar().toDouble();
    case c10::TypeKind::IntType:
      return number.isBool() ? c10::IValue(static_cast<int64_t>(number.toBool())) : number;
    default:
      return number;
  }
}

c10::IValue list_of(const ItemList& items, const c10::Argument& declared, const Values& values) {
  const auto& element =
      without_optional(declared.type())->expectRef<c10::ListType>().getElementType();
  const c10::TypePtr item_type = without_optional(element);
  c10::impl::GenericList list(element);
  list.reserve(items.size());
  for (const Item& item : items) {
    const c10::IValue& value = value_of(item, values);
    list.push_back(is_number(value) ? converted(value, *item_type) : value);
  }
  return list;
}

}  // namespace

Operand as_operand(const Item& item) {
  const auto* slot = std::get_if<Slot>(&item);
  return slot ? Operand(*slot) : Operand(std::get<c10::IValue>(item));
}

const c10::IValue& value_of(const Item& item, const Values& values) {
  const auto* slot = std::get_if<Slot>(&item);
  return slot ? values[slot->index] : std::get<c10::IValue>(item);
}

c10::IValue argument_of(
    const Operand& operand, const c10::Argument& declared, const Values& values) {
  if (const auto* constant = std::get_if<c10::IValue>(&operand)) {
    return *constant;
  }
  const auto* slot = std::get_if<Slot>(&operand);
  if (!slot) {
    return list_of(std::get<ItemList>(operand), declared, values);
  }
  const c10::IValue& value = values[slot->index];
  if (!is_number(value)) {
    return value;
  }
  const c10::TypePtr type = without_optional(declared.type());
  if (const auto list = type->cast<c10::ListType>()) {
    return repeated(value, list->getElementType(), declared.N());
  }
  return converted(value, *type);
}

}  // namespace hpu
