#include "prices/signature.h"

#include "calls/tensors_of.h"
#include "memory/memory.h"

#include <algorithm>
#include <functional>

namespace hpu::prices {

bool is_wrapper(const at::Tensor& tensor) {
  constexpr c10::DispatchKeySet kWrappers{
      c10::DispatchKey::Python, c10::DispatchKey::Functionalize,
      c10::DispatchKey::FuncTorchBatched, c10::DispatchKey::FuncTorchGradWrapper};
  return tensor.key_set().has_any(kWrappers) ||
      tensor.unsafeGetTensorImpl()->has_symbolic_sizes_strides();
}

bool is_on_card(const at::Tensor& tensor) {
  return !is_wrapper(tensor) && on_device(tensor) &&
      tensor.key_set().has(c10::DispatchKey::HPU) && tensor.has_storage();
}

bool is_on_host(const at::Tensor& tensor) {
  return !is_wrapper(tensor) && tensor.is_cpu() && tensor.dim() > 0;
}

void Signer::add(const c10::IValue& value) {
  if (value.isTensor()) {
    add(value.toTensor());
  } else if (value.isInt()) {
    mix(static_cast<uint64_t>(value.toInt()));
  } else if (value.isBool()) {
    mix(value.toBool() ? 3 : 5);
  } else if (value.isNone()) {
    mix(7);
  } else if (value.isDouble()) {
    mix(uses_floats_ ? std::hash<double>()(value.toDouble()) : 11);
  } else if (value.isDevice()) {
    names_card_ = names_card_ || value.toDevice().type() == kDevice;
    uses_host_ = uses_host_ || value.toDevice().is_cpu();
  } else if (value.isList()) {
    mix(value.toListRef().size());
    for (const c10::IValue& item : value.toListRef()) {
      add(item);
    }
  }
}

void Signer::add(const at::Tensor& tensor) {
  if (!tensor.defined()) {
    mix(13);
    return;
  }
  if (is_wrapper(tensor)) {
    has_wrappers_ = true;
    return;
  }
  const bool on_card = is_on_card(tensor);
  uses_host_ = uses_host_ || is_on_host(tensor);
  mix(static_cast<uint64_t>(tensor.scalar_type()) << 8 | static_cast<uint64_t>(tensor.dim()));
  add(tensor.sizes());
  if (on_card) {
    const auto* storage = tensor.storage().unsafeGetStorageImpl();
    const auto* const found = std::find(storages_.begin(), storages_.end(), storage);
    mix(static_cast<uint64_t>(found - storages_.begin()));  // shared storages have one number
    mix(storage->nbytes());
    if (found == storages_.end()) {
      storages_.push_back(storage);
    }
  }
}

void Signer::add(c10::IntArrayRef numbers) {
  for (const int64_t number : numbers) {
    mix(static_cast<uint64_t>(number));
  }
}

std::optional<uint64_t> signature_of_run(uint64_t program, const std::vector<c10::IValue>& inputs) {
  Signer signer(program);
  for (const c10::IValue& input : inputs) {
    signer.add(input);
    for_each_tensor(input, [&signer](const at::Tensor& tensor) {
      if (tensor.defined() && !is_wrapper(tensor)) {
        signer.add(tensor.strides());
      }
    });
  }
  return signer.has_wrappers() ? std::nullopt : std::make_optional(signer.hash());
}

}  // namespace hpu::prices
