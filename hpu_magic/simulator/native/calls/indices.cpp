#include "calls/indices.h"

#include "events/events.h"
#include "threads/locks.h"

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>

#include <cstdlib>
#include <cstring>
#include <mutex>
#include <set>
#include <string_view>
#include <unordered_map>
#include <utility>

namespace hpu::indices {
namespace {

enum class Access { read, write_rows, write_elements };

/// The positions of the index tensors among the arguments of an operator.
struct Use {
  Access access;
  const char* index = "index";
  const char* indexed = "self";
};

const Use* use_of(const c10::OperatorHandle& op) {
  static const std::unordered_map<std::string_view, Use> uses{
      {"aten::index_select", {Access::read}},
      {"aten::gather", {Access::read}},
      {"aten::embedding", {Access::read, "indices", "weight"}},
      {"aten::index_copy", {Access::write_rows}},
      {"aten::index_copy_", {Access::write_rows}},
      {"aten::index_add", {Access::write_rows}},
      {"aten::index_add_", {Access::write_rows}},
      {"aten::index_reduce", {Access::write_rows}},
      {"aten::index_reduce_", {Access::write_rows}},
      {"aten::index_fill", {Access::write_rows}},
      {"aten::index_fill_", {Access::write_rows}},
      {"aten::scatter", {Access::write_elements}},
      {"aten::scatter_", {Access::write_elements}},
      {"aten::scatter_add", {Access::write_elements}},
      {"aten::scatter_add_", {Access::write_elements}},
      {"aten::scatter_reduce", {Access::write_elements}},
      {"aten::scatter_reduce_", {Access::write_elements}},
  };
  const auto found = uses.find(op.operator_name().name);
  return found == uses.end() ? nullptr : &found->second;
}

template <class Integer>
bool within(const at::Tensor& index, int64_t size) {
  const auto* values = index.const_data_ptr<Integer>();
  bool inside = true;
  for (int64_t i = 0; i < index.numel(); ++i) {
    inside = inside && values[i] >= 0 && static_cast<int64_t>(values[i]) < size;
  }
  return inside;
}

bool is_within(const at::Tensor& index, int64_t size) {
  const at::Tensor values = index.contiguous();
  return values.scalar_type() == at::kLong ? within<int64_t>(values, size)
                                           : within<int32_t>(values, size);
}

bool checks() {
  static const bool enabled = [] {
    const char* setting = std::getenv("HPU_MAGIC_CHECK_INDICES");
    return setting && std::strcmp(setting, "1") == 0;
  }();
  return enabled;
}

bool is_first(const events::PythonLine& line) {
  static auto& known = *new std::set<std::pair<std::string, int>>;
  const std::lock_guard lock(locks::operators);
  return known.emplace(line.file, line.number).second;
}

/// Warns with the smallest and the largest index, because a card may return another result.
void report(const c10::OperatorHandle& op, const at::Tensor& index, int64_t size) {
  const int64_t low = index.min().item<int64_t>(), high = index.max().item<int64_t>();
  const std::string& name = op.operator_name().name;
  TORCH_CHECK_INDEX(
      !checks(), name, " has indices from ", low, " to ", high, " for ", size,
      " elements; use indices from 0 to ", size - 1,
      ". (Checked because HPU_MAGIC_CHECK_INDICES=1.)");
  const events::PythonLine line = events::python_line();
  if (line.file.find("/vllm_gaudi/") == std::string::npos && is_first(line)) {
    TORCH_WARN(
        name, " has indices from ", low, " to ", high, " for ", size,
        " elements (", line.file, ", line ", line.number,
        "). A card does not check indices and may return other values; use indices from 0 to ",
        size - 1, ".");
  }
}

/// Drops the indices that are out of range, and the values to write to them.
void drop_rows(
    const c10::FunctionSchema& schema, torch::jit::Stack& stack, size_t first, c10::IValue& slot,
    const at::Tensor& index, int64_t size, int64_t dim) {
  const at::Tensor kept =
      at::logical_and(index >= 0, index < size).reshape({-1}).nonzero().squeeze(1);
  if (const auto source = schema.argumentIndexWithName("source")) {
    c10::IValue& rows = stack[first + static_cast<size_t>(*source)];
    if (rows.isTensor() && rows.toTensor().dim() > 0) {
      rows = rows.toTensor().index_select(dim, kept);
    }
  }
  slot = index.reshape({-1}).index_select(0, kept);
}

}  // namespace

void bring_into_range(
    const c10::OperatorHandle& op, torch::jit::Stack& stack, size_t first) {
  const Use* use = use_of(op);
  if (!use) {
    return;
  }
  const c10::FunctionSchema& schema = op.schema();
  const auto argument = [&](const char* name) -> c10::IValue* {
    const auto place = schema.argumentIndexWithName(name);
    return place ? &stack[first + static_cast<size_t>(*place)] : nullptr;
  };
  c10::IValue* slot = argument(use->index);
  c10::IValue* indexed = argument(use->indexed);
  if (!slot || !slot->isTensor() || !indexed || !indexed->isTensor()) {
    return;
  }
  const at::Tensor index = slot->toTensor();
  const at::Tensor self = indexed->toTensor();
  const c10::IValue* dim_argument = argument("dim");
  const int64_t dim = dim_argument && dim_argument->isInt() ? dim_argument->toInt() : 0;
  const bool integers = index.defined() &&
      (index.scalar_type() == at::kLong || index.scalar_type() == at::kInt);
  if (!integers || !self.defined() || self.dim() == 0 || dim >= self.dim() || dim < -self.dim()) {
    return;
  }
  const int64_t size = self.size(dim);
  if (size == 0 || index.numel() == 0 || is_within(index, size)) {
    return;
  }
  report(op, index, size);
  const at::Tensor wrapped = at::where(at::logical_and(index < 0, index >= -size), index + size, index);
  if (use->access == Access::read) {
    *slot = wrapped.clamp(0, size - 1);
  } else if (use->access == Access::write_rows) {
    drop_rows(schema, stack, first, *slot, wrapped, size, dim);
  } else {
    *slot = wrapped;
  }
}

bool is_out_of_range(const c10::Error& error) {
  const std::string_view what = error.what_without_backtrace();
  return what.find("out of range") != std::string_view::npos ||
      what.find("out of bounds") != std::string_view::npos;
}

}  // namespace hpu::indices
