#include "memory/memory.h"

#include "memory/booking.h"
#include "memory/card.h"
#include "memory/failure.h"
#include "memory/lacking_types.h"
#include "memory/memory_reuse.h"

#include <ATen/EmptyTensor.h>
#include <ATen/native/Resize.h>
#include <c10/core/CPUAllocator.h>
#include <c10/util/Exception.h>

#include <atomic>
#include <cstring>
#include <utility>

namespace hpu {
namespace {

using StoragePtr = c10::intrusive_ptr<c10::StorageImpl>;

struct Block {
  StoragePtr twin;   // null until a recorded operation writes the storage
  size_t bytes = 0;  // as booked on the card
  RecordMark mark{};
  uint64_t number = 0;  // see number_of
  std::shared_ptr<const std::string> failure{};  // why it will never be written
};

/// The host's own memory for bytes that are booked; null where it has none.
c10::DataPtr host_memory(size_t bytes) {
  const KeptMemory kept;
  c10::DataPtr memory;
  const auto attempt = [bytes, &memory] {
    try {
      memory = c10::GetCPUAllocator()->allocate(bytes);
      return true;
    } catch (const c10::Error&) {
      return false;
    }
  };
  if (!attempt()) {
    defragment(attempt);
  }
  return memory;
}

void free_block(void* context) {
  auto* block = static_cast<Block*>(context);
  card::release(block->bytes);
  delete block;
}

StoragePtr make_storage(size_t bytes, c10::DataPtr data, c10::Allocator* allocator) {
  return c10::make_intrusive<c10::StorageImpl>(
      c10::StorageImpl::use_byte_size_t(), bytes, std::move(data), allocator, /*resizable=*/true);
}

/// Books the twin's bytes on the card and wraps it as device memory.
c10::DataPtr wrap(StoragePtr twin) {
  const size_t bytes = twin->nbytes();
  charge(bytes);
  void* data = twin->mutable_data();
  return {data, new Block{std::move(twin), bytes}, &free_block, device()};
}

struct DeviceAllocator final : c10::Allocator {
  c10::DataPtr allocate(size_t bytes) override {
    charge(bytes);  // before the host is asked, so that a full card never fills the host
    c10::DataPtr host = host_memory(bytes);
    void* data = host.get();
    if (!data && bytes > 0) {
      card::release(bytes);
      card::host_out_of_memory(bytes);
    }
    auto twin = make_storage(bytes, std::move(host), c10::GetCPUAllocator());
    return {data, new Block{std::move(twin), bytes}, &free_block, device()};
  }

  c10::DeleterFnPtr raw_deleter() const override {
    return nullptr;  // a block is freed through its context, not through its address
  }

