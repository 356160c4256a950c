// Device memory and the CPU view of it.
//
// Every device storage owns a twin: a CPU storage over the same bytes. A kernel runs on CPU
// tensors over the twins, and its results become device tensors by handing their storage over.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Allocator.h>

#include <memory>
#include <string>

namespace hpu {

constexpr auto kDevice = c10::DeviceType::HPU;
constexpr c10::DispatchKeySet kHost(c10::DispatchKey::CPU);

inline c10::Device device() {
  return c10::Device(kDevice, 0);  // a process owns one card and sees it as index 0
}

inline bool on_device(const at::Tensor& tensor) {
  return tensor.defined() && tensor.device().type() == kDevice;
}

/// The allocator of storages for a type, which books what the card takes for it.
c10::Allocator* device_allocator(c10::ScalarType dtype);

/// What the card books for a storage with memory.
size_t booked_bytes(const c10::Storage& storage);

/// A CPU tensor over the memory of a device tensor, with its sizes, strides and lazy bits.
at::Tensor host_view(const at::Tensor& tensor);

/// A CPU tensor of the same shape over no memory, for kernels that only look at shapes.
at::Tensor shape_view(const at::Tensor& tensor);

/// A device tensor that takes over the storage of a CPU result, and keeps of its values what the
/// card does. Undefined stays undefined.
at::Tensor adopt(const at::Tensor& result);

/// A device tensor over `storage` (a device storage) with the geometry of `like`.
at::Tensor with_geometry_of(c10::Storage storage, const at::Tensor& like);

/// A tensor over the same storage, at the same offset, with other sizes.
at::Tensor with_sizes(
    const at::Tensor& tensor, c10::IntArrayRef sizes, c10::IntArrayRef strides);

/// Makes a tensor's storage follow a kernel that gave its CPU view more memory.
void follow_kernel(const at::Tensor& tensor);

/// Carries what a kernel changed of `view` besides values (its size, its lazy bits) over to the
/// device tensor behind it.
void write_back(const at::Tensor& tensor, const at::Tensor& view);

// Lazy mode: a storage may be known before it has memory. It gets memory when an operation
// writes it, or at the latest when one reads it.

/// Where a storage stands in the graph that is being recorded.
struct RecordMark {
  uint64_t graph = 0;    // the last graph that used it
  uint64_t ordinal = 0;  // its number there, by first use
  uint64_t written = 0;  // the last graph that writes it
};

at::Tensor pending_tensor(
    c10::IntArrayRef sizes, c10::IntArrayRef strides, int64_t offset, caffe2::TypeMeta dtype);
bool has_memory(const c10::Storage& storage);

/// Makes room for that many bytes in a storage, whose first bytes stay. What is recorded goes on
/// to use it.
void grow(const c10::Storage& storage, size_t bytes);

/// Storages without memory are numbered in the order in which they are made; 0 for all others.
uint64_t number_of(const c10::Storage& storage);
uint64_t last_number();

/// Whether a tensor said to be on the device is: fake and functional ones are not.
bool is_real(const at::Tensor& tensor);

/// Gives the tensor's storage its memory, unless it has some.
void materialize(const at::Tensor& tensor);
RecordMark* record_mark(const c10::Storage& storage);

/// Makes every later use of a tensor's storage raise `why`.
void fail(const at::Tensor& tensor, const std::shared_ptr<const std::string>& why);

/// Frees a storage's memory; until it is written again, every use of it raises `why`.
void free_memory(const c10::Storage& storage, const std::shared_ptr<const std::string>& why);
/// Lets a storage be written again.
void promise(const c10::Storage& storage);

/// Puts a CPU result into a device tensor that was promised for it: a tensor without memory takes
/// over that of the result, one that has memory keeps its address.
void place(const at::Tensor& result, const at::Tensor& output);

}  // namespace hpu
