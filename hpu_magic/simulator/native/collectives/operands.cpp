#include "collectives/operands.h"

#include "calls/dtypes.h"
#include "calls/stand_ins.h"
#include "calls/thread_modes.h"
#include "lazy/known_values.h"
#include "lazy/recorder.h"
#include "memory/card_types.h"
#include "memory/memory.h"
#include "threads/interpreter.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>

#include <algorithm>

namespace hpu::collectives {
namespace {

void check(const at::Tensor& tensor) {
  TORCH_CHECK(
      is_real(tensor) && tensor.layout() == at::kStrided,
      "hccl requires dense tensors in device memory, but got one on ", tensor.device(),
      " with layout ", tensor.layout(), ".");
}

bool is_plain(const at::Tensor& tensor) {
  return tensor.is_contiguous() && !tensor.is_conj() && !tensor.is_neg();
}

}  // namespace

at::Tensor Operands::keep(at::Tensor tensor) {
  kept_.push_back(tensor);
  return tensor;
}

at::Tensor Operands::scratch(c10::IntArrayRef sizes, c10::ScalarType dtype) {
  return keep(at::empty(sizes, at::TensorOptions().dtype(dtype).device(device())));
}

at::Tensor Operands::read(const at::Tensor& tensor) {
  return read(tensor, tensor.scalar_type());
}

at::Tensor Operands::read(const at::Tensor& tensor, c10::ScalarType dtype) {
  check(tensor);
  if (tensor.scalar_type() == dtype && is_plain(tensor)) {
    return keep(tensor);
  }
  return copied(tensor, dtype);
}

at::Tensor Operands::copied(const at::Tensor& tensor, c10::ScalarType dtype) {
  check(tensor);
  const BelowAutograd below;
  at::Tensor copy = scratch(tensor.sizes(), dtype);
  copy.copy_(tensor);
  return copy;
}

at::Tensor Operands::joined(const std::vector<at::Tensor>& tensors) {
  const BelowAutograd below;
  std::vector<at::Tensor> rows;
  rows.reserve(tensors.size());
  for (const at::Tensor& tensor : tensors) {
    check(tensor);
    rows.push_back(tensor.reshape({-1}));
  }
  return keep(at::cat(rows));
}

void Operands::part(const at::Tensor& joined, const std::vector<at::Tensor>& tensors) {
  const BelowAutograd below;
  int64_t start = 0;
  for (const at::Tensor& tensor : tensors) {
    check(tensor);
    const at::Tensor row = joined.narrow(0, start, tensor.numel());
    copies_.push_back({row.view(tensor.sizes()), keep(tensor)});
    start += tensor.numel();
  }
}

at::Tensor Operands::write(const at::Tensor& tensor) {
  return write(tensor, tensor.scalar_type());
}

at::Tensor Operands::write(const at::Tensor& tensor, c10::ScalarType dtype) {
  check(tensor);
  if (tensor.scalar_type() == dtype && is_plain(tensor)) {
    clear_failure_if_overwritten(tensor);
    return keep(tensor);
  }
  const BelowAutograd below;
  at::Tensor written = scratch(tensor.sizes(), dtype);
  copies_.push_back({written, keep(tensor)});
  return written;
}

at::Tensor Operands::update(const at::Tensor& tensor, c10::ScalarType dtype) {
  at::Tensor updated = read(tensor, dtype);
  if (!updated.is_same(tensor)) {
    copies_.push_back({updated, keep(tensor)});
  }
  return updated;
}

void Operands::settle() {
  const WithoutGil released;
  const recorder::Lock lock;
  if (recorder::enabled()) {
    TORCH_CHECK(
        !recorder::capturing(),
        "A collective cannot be captured in an HPU graph: end the capture before calling it, or "
        "set PT_HPU_ENABLE_LAZY_COLLECTIVES=true before the first import.");
    recorder::flush(recorder::Cause::mark_step);
  }
  for (const at::Tensor& tensor : kept_) {
    materialize(tensor);
  }
  for (Copy& copy : copies_) {
    copy = {host_view(copy.from), host_view(copy.to)};
  }
}

bool Operands::known() const {
  return std::all_of(kept_.begin(), kept_.end(), [](const at::Tensor& tensor) {
    return keeps_host_values(tensor) && !stand_ins::assumed(tensor);
  });
}

void Operands::finish() {
  const KernelsOnly kernels;
  for (const Copy& copy : copies_) {
    const auto dtype = copy.to.scalar_type();
    copy.to.copy_(copy.from.scalar_type() == dtype ? copy.from : narrow(copy.from, dtype));
    narrow_types::apply(copy.to);
  }
}

at::Tensor numbers(const at::Tensor& tensor) {
  const KernelsOnly kernels;
  return host_view(tensor).as_strided({tensor.numel()}, {1});
}

at::Tensor bytes(const at::Tensor& tensor) {
  const KernelsOnly kernels;
  return numbers(tensor).view(at::kByte);
}

std::vector<at::Tensor> bytes(const std::vector<at::Tensor>& tensors) {
  std::vector<at::Tensor> memories;
  memories.reserve(tensors.size());
  for (const at::Tensor& tensor : tensors) {
    memories.push_back(bytes(tensor));
  }
  return memories;
}

const at::Tensor& only(const std::vector<at::Tensor>& tensors, const char* name) {
  TORCH_CHECK(
      tensors.size() == 1, "hccl's ", name, " requires one tensor on the rank's card, but got ",
      tensors.size(), ".");
  return tensors[0];
}

const std::vector<at::Tensor>& only(
    const std::vector<std::vector<at::Tensor>>& lists, int size, const char* name) {
  TORCH_CHECK(
      lists.size() == 1 && lists[0].size() == static_cast<size_t>(size), "hccl's ", name,
      " requires one list with a tensor for each of the ", size, " ranks.");
  return lists[0];
}

void check_pairs(
    const std::vector<at::Tensor>& outputs, const std::vector<at::Tensor>& inputs,
    const char* name) {
  TORCH_CHECK(
      outputs.size() == inputs.size(), "hccl's ", name,
      " requires as many outputs as inputs, but got ", outputs.size(), " and ", inputs.size(),
      ".");
}

void check_same_size(const at::Tensor& one, const at::Tensor& other, const char* name) {
  TORCH_CHECK(
      one.scalar_type() == other.scalar_type() && one.numel() == other.numel(), "hccl's ", name,
      " requires tensors of the same dtype and size, but got ", one.scalar_type(), " of ",
      one.sizes(), " and ", other.scalar_type(), " of ", other.sizes(), ".");
}

void check_parts(const at::Tensor& whole, const at::Tensor& part, int size, const char* name) {
  TORCH_CHECK(
      whole.scalar_type() == part.scalar_type() && whole.numel() == part.numel() * size,
      "hccl's ", name, " requires two tensors of the same dtype, the larger of which has the "
      "elements of all ", size, " ranks, but got ", whole.scalar_type(), " of ", whole.sizes(),
      " and ", part.scalar_type(), " of ", part.sizes(), ".");
}

Subject like(const at::Tensor& tensor, int64_t root) {
  return {tensor.numel(), tensor.scalar_type(), static_cast<int>(root)};
}

Subject like(const std::vector<at::Tensor>& tensors) {
  Subject subject{0};
  for (const at::Tensor& tensor : tensors) {
    subject.elements += tensor.numel();
    subject.dtype = tensor.scalar_type();
  }
  return subject;
}

}  // namespace hpu::collectives