  void copy_data(void* destination, const void* source, size_t bytes) const override {
    std::memcpy(destination, source, bytes);
  }
};

std::atomic<uint64_t> numbered{0};

// Leaked: tensors of static lifetime may outlive static destruction.
DeviceAllocator& allocator = *new DeviceAllocator;

Block* block_of(const c10::Storage& storage) {
  return storage.data_ptr().cast_context<Block>(&free_block);
}

/// Graphs whose writes were lost in a fork.
struct Lost {
  uint64_t first = UINT64_MAX;
  uint64_t last = 0;
  std::shared_ptr<const std::string> why{};
};

auto* lost = new Lost;

/// Why a block does not hold what the program asked for.
std::shared_ptr<const std::string>& failure_of(Block& block) {
  if (block.mark.written >= lost->first && block.mark.written <= lost->last) {
    block.mark.written = 0;
    block.failure = lost->why;
  }
  return block.failure;
}

void rebind(const c10::Storage& storage, StoragePtr twin, size_t booked) {
  void* data = twin->mutable_data();
  Block* old = block_of(storage);
  auto* block = new Block{std::move(twin), booked};
  if (old) {
    block->mark = old->mark;
    block->number = old->number;
    if (old->twin) {
      block->failure = old->failure;
    }
  }
  auto* impl = storage.unsafeGetStorageImpl();
  impl->set_data_ptr_noswap({data, block, &free_block, device()});
  impl->set_nbytes(booked);
}

/// Gives a storage that was only recorded its memory.
void materialize(const c10::Storage& storage) {
  const size_t bytes = storage.nbytes();
  c10::DataPtr memory = allocator.allocate(bytes);
  auto* fresh = memory.cast_context<Block>(&free_block);
  rebind(storage, std::exchange(fresh->twin, nullptr), std::exchange(fresh->bytes, 0));
}

/// The CPU storage over a device storage's memory.
StoragePtr twin_of(const c10::Storage& storage) {
  if (Block* block = block_of(storage)) {
    if (const auto& failure = failure_of(*block)) {
      TORCH_CHECK(false, *failure);
    }
    if (!block->twin) {
      materialize(storage);
    }
  }
  void* data = storage.mutable_data();  // a copy-on-write storage gets its own memory here
  if (Block* block = block_of(storage)) {
    return block->twin;
  }
  return make_storage(
      storage.nbytes(), c10::DataPtr(data, c10::Device(c10::kCPU)), c10::GetCPUAllocator());
}

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

/// Makes a device storage follow its twin after a kernel resized the twin.
void follow_twin(const c10::Storage& storage, Block& block) {
  StoragePtr twin = block.twin;
  try {
    charge(twin->nbytes());
  } catch (const c10::Error&) {
    at::native::resize_bytes_cpu(twin.get(), block.bytes);
    rebind(storage, std::move(twin), std::exchange(block.bytes, 0));
    throw;
  }
  const size_t bytes = twin->nbytes();
  rebind(storage, std::move(twin), bytes);
}

/// Whether two CPU or device tensors show the same memory as the same values.
bool same_geometry(const at::Tensor& one, const at::Tensor& other) {
  return one.scalar_type() == other.scalar_type() && one.sizes() == other.sizes() &&
      one.strides() == other.strides() && one.storage_offset() == other.storage_offset() &&
      one.is_conj() == other.is_conj() && one.is_neg() == other.is_neg();
}

}  // namespace

REGISTER_ALLOCATOR(kDevice, &allocator);

c10::Allocator* device_allocator() {
  return &allocator;
}

at::Tensor host_view(const at::Tensor& tensor) {
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
  lacking_types::check(c10::typeMetaToScalarType(dtype));
  card::acquire();
  const size_t bytes =
      at::detail::computeStorageNbytes(sizes, strides, dtype.itemsize(), offset);
  auto* block = new Block;
  block->number = ++numbered;
  c10::DataPtr nothing(nullptr, block, &free_block, device());
  auto tensor = at::detail::make_tensor<c10::TensorImpl>(
      c10::Storage(make_storage(bytes, std::move(nothing), &allocator)),
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

void grow(const c10::Storage& storage, size_t bytes) {
  c10::StorageImpl* impl = storage.unsafeGetStorageImpl();
  if (bytes <= impl->nbytes()) {
    return;
  }
  Block* block = block_of(storage);
  if (!block) {
    at::native::resize_bytes_cpu(impl, bytes);
  } else if (block->twin) {
    check_room(bytes - impl->nbytes());
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

void fail(const at::Tensor& tensor, const std::shared_ptr<const std::string>& why) {
  if (Block* block = block_of(tensor.storage())) {
    block->failure = why;
  }
}

void free_memory(const c10::Storage& storage, const std::shared_ptr<const std::string>& why) {
  const Block* block = block_of(storage);
  if (block && block->twin) {
    auto* freed = new Block{nullptr, 0, block->mark, block->number, why};
    c10::DataPtr nothing(nullptr, freed, &free_block, device());
    storage.unsafeGetStorageImpl()->set_data_ptr_noswap(std::move(nothing));
  }
}

std::shared_ptr<const std::string> failure_of(const c10::Storage& storage) {
  Block* block = block_of(storage);
  return block ? failure_of(*block) : nullptr;
}

void lose_writes(
    uint64_t first_graph, uint64_t last_graph, const std::shared_ptr<const std::string>& why) {
  lost = new Lost{first_graph, last_graph, why};
}

void promise_overwritten(const at::Tensor& tensor) {
  if (failure_of(tensor.storage()) && tensor.is_non_overlapping_and_dense() &&
      tensor.nbytes() == tensor.storage().nbytes()) {
    promise(tensor.storage());
  }
}

void promise(const c10::Storage& storage) {
  if (Block* block = block_of(storage)) {
    failure_of(*block).reset();
  }
}

void place(const at::Tensor& result, const at::Tensor& output) {
  const c10::Storage& storage = output.storage();
  const Block* block = block_of(storage);
  const bool same = same_geometry(result, output);
  if (block && !block->twin && same && result.storage().nbytes() == storage.nbytes() &&
      result.storage().use_count() == 1) {
    charge(storage.nbytes());
    rebind(
        storage, StoragePtr::reclaim_copy(result.storage().unsafeGetStorageImpl()),
        storage.nbytes());
    return;
  }
  const bool there = block && block->twin && result.storage().data() == block->twin->data();
  if (there && same) {
    return;
  }
  host_view(output).copy_(there ? result.clone() : result);
}

at::Tensor with_geometry_of(c10::Storage storage, const at::Tensor& like) {
  lacking_types::check(like.scalar_type());
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
  lacking_types::check(result.scalar_type());  // before anything is booked
  StoragePtr twin = c10::intrusive_ptr<c10::StorageImpl>::reclaim_copy(
      result.storage().unsafeGetStorageImpl());
  const size_t bytes = twin->nbytes();
  return with_geometry_of(
      c10::Storage(make_storage(bytes, wrap(std::move(twin)), &allocator)), result);
}

at::Tensor with_sizes(
    const at::Tensor& tensor, c10::IntArrayRef sizes, c10::IntArrayRef strides) {
  at::Tensor resized = with_geometry_of(tensor.storage(), tensor);
  resized.unsafeGetTensorImpl()->set_sizes_and_strides(sizes, strides);
  return resized;
}

void follow_kernel(const at::Tensor& tensor) {
  const c10::Storage& storage = tensor.storage();
  if (Block* block = block_of(storage);
      block && block->twin &&
      (block->twin->data() != storage.data() || block->twin->nbytes() != block->bytes)) {
    follow_twin(storage, *block);
  }
}

void write_back(const at::Tensor& tensor, const at::Tensor& view) {
  follow_kernel(tensor);
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
