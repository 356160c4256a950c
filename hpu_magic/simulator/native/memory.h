// Device memory and the CPU view of it.
//
// Every device storage owns a twin: a CPU storage over the same bytes. A kernel runs on CPU
// tensors over the twins, and its results become device tensors by handing their storage over.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Allocator.h>

namespace hpu {

constexpr auto kDevice = c10::DeviceType::HPU;
constexpr c10::DispatchKeySet kHost(c10::DispatchKey::CPU);

inline c10::Device device() {
  return c10::Device(kDevice, 0);  // a process owns one card and sees it as index 0
}

inline bool on_device(const at::Tensor& tensor) {
  return tensor.defined() && tensor.device().type() == kDevice;
}

c10::Allocator* device_allocator();
/// Page-locked host memory: ordinary memory whose addresses `is_pinned` recognises.
c10::Allocator* pinned_allocator();
bool is_pinned(const void* address);

/// A CPU tensor over the memory of a device tensor, with its sizes, strides and lazy bits.
at::Tensor host_view(const at::Tensor& tensor);

/// A device tensor that takes over the storage of a CPU result. Undefined stays undefined.
at::Tensor adopt(const at::Tensor& result);

/// A device tensor over `storage` (a device storage) with the geometry of `like`.
at::Tensor with_geometry_of(c10::Storage storage, const at::Tensor& like);

/// Carries what a kernel changed of `view` besides values (its size, its lazy bits) over to the
/// device tensor behind it.
void write_back(const at::Tensor& tensor, const at::Tensor& view);

}  // namespace hpu
