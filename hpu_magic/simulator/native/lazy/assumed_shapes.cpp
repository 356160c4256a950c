#include "lazy/assumed_shapes.h"

#include "calls/stand_ins.h"
#include "calls/tensors_of.h"
#include "events/events.h"
#include "memory/memory.h"

#include <ATen/ExpandUtils.h>
#include <ATen/ops/count_nonzero.h>
#include <ATen/ops/empty.h>
#include <c10/util/strides.h>

#include <algorithm>
#include <cmath>
#include <string_view>

namespace hpu {
namespace {

using torch::jit::Stack;
using Arguments = c10::ArrayRef<c10::IValue>;

constexpr int64_t kMostTried = int64_t{1} << 20;

std::string_view name_of(const c10::OperatorHandle& op) {
  return op.schema().name();
}

bool indexes(const c10::OperatorHandle& op) {
  return name_of(op) == "aten::index" || name_of(op) == "aten::_unsafe_index";
}

/// Returns whether an operator writes values to the elements that indices select. A single number
/// can be written even if the selected elements are unknown.
bool writes_selection(const c10::OperatorHandle& op, Arguments arguments) {
  return name_of(op) == "aten::_index_put_impl_" && arguments[2].toTensor().numel() != 1;
}

/// Returns how many elements of a tensor are nonzero.
int64_t selected(const at::Tensor& tensor) {
  if (!on_device(tensor)) {
    return at::count_nonzero(tensor).item<int64_t>();
  }
  if (!stand_ins::assumed(tensor)) {
    return at::count_nonzero(host_view(tensor)).item<int64_t>();
  }
  const double share = assumption_of(tensor.storage())->share;
  return std::llround(static_cast<double>(tensor.numel()) * share);
}

/// Returns whether an operator selects elements with masks whose values are known.
bool knows_selection(const c10::OperatorHandle& op, Arguments arguments) {
  bool known = true;
  const auto check = [&known](const at::Tensor& mask) {
    known = known && !(is_mask(mask) && on_device(mask) && stand_ins::assumed(mask));
  };
  if (indexes(op)) {
    for_each_tensor(arguments[1], check);
    return known;
  }
  if (name_of(op) == "aten::masked_select") {
    check(arguments[1].toTensor());
    return known;
  }
  return false;
}

Geometry contiguous(std::vector<int64_t> sizes, at::ScalarType dtype) {
  const auto strides = c10::contiguous_strides(sizes);
  return {
      true, std::move(sizes), {strides.begin(), strides.end()}, 0,
      c10::scalarTypeToTypeMeta(dtype)};
}

/// Raises an error if a mask does not have the sizes of the dimensions that it selects from.
void check_mask(const at::Tensor& mask, const at::Tensor& self, int64_t first) {
  for (int64_t dim = 0; dim < mask.dim(); ++dim) {
    TORCH_CHECK_INDEX(
        mask.size(dim) == self.size(first + dim), "The shape of the mask ", mask.sizes(),
        " at index ", dim, " does not match the shape of the indexed tensor ", self.sizes(),
        " at index ", first + dim);
  }
}

/// Runs a call with few elements on zeros, to raise the kernel's error if the arguments are wrong.
void try_on_host(const c10::OperatorHandle& op, const Stack& arguments) {
  int64_t elements = 0;
  for (const c10::IValue& argument : arguments) {
    for_each_tensor(argument, [&elements](const at::Tensor& tensor) {
      elements += tensor.defined() ? tensor.numel() : 0;
    });
  }
  if (elements <= kMostTried && op.schema().name().rfind("aten::", 0) == 0) {
    infer_on_host(op, arguments, signature_of(op, arguments));
  }
}

/// Replaces each mask among the indices with as many indices as the mask is assumed to select.
Inference assume_index(const c10::OperatorHandle& op, Stack arguments) {
  const at::Tensor self = arguments[0].toTensor();
  c10::List<std::optional<at::Tensor>> indices;
  for (const std::optional<at::Tensor>& index : arguments[1].toOptionalTensorVector()) {
    if (!index || !index->defined() || !is_mask(*index)) {
      indices.push_back(index);
      continue;
    }
    check_mask(*index, self, static_cast<int64_t>(indices.size()));
    const at::Tensor positions = at::empty({selected(*index)}, at::kLong);
    for (int64_t dim = 0; dim < index->dim(); ++dim) {
      indices.push_back(positions);
    }
  }
  arguments[1] = std::move(indices);
  const Signature signature = signature_of(op, arguments);
  const Inference& inference = infer(op, arguments, signature);
  return inference.known ? inference : infer_on_host(op, arguments, signature);
}

/// Moves the sizes of results to the out= arguments that the results are written to.
void write_to_arguments(
    const c10::OperatorHandle& op, const Stack& arguments, Inference& inference) {
  auto result = inference.results.begin();
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (!op.schema().arguments()[i].is_out()) {
      continue;
    }
    const at::Tensor out = arguments[i].toTensor();
    if (out.sizes() != result->sizes) {
      inference.resized.push_back({i, 0, *result});
    }
    ++result;
  }
  inference.results.erase(inference.results.begin(), result);
}

std::optional<int64_t> integer(
    Arguments arguments, const c10::OperatorHandle& op, const char* name) {
  const auto index = op.schema().argumentIndexWithName(name);
  return index && arguments[*index].isInt() ? std::optional(arguments[*index].toInt())
                                            : std::nullopt;
}

bool flag(Arguments arguments, const c10::OperatorHandle& op, const char* name) {
  const auto index = op.schema().argumentIndexWithName(name);
  return index && arguments[*index].isBool() && arguments[*index].toBool();
}

/// Returns the results of an operator that removes duplicates: the distinct elements, their
/// positions and their counts.
Inference assume_distinct(const c10::OperatorHandle& op, const Stack& arguments) {
  const at::Tensor self = arguments[0].toTensor();
  const std::optional<int64_t> dim = integer(arguments, op, "dim");
  const bool by_slice = dim.has_value();
  const int64_t count = by_slice ? self.size(*dim) : self.numel();
  Inference inference;
  inference.known = true;
  inference.results.push_back(
      contiguous(by_slice ? self.sizes().vec() : std::vector<int64_t>{count}, self.scalar_type()));
  const bool positions = by_slice || flag(arguments, op, "return_inverse");
  const bool counts = by_slice || flag(arguments, op, "return_counts");
  const std::vector<int64_t> shape = by_slice ? std::vector<int64_t>{count} : self.sizes().vec();
  inference.results.push_back(contiguous(positions ? shape : std::vector<int64_t>{0}, at::kLong));
  if (op.schema().returns().size() > 2) {
    inference.results.push_back(contiguous({counts ? count : 0}, at::kLong));
  }
  return inference;
}

/// Returns the sizes of the results of an operator that selects or counts elements.
Inference assume_selection(const c10::OperatorHandle& op, const Stack& arguments) {
  const std::string_view name = name_of(op);
  const at::Tensor self = arguments[0].toTensor();
  Inference inference;
  inference.known = true;
  if (name == "aten::nonzero") {
    const int64_t count = selected(self);
    inference.results.push_back(  // a kernel writes one column after the other
        {true, {count, self.dim()}, {1, count}, 0, c10::scalarTypeToTypeMeta(at::kLong)});
  } else if (name == "aten::masked_select") {
    const at::Tensor mask = arguments[1].toTensor();
    const auto sizes = at::infer_size(self.sizes(), mask.sizes());
    const int64_t repeats =
        mask.numel() > 0 ? c10::multiply_integers(sizes) / mask.numel() : 0;
    inference.results.push_back(contiguous({selected(mask) * repeats}, self.scalar_type()));
  } else if (name == "aten::bincount") {
    const bool weighted = arguments[1].isTensor() && arguments[1].toTensor().defined();
    const at::ScalarType dtype = !weighted ? at::kLong
        : arguments[1].toTensor().scalar_type() == at::kFloat ? at::kFloat
                                                              : at::kDouble;
    inference.results.push_back(
        contiguous({std::max<int64_t>(*integer(arguments, op, "minlength"), self.numel() > 0)}, dtype));
  } else if (name == "torchvision::nms") {
    inference.results.push_back(contiguous({self.size(0)}, at::kLong));
  } else {
    TORCH_CHECK_NOT_IMPLEMENTED(
        false, op.operator_name(), ": the size of its result depends on values that a dry run does "
        "not compute. Pass a fixed size instead, for example with output_size or minlength, or "
        "compute its operand on the CPU.");
  }
  return inference;
}

bool removes_duplicates(std::string_view name) {
  return name == "aten::_unique2" || name == "aten::_unique" || name == "aten::unique_consecutive" ||
      name == "aten::unique_dim" || name == "aten::unique_dim_consecutive";
}

}  // namespace

