// Device memory and CPU views of it.
//
// Every device storage owns a twin, which is a CPU storage that shares its bytes. Kernels run on
// CPU tensors backed by these twins. The storage of a result becomes the twin of a new device
// tensor.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Allocator.h>

#include <memory>
#include <optional>
#include <string>

namespace hpu {

constexpr auto kDevice = c10::DeviceType::HPU;
constexpr c10::DispatchKeySet kHost(c10::DispatchKey::CPU);

inline c10::Device device() {
  return c10::Device(kDevice, 0);  // a process owns one card, which always has index 0
}

inline bool on_device(const at::Tensor& tensor) {
  return tensor.defined() && tensor.device().type() == kDevice;
}

/// Returns the allocator for storages of a dtype. The allocator reserves the device memory that the
/// dtype needs.
c10::Allocator* device_allocator(c10::ScalarType dtype);

/// Returns the amount of device memory that a storage uses.
size_t device_bytes(const c10::Storage& storage);

/// Returns a CPU tensor that shares the memory of a device tensor and has its sizes, strides and
/// lazy conjugate and negative bits.
at::Tensor host_view(const at::Tensor& tensor);

/// Returns a CPU tensor that has the same shape but no memory, for kernels that use only shapes.
at::Tensor shape_view(const at::Tensor& tensor);

/// Returns a device tensor that takes over the storage of a CPU result. The values are rounded to
/// the card's precision, and memory that the result does not use is freed. An undefined tensor
/// stays undefined.
at::Tensor adopt(const at::Tensor& result);

/// Returns a device tensor that uses the device storage `storage`, with the dtype, sizes and
/// strides of `like`.
at::Tensor with_geometry_of(c10::Storage storage, const at::Tensor& like);

/// Returns a tensor that uses the same storage at the same offset, with other sizes and strides.
at::Tensor with_sizes(
    const at::Tensor& tensor, c10::IntArrayRef sizes, c10::IntArrayRef strides);

/// Updates a tensor's storage after a kernel has resized the storage of its CPU view.
void follow_kernel(const at::Tensor& tensor);

/// Applies the changes that a kernel made to the size and lazy bits of a CPU view to its device
/// tensor.
void write_back(const at::Tensor& tensor, const at::Tensor& view);

// In lazy mode, a storage may exist without memory. The memory is allocated when an operation
// writes to the storage or, at the latest, when one reads it.

/// How a storage is used by the graph that is being recorded.
struct RecordMark {
  uint64_t graph = 0;  // the last graph that used it
  uint64_t ordinal = 0;  // its number in that graph, in the order of first use
  uint64_t written = 0;  // the last graph that writes to it
};

at::Tensor pending_tensor(
    c10::IntArrayRef sizes, c10::IntArrayRef strides, int64_t offset, caffe2::TypeMeta dtype);
bool has_memory(const c10::Storage& storage);

/// What a dry run assumes about the values of a storage.
struct Assumption {
  bool assumed = false;  // whether values were not computed; otherwise, the rest has no meaning
  int64_t value = 0;  // the value of integers and Booleans
  double share = 1;  // the portion of a mask's elements that are true
  std::optional<double> number{};  // the value of floating-point elements, if it was inferred
  bool excludes = false;  // whether known operands exclude some elements of a mask
};

/// Returns the assumption about a device storage, or null for a storage on another device.
Assumption* assumption_of(const c10::Storage& storage);

/// Enlarges a storage to this size and keeps its contents. Recorded operations continue to use it.
void grow(const c10::Storage& storage, size_t bytes);

/// Returns the number of a storage that was created without memory, or 0 for all other storages.
/// Numbers are assigned in the order of creation.
uint64_t number_of(const c10::Storage& storage);
uint64_t last_number();

/// Returns whether a tensor on the device can own memory. Fake and functional tensors cannot.
bool is_real(const at::Tensor& tensor);

/// Allocates memory for a tensor's storage if it has not been allocated yet.
void materialize(const at::Tensor& tensor);
RecordMark* record_mark(const c10::Storage& storage);

/// Stores a CPU result in a pending device tensor. A tensor without memory takes over the result's
/// memory. A tensor with memory keeps its address, and the result is copied into it.
void place(const at::Tensor& result, const at::Tensor& output);

// A failed storage does not contain valid values, because the operation that should have written
// them failed.

/// Returns why a storage does not contain the expected values, or null if it contains them. Every
/// use of a failed storage raises an error with this reason.
std::shared_ptr<const std::string> failure_of(const c10::Storage& storage);

/// Marks a tensor's storage as failed, so that every use raises an error with the message `why`.
void fail(const at::Tensor& tensor, const std::shared_ptr<const std::string>& why);

/// Frees a storage's memory. Until it is written again, every use raises an error with the message
/// `why`.
void free_memory(const c10::Storage& storage, const std::shared_ptr<const std::string>& why);

/// Makes a storage usable again before an operation writes to it.
void clear_failure(const c10::Storage& storage);

/// Makes a failed storage usable again if `tensor`, which is about to be overwritten, covers the
/// whole storage.
void clear_failure_if_overwritten(const at::Tensor& tensor);

/// Marks storages as failed if these graphs would have written to them, so that every use raises an
/// error with the message `why`. Called in the child after a fork.
void lose_writes(
    uint64_t first_graph, uint64_t last_graph, const std::shared_ptr<const std::string>& why);

// Pinned host memory is ordinary memory whose address ranges are registered as pinned.
c10::Allocator* pinned_allocator();
bool is_pinned(const void* address);

}  // namespace hpu
