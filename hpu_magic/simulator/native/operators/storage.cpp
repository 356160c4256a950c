// Operators that create, view, resize, fill and copy device storages.
#include "calls/dtypes.h"
#include "calls/stand_ins.h"
#include "calls/thread_modes.h"
#include "events/events.h"
#include "lazy/dry_call.h"
#include "memory/card.h"
#include "memory/card_types.h"
#include "memory/memory.h"
#include "memory/skipping.h"
#include "memory/zero_pages.h"
#include "operators/kernel.h"

#include <ATen/EmptyTensor.h>
#include <ATen/native/Resize.h>
#include <ATen/native/TensorFactories.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/_local_scalar_dense_native.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/bernoulli_ops.h>
#include <ATen/ops/clamp.h>
#include <ATen/ops/copy_ops.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/eq.h>
#include <ATen/ops/fill_ops.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/resize_native.h>
#include <ATen/ops/unfold_native.h>
#include <ATen/ops/view_native.h>
#include <ATen/ops/zero_ops.h>

namespace hpu {
namespace {

void check_layout(std::optional<at::Layout> layout, std::optional<bool> pin_memory) {
  TORCH_CHECK_NOT_IMPLEMENTED(
      at::layout_or_default(layout) == at::kStrided, "HPU tensors have strided layout; ", *layout,
      " is not supported on HPU.");
  TORCH_CHECK(
      !pin_memory.value_or(false), "Only dense CPU tensors can be pinned; an HPU tensor cannot.");
}

void check_device(std::optional<at::Device> wanted) {
  if (wanted) {
    card::choose(wanted->index());
  }
}

/// Checks the arguments of a new tensor and returns its dtype.
at::ScalarType checked_dtype(
    std::optional<at::ScalarType> dtype, std::optional<at::Layout> layout,
    std::optional<at::Device> wanted, std::optional<bool> pin_memory) {
  check_layout(layout, pin_memory);
  check_device(wanted);
  unsupported_types::check(c10::dtype_or_default(dtype));
  run_backward_on_this_thread();
  return c10::dtype_or_default(dtype);
}

at::Tensor pending(const at::Tensor& meta) {
  return pending_tensor(meta.sizes(), meta.strides(), 0, meta.dtype());
}

at::Tensor empty(
    c10::IntArrayRef size, std::optional<at::ScalarType> dtype, std::optional<at::Layout> layout,
    std::optional<at::Device> wanted, std::optional<bool> pin_memory,
    std::optional<at::MemoryFormat> memory_format) {
  const at::ScalarType type = checked_dtype(dtype, layout, wanted, pin_memory);
  if (recorder::enabled()) {
    return pending(at::Tensor(at::detail::empty_meta(size, type, memory_format)));
  }
  return at::Tensor(at::detail::empty_generic(
      size, device_allocator(type), c10::DispatchKeySet(c10::DispatchKey::HPU), type,
      memory_format));
}

at::Tensor empty_strided(
    c10::IntArrayRef size, c10::IntArrayRef stride, std::optional<at::ScalarType> dtype,
    std::optional<at::Layout> layout, std::optional<at::Device> wanted,
    std::optional<bool> pin_memory) {
  const at::ScalarType type = checked_dtype(dtype, layout, wanted, pin_memory);
  if (recorder::enabled()) {
    return pending(at::Tensor(at::detail::empty_strided_meta(size, stride, type)));
  }
  return at::Tensor(at::detail::empty_strided_generic(
      size, stride, device_allocator(type), c10::DispatchKeySet(c10::DispatchKey::HPU), type));
}

/// Returns a tensor of zeros without memory. Autograd calls this operator for gradients that are
/// zero.
at::Tensor efficient_zero_tensor(
    c10::SymIntArrayRef size, std::optional<at::ScalarType> dtype,
    std::optional<at::Layout> layout, std::optional<at::Device> wanted,
    std::optional<bool> pin_memory) {
  check_layout(layout, pin_memory);
  check_device(wanted);
  static auto& allocator = *new at::native::ZeroTensorAllocator(device());
  return at::Tensor(at::detail::empty_generic(
      C10_AS_INTARRAYREF_SLOW(size), &allocator,
      c10::DispatchKeySet(c10::DispatchKey::HPU) |
          c10::DispatchKeySet(c10::DispatchKey::ZeroTensor),
      c10::dtype_or_default(dtype), std::nullopt));
}

/// Enlarges a storage before PyTorch resizes it. Otherwise, PyTorch would replace the memory that
/// recorded operations use.
void make_room(
    const c10::Storage& storage, int64_t offset, c10::IntArrayRef size,
    at::OptionalIntArrayRef stride, size_t itemsize) {
  if (recorder::enabled() && c10::multiply_integers(size) > 0) {
    grow(
        storage,
        stride ? at::detail::computeStorageNbytes(size, *stride, itemsize, offset)
               : at::detail::computeStorageNbytesContiguous(size, itemsize, offset));
  }
}

const at::Tensor& resize(
    const at::Tensor& self, c10::SymIntArrayRef size,
    std::optional<at::MemoryFormat> memory_format) {
  const recorder::Lock lock;
  if (!recorder::capturing()) {  // the memory of the storage is replaced below
    recorder::flush_users_of(self, recorder::Cause::host_read, "aten::resize_");
  }
  const c10::IntArrayRef wanted = C10_AS_INTARRAYREF_SLOW(size);
  const auto before = static_cast<int64_t>(self.storage().nbytes());
  make_room(
      self.storage(), self.storage_offset(), wanted, std::nullopt, self.dtype().itemsize());
  const std::vector<int64_t> sizes = self.sizes().vec();
  const std::vector<int64_t> strides = self.strides().vec();
  try {
    at::native::resize_(self, wanted, memory_format);
  } catch (const c10::Error&) {  // the card is full; the memory is unchanged
    self.unsafeGetTensorImpl()->set_sizes_and_strides(sizes, strides);
    throw;
  }
  if (recorder::enabled() && at::globalContext().deterministicAlgorithms() &&
      at::globalContext().deterministicFillUninitializedMemory()) {
    at::native::fill_resize_deterministic_(self, before);
  }
  return self;
}

/// Converts the values of a storage that was loaded from a file. The dtype of the storage is not
/// known until the first tensor uses it.
void narrow_stored_values(const at::Tensor& tensor) {
  const c10::Storage& storage = tensor.storage();
  if (!has_memory(storage) || failure_of(storage) || skipping::dry_run()) {
    return;
  }
  const recorder::Lock lock;
  recorder::flush_users_of(tensor, recorder::Cause::host_write, "aten::set_");
  narrow_types::apply(host_view(tensor));
}

at::Tensor& set_storage_and_geometry(
    at::Tensor& self, at::Storage source, c10::SymInt offset, c10::SymIntArrayRef size,
    c10::SymIntArrayRef stride) {
  TORCH_CHECK(
      source.device_type() == kDevice, "Attempted to set the storage of a tensor on device \"",
      self.device(), "\" to a storage on different device \"", source.device(), "\".");
  auto* impl = self.unsafeGetTensorImpl();
  const c10::IntArrayRef wanted = C10_AS_INTARRAYREF_SLOW(size);
  const auto strides = stride.empty() ? at::OptionalIntArrayRef()
                                      : at::OptionalIntArrayRef(C10_AS_INTARRAYREF_SLOW(stride));
  make_room(source, offset.expect_int(), wanted, strides, self.dtype().itemsize());
  impl->set_storage_keep_dtype(std::move(source));
  impl->set_storage_offset(offset.expect_int());
  at::native::resize_impl_cpu_(impl, wanted, strides);
  if (narrow_types::include(self)) {
    narrow_stored_values(self);
  }
  return self;
}

at::Tensor& set_storage(at::Tensor& self, at::Storage source) {
  const auto elements =
      static_cast<int64_t>(source.nbytes() / self.dtype().itemsize());
  const std::vector<c10::SymInt> size{elements};
  return set_storage_and_geometry(self, std::move(source), 0, size, {});
}

at::Tensor& set_tensor(at::Tensor& self, const at::Tensor& source) {
  const auto size = source.sym_sizes();
  const auto stride = source.sym_strides();
  return set_storage_and_geometry(
      self, source.storage(), source.sym_storage_offset(), size, stride);
}

at::Tensor& set_empty(at::Tensor& self) {
  return set_tensor(self, empty({0}, self.scalar_type(), {}, {}, {}, {}));
}

/// Returns the bytes of a bool tensor. The CPU's own copy would convert all nonzero values to 1.
at::Tensor raw(const at::Tensor& tensor) {
  return tensor.scalar_type() == at::kBool ? tensor.view(at::kByte) : tensor;
}

/// Copies between devices or within the device. The caller has already broadcast `source`.
void copy_values(const at::Tensor& source, at::Tensor destination) {
  if (skipping::dry_run()) {
    const at::AutoDispatchBelowADInplaceOrView below_autograd;
    copy_or_assume(source, destination);
    return;
  }
  const at::Tensor from = on_device(source) ? host_view(source) : source;
  if (on_device(destination)) {
    clear_failure_if_overwritten(destination);
  }
  const at::Tensor to = on_device(destination) ? host_view(destination) : destination;
  at::AutoDispatchBelowADInplaceOrView below_autograd;
  if (to.scalar_type() == at::kFloat8_e4m3fn && on_device(destination)) {
    at::_ops::copy_::call(const_cast<at::Tensor&>(to), narrow(from, to.scalar_type()), false);
  } else if (from.scalar_type() == at::kBool && to.scalar_type() == at::kBool) {
    raw(to).copy_(raw(from));
  } else {
    at::_ops::copy_::call(const_cast<at::Tensor&>(to), from, false);
  }
  if (on_device(destination)) {
    narrow_types::apply(to);
  }
}

/// Returns whether PyTorch is shrinking a storage. To do so, it copies the first bytes into a new
/// tensor and then moves the memory out of that tensor, before a recorded copy would run.
bool shrinks_storage(const at::Tensor& source, const at::Tensor& destination) {
  return source.scalar_type() == at::kByte && destination.scalar_type() == at::kByte &&
      source.dim() == 1 && destination.dim() == 1 && source.storage_offset() == 0 &&
      source.is_contiguous() && source.nbytes() < source.storage().nbytes() &&
      !has_memory(destination.storage()) && !recorder::capturing();
}

/// In lazy mode, a copy within the device is recorded like any other operation. A copy from or to
/// the host first runs the recorded operations that use its tensors.
at::Tensor& copy_(at::Tensor& self, const at::Tensor& source, bool non_blocking) {
  if (self.is_same(source)) {
    return self;
  }
  if (recorder::enabled()) {
    const recorder::Lock lock;  // held during the copy, because a replay may write to the memory
    if (on_device(self) && on_device(source)) {
      if (shrinks_storage(source, self)) {
        recorder::flush_users_of(source, recorder::Cause::mark_step, "aten::copy_");
        copy_values(source, self);
        return self;
      }
      if (self.scalar_type() == at::kFloat8_e4m3fn && source.scalar_type() != at::kFloat8_e4m3fn) {
        const double limit = float8_e4m3fn_limit();
        const at::Tensor clamped = at::clamp(source.to(at::kFloat), -limit, limit);
        return Kernel<at::_ops::copy_>::call(self, clamped, non_blocking);
      }
      return Kernel<at::_ops::copy_>::call(self, source, non_blocking);
    }
    if (on_device(self)) {
      if (self.scalar_type() == source.scalar_type()) {
        narrow_types::check_range(source);
      }
      recorder::flush_before_write(self, "aten::copy_");
    } else {
      recorder::flush_before_read(source, "aten::copy_");
    }
    copy_values(source, self);
    return self;
  }
  if (!on_device(self)) {
    events::emit(events::Kind::host_synchronization, "aten::copy_");
  }
  copy_values(source, self);
  return self;
}

at::Tensor copy_from(const at::Tensor& self, const at::Tensor& destination, bool) {
  at::Tensor target = destination;
  copy_(target, self, false);
  return destination;
}

at::Tensor copy_from_and_resize(const at::Tensor& self, const at::Tensor& destination) {
  destination.resize_(self.sizes());
  return copy_from(self, destination, false);
}

at::Scalar scalar_of(const at::Tensor& self) {
  if (skipping::dry_run() && stand_ins::assumed(self)) {
    return stand_ins::read(self, "aten::_local_scalar_dense");
  }
  return at::native::_local_scalar_dense_cpu(host_view(self));
}

at::Scalar local_scalar_dense(const at::Tensor& self) {
  if (recorder::enabled()) {
    const recorder::Lock lock;
    recorder::flush(recorder::Cause::host_read, "aten::_local_scalar_dense");
    return scalar_of(self);
  }
  events::emit(events::Kind::host_synchronization, "aten::_local_scalar_dense");
  return scalar_of(self);
}

void record_stream(at::Tensor&, at::Stream) {}

/// The fallback calls `write_zeros` on the CPU view, so that large tensors of zeros need no memory.
at::Tensor& zero_(at::Tensor& self) {
  constexpr size_t kLarge = 1 << 20;
  return self.nbytes() < kLarge ? Kernel<at::_ops::zero_>::call(self)
                                : Kernel<at::_ops::zero_>::call_boxed(self);
}

/// The fallback checks that the host has enough memory for a large tensor.
at::Tensor& fill_(at::Tensor& self, const at::Scalar& value) {
  return self.nbytes() < kLazyPages ? Kernel<at::_ops::fill__Scalar>::call(self, value)
                                    : Kernel<at::_ops::fill__Scalar>::call_boxed(self, value);
}

/// Returns a row of zeros for each class outside 0 to num_classes - 1. PyTorch's own kernel raises
/// an error for these classes. Callers pad classes with -1.
at::Tensor one_hot(const at::Tensor& self, int64_t num_classes) {
  TORCH_CHECK(
      self.scalar_type() == at::kLong, "one_hot needs classes of int64, but got ",
      toString(self.scalar_type()), ".");
  TORCH_CHECK(
      num_classes > 0 || (num_classes == -1 && self.numel() > 0),
      "one_hot has num_classes ", num_classes, " for ", self.numel(),
      " classes; pass a positive number.");
  const int64_t classes = num_classes > 0 ? num_classes : self.max().item<int64_t>() + 1;
  at::Tensor result =
      at::eq(self.unsqueeze(-1), at::arange(classes, self.options())).to(at::kLong);
  if (skipping::dry_run()) {
    assumption_of(result.storage())->share = 1.0 / static_cast<double>(classes);
  }
  return result;
}

/// Draws from the device's generator, whereas the CPU kernel would draw from the CPU's generator.
std::tuple<at::Tensor, at::Tensor> native_dropout(
    const at::Tensor& input, double p, std::optional<bool> train) {
  if (input.numel() == 0 || !train.value_or(true)) {
    return {input.clone(), at::ones_like(input, input.options().dtype(at::kBool))};
  }
  const double keep = 1.0 - p;
  at::Tensor mask = at::empty_like(input, input.options().dtype(at::kBool));
  at::_ops::bernoulli__float::call(mask, keep, std::nullopt);
  return {at::mul(at::mul(input, mask), keep == 0 ? 0.0 : 1.0 / keep), mask};
}

/// Applies dropout and also returns the mask. The CPU has no kernel for this operator.
std::tuple<at::Tensor, at::Tensor> fused_dropout(
    const at::Tensor& self, double p, std::optional<at::Generator> generator) {
  // `p` is the probability of keeping an element, as in the CUDA operator of this name.
  at::Tensor mask = at::empty_like(self, self.options().dtype(at::kByte));
  at::_ops::bernoulli__float::call(mask, p, generator);
  return {at::mul(at::mul(self, mask), p == 0 ? 0.0 : 1.0 / p), mask};
}

/// Divides by 1 - 1 / scale, like the device. The CUDA operator multiplies by `scale`.
at::Tensor masked_scale(const at::Tensor& self, const at::Tensor& mask, double scale) {
  return at::div(at::mul(self, mask), 1.0 - 1.0 / scale).to(self.scalar_type());
}

const at::Tensor& resize_output(
    const at::Tensor& self, c10::SymIntArrayRef size, at::Device where) {
  TORCH_CHECK(
      self.device() == where, "The output is on ", self.device(), ", but must be on ", where,
      ".");
  if (self.sym_sizes() != size) {
    self.resize__symint(size);
  }
  return self;
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, HPU, library) {
  library.impl("empty.memory_format", &empty);
  library.impl("empty_strided", &empty_strided);
  library.impl("_efficientzerotensor", &efficient_zero_tensor);
  library.impl("as_strided", &at::native::as_strided_tensorimpl);
  library.impl("view", &at::native::view);
  library.impl("_reshape_alias", &at::native::_reshape_alias);
  library.impl("unfold", &at::native::unfold);
  library.impl("resize_", &resize);
  library.impl("_resize_output_", &resize_output);
  library.impl("set_", &set_empty);
  library.impl("set_.source_Storage", &set_storage);
  library.impl("set_.source_Storage_storage_offset", &set_storage_and_geometry);
  library.impl("set_.source_Tensor", &set_tensor);
  library.impl("copy_", &copy_);
  library.impl("_copy_from", &copy_from);
  library.impl("_copy_from_and_resize", &copy_from_and_resize);
  library.impl("_local_scalar_dense", &local_scalar_dense);
  library.impl("record_stream", &record_stream);
  library.impl("zero_", &zero_);
  library.impl("fill_.Scalar", &fill_);
  library.impl("one_hot", &one_hot);
  library.impl("native_dropout", &native_dropout);
  library.impl("_fused_dropout", &fused_dropout);
  library.impl("_masked_scale", &masked_scale);
}

}  // namespace hpu
