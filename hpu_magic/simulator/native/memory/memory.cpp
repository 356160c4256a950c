#include "memory/memory.h"

#include "memory/block.h"
#include "memory/card.h"
#include "memory/card_types.h"

#include <ATen/EmptyTensor.h>
#include <ATen/native/Resize.h>
#include <c10/core/CPUAllocator.h>

#include <algorithm>
#include <atomic>
#include <utility>

namespace hpu {
namespace {

std::atomic<uint64_t> numbered{0};

at::Tensor make_tensor(c10::Storage storage, c10::DispatchKeySet keys, const at::Tensor& like) {
  auto tensor =
      at::detail::make_tensor_base<c10::TensorImpl>(std::move(storage), keys, like.dtype());
  auto* impl = tensor.unsafeGetTensorImpl();
  impl->set_storage_offset(like.storage_offset());
  impl->set_sizes_and_strides(like.sizes(), like.strides());
  return at::Tensor(std::move(tensor));
}

void copy_lazy_bits(const at::Tensor& from, const at::Tensor& to) {
  if (from.is_conj()) {
    to._set_conj(true);
  }
  if (from.is_neg()) {
    to._set_neg(true);
  }
}

/// Returns whether two tensors interpret their memory in the same way.
bool same_geometry(const at::Tensor& left, const at::Tensor& right) {
  return left.scalar_type() == right.scalar_type() && left.sizes() == right.sizes() &&
      left.strides() == right.strides() && left.storage_offset() == right.storage_offset() &&
      left.is_conj() == right.is_conj() && left.is_neg() == right.is_neg();
}

size_t used_bytes(const at::Tensor& tensor) {
  return at::detail::computeStorageNbytes(
      tensor.sizes(), tensor.strides(), tensor.dtype().itemsize(),
      static_cast<size_t>(tensor.storage_offset()));
}

/// Frees the memory that a result does not use. For example, some CPU kernels use the storage of a
/// reduced loss for the loss of each element first.
void trim(const at::Tensor& result) {
  const size_t used = used_bytes(result);
  const c10::Storage& storage = result.storage();
  if (used < storage.nbytes() && storage.resizable() && storage.unique()) {
    at::native::resize_bytes_cpu(storage.unsafeGetStorageImpl(), used);
  }
}

/// Updates a storage after a kernel has resized its twin, of which a tensor uses `used` bytes.
void follow_kernel(const c10::Storage& storage, size_t used) {
  Block* block = block_of(storage);
  if (!block || !block->twin ||
      (block->twin->data() == storage.data() && block->twin->nbytes() == block->bytes)) {
    return;
  }
  used = std::max(used, block->bytes);
  if (used < block->twin->nbytes()) {  // the kernel used the rest only temporarily
    at::native::resize_bytes_cpu(block->twin.get(), used);
  }
  follow_twin(storage, *block);
}

}  // namespace

at::Tensor host_view(const at::Tensor& tensor) {
  reserve_as(tensor.storage(), tensor.scalar_type());
  auto view = make_tensor(c10::Storage(twin_of(tensor.storage())), kHost, tensor);
  copy_lazy_bits(tensor, view);
  if (tensor.unsafeGetTensorImpl()->is_wrapped_number()) {
    view.unsafeGetTensorImpl()->set_wrapped_number(true);
  }
  return view;
}

at::Tensor shape_view(const at::Tensor& tensor) {
  c10::Storage storage(c10::make_intrusive<c10::StorageImpl>(
      c10::StorageImpl::use_byte_size_t(), tensor.storage().sym_nbytes(),
      c10::DataPtr(nullptr, c10::Device(c10::kCPU)), c10::GetCPUAllocator(), /*resizable=*/true));
  at::Tensor view(at::detail::make_tensor_base<c10::TensorImpl>(
      std::move(storage), kHost, tensor.dtype()));
  view.unsafeGetTensorImpl()->set_sizes_and_strides(
      tensor.sym_sizes(), tensor.sym_strides(), tensor.sym_storage_offset());
  copy_lazy_bits(tensor, view);
  return view;
}

at::Tensor pending_tensor(
    c10::IntArrayRef sizes, c10::IntArrayRef strides, int64_t offset, caffe2::TypeMeta dtype) {
  unsupported_types::check(c10::typeMetaToScalarType(dtype));
  card::acquire();
  const size_t bytes =
      at::detail::computeStorageNbytes(sizes, strides, dtype.itemsize(), offset);
  auto* block = new Block;
  block->number = ++numbered;
  c10::DataPtr nothing(nullptr, block, &free_block, device());
  auto tensor = at::detail::make_tensor<c10::TensorImpl>(
      c10::Storage(make_storage(
          bytes, std::move(nothing), device_allocator(c10::typeMetaToScalarType(dtype)))),
      c10::DispatchKeySet(c10::DispatchKey::HPU), dtype);
  tensor.unsafeGetTensorImpl()->set_storage_offset(offset);
  tensor.unsafeGetTensorImpl()->set_sizes_and_strides(sizes, strides);
  return tensor;
}

uint64_t number_of(const c10::Storage& storage) {
  const Block* block = block_of(storage);
  return block ? block->number : 0;
}

uint64_t last_number() {
  return numbered.load();
}

bool has_memory(const c10::Storage& storage) {
  const Block* block = block_of(storage);
  return !block || block->twin;
}

Assumption* assumption_of(const c10::Storage& storage) {
  Block* block = block_of(storage);
  return block ? &block->assumption : nullptr;
}

void grow(const c10::Storage& storage, size_t bytes) {
  c10::StorageImpl* impl = storage.unsafeGetStorageImpl();
  if (bytes <= impl->nbytes()) {
    return;
  }
  Block* block = block_of(storage);
  if (!block) {
    at::native::resize_bytes_cpu(impl, bytes);
  } else if (block->twin) {
    const bool narrow = is_narrow(storage);
    card::check_room(device_bytes(bytes, narrow) - device_bytes(impl->nbytes(), narrow));
    at::native::resize_bytes_cpu(block->twin.get(), bytes);
    follow_twin(storage, *block);
  } else {
    impl->set_nbytes(bytes);
  }
}

bool is_real(const at::Tensor& tensor) {
  return tensor.has_storage() && tensor.storage().device_type() == kDevice;
}

void materialize(const at::Tensor& tensor) {
  twin_of(tensor.storage());
}

RecordMark* record_mark(const c10::Storage& storage) {
  Block* block = block_of(storage);
  return block ? &block->mark : nullptr;
}

void place(const at::Tensor& result, const at::Tensor& output) {
  const c10::Storage& storage = output.storage();
  const Block* block = block_of(storage);
  const bool same = same_geometry(result, output);
  if (block && !block->twin && same && result.storage().nbytes() == storage.nbytes() &&
      result.storage().use_count() == 1) {
    card::reserve(device_bytes(storage));
    rebind(
        storage, StoragePtr::reclaim_copy(result.storage().unsafeGetStorageImpl()),
        storage.nbytes());
    return;
  }
  const bool in_place = block && block->twin && result.storage().data() == block->twin->data();
  if (in_place && same) {
    return;
  }
  host_view(output).copy_(in_place ? result.clone() : result);
}

at::Tensor with_geometry_of(c10::Storage storage, const at::Tensor& like) {
  unsupported_types::check(like.scalar_type());
  auto tensor = make_tensor(std::move(storage), c10::DispatchKeySet(c10::DispatchKey::HPU), like);
  copy_lazy_bits(like, tensor);
  return tensor;
}

at::Tensor adopt(const at::Tensor& result) {
  if (!result.defined() || !result.device().is_cpu()) {
    return result;
  }
  TORCH_CHECK_NOT_IMPLEMENTED(
      result.layout() == c10::kStrided && result.has_storage(), "HPU tensors have strided layout; ",
      result.layout(), " results are not supported on HPU. Move the inputs to the CPU first.");
  unsupported_types::check(result.scalar_type());  // before memory is reserved
  trim(result);
  narrow_types::apply(result);
  StoragePtr twin = c10::intrusive_ptr<c10::StorageImpl>::reclaim_copy(
      result.storage().unsafeGetStorageImpl());
  const bool narrow = narrow_types::include(result);
  const size_t bytes = twin->nbytes();
  card::reserve(device_bytes(bytes, narrow));
  void* data = twin->mutable_data();
  c10::DataPtr memory(data, new Block{std::move(twin), bytes, narrow}, &free_block, device());
  return with_geometry_of(
      c10::Storage(make_storage(
          bytes, std::move(memory), device_allocator(result.scalar_type()))),
      result);
}

at::Tensor with_sizes(
    const at::Tensor& tensor, c10::IntArrayRef sizes, c10::IntArrayRef strides) {
  at::Tensor resized = with_geometry_of(tensor.storage(), tensor);
  resized.unsafeGetTensorImpl()->set_sizes_and_strides(sizes, strides);
  return resized;
}

void follow_kernel(const at::Tensor& tensor) {
  follow_kernel(tensor.storage(), used_bytes(tensor));
}

void write_back(const at::Tensor& tensor, const at::Tensor& view) {
  follow_kernel(tensor.storage(), used_bytes(view));
  if (tensor.sizes() != view.sizes() || tensor.strides() != view.strides()) {
    tensor.unsafeGetTensorImpl()->set_sizes_and_strides(view.sizes(), view.strides());
  }
  if (tensor.is_conj() != view.is_conj()) {
    tensor._set_conj(view.is_conj());
  }
  if (tensor.is_neg() != view.is_neg()) {
    tensor._set_neg(view.is_neg());
  }
}

}  // namespace hpu