bool is_mask(const at::Tensor& index) {
  return index.defined() &&
      (index.scalar_type() == at::kBool || index.scalar_type() == at::kByte);
}

bool depends_on_values(const c10::OperatorHandle& op, Arguments arguments) {
  if (indexes(op)) {
    const auto indices = arguments[1].toOptionalTensorVector();
    return std::any_of(indices.begin(), indices.end(), [](const std::optional<at::Tensor>& index) {
      return index && is_mask(*index);
    });
  }
  if (name_of(op) == "aten::repeat_interleave") {
    return !integer(arguments, op, "output_size");
  }
  if (name_of(op) == "aten::_ctc_loss") {  // depends on the lengths, not on values
    return false;
  }
  return op.hasTag(at::Tag::dynamic_output_shape) || name_of(op) == "torchvision::nms";
}

void check_written_selection(const c10::OperatorHandle& op, const Stack& arguments) {
  if (name_of(op) != "aten::_index_put_impl_") {
    return;
  }
  const at::Tensor self = arguments[0].toTensor();
  const at::Tensor values = arguments[2].toTensor();
  TORCH_CHECK(
      values.numel() == 1 || self.scalar_type() == values.scalar_type(),
      "Index put requires the source and destination dtypes match, got ", self.scalar_type(),
      " for the destination and ", values.scalar_type(), " for the source.");
  bool has_mask = false;
  int64_t dim = 0;
  for (const std::optional<at::Tensor>& index : arguments[1].toOptionalTensorVector()) {
    const bool selects = index && is_mask(*index);
    if (selects) {
      check_mask(*index, self, dim);
    }
    has_mask = has_mask || selects;
    dim += selects ? index->dim() : 1;
  }
  if (!has_mask) {  // otherwise, the number of selected elements may be assumed
    try_on_host(op, arguments);
  }
}

bool reads_card(const c10::OperatorHandle& op, Arguments arguments) {
  if (op.hasTag(at::Tag::data_dependent_output)) {  // a number on the host
    return true;
  }
  if (!indexes(op) && !writes_selection(op, arguments)) {
    return depends_on_values(op, arguments);
  }
  bool has_mask = false;
  for_each_tensor(arguments[1], [&has_mask](const at::Tensor& index) {
    has_mask = has_mask || (is_mask(index) && on_device(index));
  });
  return has_mask;
}

Inference assume_shapes(const c10::OperatorHandle& op, const Stack& arguments) {
  Inference inference;
  if (indexes(op)) {
    inference = assume_index(op, arguments);
  } else {
    try_on_host(op, arguments);
    inference = removes_duplicates(name_of(op)) ? assume_distinct(op, arguments)
                                                : assume_selection(op, arguments);
    write_to_arguments(op, arguments, inference);
  }
  if (!knows_selection(op, arguments)) {
    events::emit(events::Kind::assumed_shape, c10::toString(op.operator_name()));
  }
  return inference;
}

}  // namespace hpu
