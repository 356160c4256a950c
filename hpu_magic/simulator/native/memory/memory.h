// Device memory and CPU views of it.
//
// Every device storage owns a twin: a CPU storage over the same bytes. Kernels run on CPU tensors
// over twins. A result becomes a device tensor that takes over the result's storage.
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

/// The allocator for storages of a type, which books the bytes that the card needs for it.
c10::Allocator* device_allocator(c10::ScalarType dtype);

/// The bytes that the card books for a storage.
size_t booked_bytes(const c10::Storage& storage);

/// A CPU tensor over the memory of a device tensor, with its sizes, strides and lazy bits.
at::Tensor host_view(const at::Tensor& tensor);

/// A CPU tensor of the same shape without memory, for kernels that use only shapes.
at::Tensor shape_view(const at::Tensor& tensor);

/// A device tensor that takes over the storage of a CPU result, with the precision of the card. An
/// undefined tensor stays undefined.
at::Tensor adopt(const at::Tensor& result);

/// A device tensor over `storage`, a device storage, with the geometry of `like`.
at::Tensor with_geometry_of(c10::Storage storage, const at::Tensor& like);

/// A tensor over the same storage, at the same offset, with other sizes.
at::Tensor with_sizes(
    const at::Tensor& tensor, c10::IntArrayRef sizes, c10::IntArrayRef strides);

/// Updates a tensor's storage after a kernel resized the storage of its CPU view.
void follow_kernel(const at::Tensor& tensor);

/// Copies changes that a kernel made to a view's size and lazy bits to its device tensor.
void write_back(const at::Tensor& tensor, const at::Tensor& view);

// In lazy mode, a storage may exist before it has memory. It gets memory when an operation writes
// it, or at the latest when one reads it.

/// The role of a storage in the graph that is being recorded.
struct RecordMark {
  uint64_t graph = 0;  // the last graph that used it
  uint64_t ordinal = 0;  // its number in that graph, in the order of first use
  uint64_t written = 0;  // the last graph that writes it
};

at::Tensor pending_tensor(
    c10::IntArrayRef sizes, c10::IntArrayRef strides, int64_t offset, caffe2::TypeMeta dtype);
bool has_memory(const c10::Storage& storage);

/// Enlarges a storage to this size and keeps its first bytes. Recorded operations continue to use
/// it.
void grow(const c10::Storage& storage, size_t bytes);

/// Storages without memory are numbered in the order of their creation; 0 for all others.
uint64_t number_of(const c10::Storage& storage);
uint64_t last_number();

/// Whether a tensor on the device has memory there; false for fake and functional tensors.
bool is_real(const at::Tensor& tensor);

/// Allocates the memory of a tensor's storage, unless it has memory.
void materialize(const at::Tensor& tensor);
RecordMark* record_mark(const c10::Storage& storage);

/// Stores a CPU result in a pending device tensor. A tensor without memory takes over the result's
/// memory; a tensor with memory keeps its address and gets a copy.
void place(const at::Tensor& result, const at::Tensor& output);

}  // namespace hpu
