// Device memory and CPU views of it.
//
// Every device storage owns a twin, a CPU storage over the same bytes. Kernels run on CPU tensors
// over twins. A result becomes a device tensor over the result's storage.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Allocator.h>

#include <memory>
#include <string>

namespace hpu {

constexpr auto kDevice = c10::DeviceType::HPU;
constexpr c10::DispatchKeySet kHost(c10::DispatchKey::CPU);

inline c10::Device device() {
  return c10::Device(kDevice, 0);  // a process owns one card, which has index 0
}

inline bool on_device(const at::Tensor& tensor) {
  return tensor.defined() && tensor.device().type() == kDevice;
}

/// The allocator for storages of a type, which reserves the device memory that the type needs.
c10::Allocator* device_allocator(c10::ScalarType dtype);

/// The device memory that a storage uses.
size_t device_bytes(const c10::Storage& storage);

/// A CPU tensor over the memory of a device tensor, with its sizes, strides and lazy bits.
at::Tensor host_view(const at::Tensor& tensor);

/// A CPU tensor of the same shape without memory, for kernels that use only shapes.
at::Tensor shape_view(const at::Tensor& tensor);

/// A device tensor over the storage of a CPU result, with the precision of the card. An undefined
/// tensor stays undefined.
at::Tensor adopt(const at::Tensor& result);

/// A device tensor over the device storage `storage`, with the type, sizes and strides of `like`.
at::Tensor with_geometry_of(c10::Storage storage, const at::Tensor& like);

/// A tensor over the same storage, at the same offset, with other sizes.
at::Tensor with_sizes(
    const at::Tensor& tensor, c10::IntArrayRef sizes, c10::IntArrayRef strides);

/// Updates a tensor's storage after a kernel has resized the storage of its CPU view.
void follow_kernel(const at::Tensor& tensor);

/// Copies changes that a kernel made to a view's size and lazy bits to its device tensor.
void write_back(const at::Tensor& tensor, const at::Tensor& view);

// In lazy mode, a storage may exist before its memory. The memory is allocated when an operation
// writes the storage, or at the latest when one reads it.

/// The role of a storage in the graph that is being recorded.
struct RecordMark {
  uint64_t graph = 0;  // the last graph that used it
  uint64_t ordinal = 0;  // its number in that graph, in the order of first use
  uint64_t written = 0;  // the last graph that writes it
};

at::Tensor pending_tensor(
    c10::IntArrayRef sizes, c10::IntArrayRef strides, int64_t offset, caffe2::TypeMeta dtype);
bool has_memory(const c10::Storage& storage);

/// Enlarges a storage to this size and keeps its content. Recorded operations continue to use it.
void grow(const c10::Storage& storage, size_t bytes);

/// Storages without memory are numbered in the order of their creation; 0 for all others.
uint64_t number_of(const c10::Storage& storage);
uint64_t last_number();

/// Whether a tensor on the device can have memory; false for fake and functional tensors.
bool is_real(const at::Tensor& tensor);

/// Allocates the memory of a tensor's storage, unless it has memory.
void materialize(const at::Tensor& tensor);
RecordMark* record_mark(const c10::Storage& storage);

/// Stores a CPU result in a pending device tensor. A tensor without memory gets the result's
/// memory; a tensor with memory keeps its address and gets a copy.
void place(const at::Tensor& result, const at::Tensor& output);

// A failed storage does not have its values, because the operation that writes them failed.

/// Why a storage does not have the values that the program expects; null if it has them. Every use
/// of a failed storage raises this.
std::shared_ptr<const std::string> failure_of(const c10::Storage& storage);

/// Makes every later use of a tensor's storage raise `why`.
void fail(const at::Tensor& tensor, const std::shared_ptr<const std::string>& why);

/// Frees a storage's memory; until it is written again, every use of it raises `why`.
void free_memory(const c10::Storage& storage, const std::shared_ptr<const std::string>& why);

/// Makes a storage usable again, because an operation will write it.
void clear_failure(const c10::Storage& storage);

/// Makes a failed storage usable again if `tensor`, which is about to be overwritten, covers all of
/// it.
void clear_failure_if_overwritten(const at::Tensor& tensor);

/// In the child of a fork: makes the storages that these graphs write raise `why`.
void lose_writes(
    uint64_t first_graph, uint64_t last_graph, const std::shared_ptr<const std::string>& why);

// Page-locked host memory is ordinary memory whose address ranges are registered.
c10::Allocator* pinned_allocator();
bool is_pinned(const void* address);

}  // namespace hpu
