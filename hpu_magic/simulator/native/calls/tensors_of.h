// Access to the tensors in an operator's argument: a tensor, a list, or a list of lists.
#pragma once

#include <ATen/core/function_schema.h>
#include <ATen/core/ivalue.h>

#include <optional>
#include <utility>
#include <vector>

namespace hpu {

/// Returns whether an operator writes to this argument, or whether this return value is an argument
/// that the operator writes to.
inline bool is_written(const c10::Argument& declared) {
  return declared.alias_info() && declared.alias_info()->isWrite();
}

/// Returns whether an argument is a statistic that batch normalization updates. Some of the
/// operators do not declare that they write to these statistics.
inline bool is_running_statistic(const c10::Argument& declared) {
  return declared.name() == "running_mean" || declared.name() == "running_var";
}

/// Calls `visit` with each tensor of an argument.
template <class Visit>
void for_each_tensor(const c10::IValue& value, const Visit& visit) {
  if (value.isTensor()) {
    visit(value.toTensor());
  } else if (value.isTensorList()) {
    for (const at::Tensor& tensor : value.toTensorVector()) {
      visit(tensor);
    }
  } else if (value.isOptionalTensorList()) {
    for (const std::optional<at::Tensor>& tensor : value.toOptionalTensorVector()) {
      visit(tensor.value_or(at::Tensor()));
    }
  } else if (value.isList()) {
    const c10::ArrayRef<c10::IValue> lists = value.toListRef();
    if (!lists.empty() && lists[0].isTensorList()) {
      for (const c10::IValue& list : lists) {
        for_each_tensor(list, visit);
      }
    }
  }
}

/// Replaces each tensor of an argument with the result of `visit`. None is left unchanged.
template <class Visit>
void map_tensors(c10::IValue& value, const Visit& visit) {
  if (value.isTensor()) {
    value = visit(value.toTensor());
  } else if (value.isTensorList()) {
    std::vector<at::Tensor> list = value.toTensorVector();
    for (at::Tensor& tensor : list) {
      tensor = visit(tensor);
    }
    value = c10::List<at::Tensor>(std::move(list));
  } else if (value.isOptionalTensorList()) {
    c10::List<std::optional<at::Tensor>> list;
    for (const std::optional<at::Tensor>& tensor : value.toOptionalTensorVector()) {
      list.push_back(tensor ? std::optional<at::Tensor>(visit(*tensor)) : std::nullopt);
    }
    value = std::move(list);
  } else if (value.isList()) {
    const c10::ArrayRef<c10::IValue> lists = value.toListRef();
    if (!lists.empty() && lists[0].isTensorList()) {
      c10::List<c10::List<at::Tensor>> mapped;
      for (c10::IValue list : lists) {
        map_tensors(list, visit);
        mapped.push_back(list.toTensorList());
      }
      value = std::move(mapped);
    }
  }
}

}  // namespace hpu
