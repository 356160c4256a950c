#include "lazy/inference.h"

#include "calls/generator.h"
#include "calls/host_call.h"
#include "calls/tensors_of.h"
#include "calls/thread_modes.h"
#include "memory/memory_reuse.h"
#include "memory/zero_pages.h"
#include "threads/interpreter.h"

#include <ATen/EmptyTensor.h>
#include <ATen/MemoryOverlap.h>
#include <ATen/native/ConvUtils.h>
#include <c10/core/DefaultDtype.h>
#include <c10/core/MemoryFormat.h>
#include <c10/util/strides.h>
#include <c10/util/hash.h>
#include <torch/csrc/utils/pybind.h>

#include <chrono>
#include <cstring>
#include <string>
#include <unordered_map>
#include <unordered_set>

namespace hpu {
namespace {

using torch::jit::Stack;

constexpr size_t kCacheLimit = 1 << 16;
constexpr int64_t kQuickElements = 1 << 18;
int64_t inference_time = 0;

class SignatureBuilder {
 public:
  SignatureBuilder(Signature& signature, bool floats_affect_shape)
      : words_(signature.words), signature_(signature), floats_affect_shape_(floats_affect_shape) {}

  void add(const c10::IValue& value) {
    words_.push_back(value.isNone() ? 1 : value.isInt() ? 2 : value.isBool() ? 3 : 4);
    if (value.isTensor()) {
      add(value.toTensor());
    } else if (value.isNone()) {
      words_.push_back(-1);
    } else if (value.isInt()) {
      words_.push_back(value.toInt());
    } else if (value.isBool()) {
      words_.push_back(value.toBool());
    } else if (value.isDouble()) {
      add_float(value.toDouble());
    } else if (value.isIntList()) {
      const auto list = value.toIntVector();
      words_.push_back(static_cast<int64_t>(list.size()));
      words_.insert(words_.end(), list.begin(), list.end());
    } else if (value.isTensorList()) {
      add_all(value.toTensorVector());
    } else if (value.isOptionalTensorList()) {
      add_all(value.toOptionalTensorVector());
    } else if (value.isDoubleList()) {
      const auto list = value.toDoubleVector();
      words_.push_back(static_cast<int64_t>(list.size()));
      for (double number : list) {
        add_float(number);
      }
    } else if (value.isBoolList()) {
      const auto list = value.toBoolList();
      words_.push_back(static_cast<int64_t>(list.size()));
      for (bool flag : list) {
        words_.push_back(flag);
      }
    } else if (value.isString()) {
      words_.push_back(static_cast<int64_t>(std::hash<std::string>()(value.toStringRef())));
    } else if (value.isDevice()) {
      words_.push_back(static_cast<int64_t>(value.toDevice().type()));
    } else if (value.isComplexDouble()) {
      const auto number = value.toComplexDouble();
      add_float(number.real());
      add_float(number.imag());
    } else if (!value.isGenerator()) {
      signature_.complete = false;
    }
  }

 private:
  void add_float(double number) {
    int64_t bits = 3;
    if (floats_affect_shape_) {
      static_assert(sizeof(bits) == sizeof(number));
      std::memcpy(&bits, &number, sizeof(bits));
    }
    words_.push_back(bits);
  }

  void add(const at::Tensor& tensor) {
    if (!tensor.defined()) {
      words_.push_back(-1);
      return;
    }
    words_.push_back(
        static_cast<int64_t>(tensor.scalar_type()) << 16 |
        static_cast<int64_t>(tensor.device().type()) << 8 |
        static_cast<int64_t>(tensor.unsafeGetTensorImpl()->is_wrapped_number()) << 2 |
        static_cast<int64_t>(tensor.is_conj()) << 1 | static_cast<int64_t>(tensor.is_neg()));
    words_.push_back(tensor.dim());
    const auto sizes = tensor.sizes();
    const auto strides = tensor.strides();
    words_.insert(words_.end(), sizes.begin(), sizes.end());
    words_.insert(words_.end(), strides.begin(), strides.end());
  }

  void add(const std::optional<at::Tensor>& tensor) {
    add(tensor.value_or(at::Tensor()));
  }

  template <class List>
  void add_all(const List& list) {
    words_.push_back(static_cast<int64_t>(list.size()));
    for (const auto& item : list) {
      add(item);
    }
  }

  std::vector<int64_t>& words_;
  Signature& signature_;
  bool floats_affect_shape_;
};

/// Returns whether an operator's result shapes depend on floating-point arguments. Examples are the
/// length of arange(0, 1, 0.1), the dropout mask of attention, which exists only if the probability
/// is positive, and FP8 scales, which exist only if they are nonzero.
bool floats_affect_shape(const c10::OperatorHandle& op) {
  static const std::unordered_set<std::string> names{
      "aten::arange", "aten::range", "hpu::sdpa_fwd", "hpu::fp8_sdpa_fwd",
      "hpu::fp8_sdpa_recomp_fwd"};
  return names.count(op.operator_name().name) > 0;
}

/// Returns whether an operator's meta kernel returns different sizes or strides than its CPU
/// kernel.
bool meta_disagrees(const c10::OperatorHandle& op) {
  static const std::unordered_set<std::string> names{
      "aten::native_batch_norm", "aten::_native_batch_norm_legit",
      "aten::_native_batch_norm_legit_no_training", "aten::_batch_norm_with_update",
      "aten::_batch_norm_no_update", "aten::native_layer_norm", "aten::native_group_norm",
      "aten::native_group_norm_backward", "aten::multilabel_margin_loss_forward",
      "aten::_embedding_bag", "aten::_embedding_bag_forward_only"};
  return names.count(op.operator_name().name) > 0;
}

/// Returns the stand-in for a tensor in a trial call: a meta tensor, or a CPU tensor of zeros.
at::Tensor stand_in(const at::Tensor& tensor, c10::DeviceType type) {
  // Python meta kernels receive a wrapped number as a Python scalar.
  if (!tensor.defined() ||
      (!on_device(tensor) && tensor.unsafeGetTensorImpl()->is_wrapped_number())) {
    return tensor;
  }
  auto meta = type == c10::kMeta
      ? at::Tensor(at::detail::empty_strided_meta(
            tensor.sizes(), tensor.strides(), tensor.scalar_type()))
      : at::Tensor(at::detail::empty_strided_cpu(
            tensor.sizes(), tensor.strides(), tensor.scalar_type()));
  if (type == c10::kCPU) {
    write_zeros(meta);
  }
  if (tensor.is_conj()) {
    meta._set_conj(true);
  }
  if (tensor.is_neg()) {
    meta._set_neg(true);
  }
  if (tensor.unsafeGetTensorImpl()->is_wrapped_number()) {
    meta.unsafeGetTensorImpl()->set_wrapped_number(true);
  }
  return meta;
}

c10::IValue stand_in(c10::IValue value, c10::DeviceType type) {
  if (value.isDevice()) {
    return c10::Device(type);
  }
  if (value.isGenerator()) {
    return c10::IValue();
  }
  map_tensors(value, [type](const at::Tensor& tensor) { return stand_in(tensor, type); });
  return value;
}

/// Returns the tensors in an argument, which is a tensor or a list of tensors.
std::vector<at::Tensor> tensors_of(const c10::IValue& value) {
  if (value.isTensor()) {
    return {value.toTensor()};
  }
  return value.isTensorList() ? value.toTensorVector() : std::vector<at::Tensor>();
}

std::vector<Resized> resized_arguments(
    const c10::FunctionSchema& schema, const Stack& before, const Stack& after) {
  std::vector<Resized> resized;
  for (size_t i = 0; i < before.size(); ++i) {
    if (!is_written(schema.arguments()[i])) {
      continue;
    }
    const auto old_tensors = tensors_of(before[i]);
    const auto new_tensors = tensors_of(after[i]);
    for (size_t item = 0; item < old_tensors.size(); ++item) {
      if (old_tensors[item].defined() && old_tensors[item].sizes() != new_tensors[item].sizes()) {
        resized.push_back({i, item, geometry_of(new_tensors[item])});
      }
    }
  }
  return resized;
}

/// Infers the results by calling the operator with stand-ins. Propagates errors from the kernel.
Inference infer_by_trial(
    const c10::OperatorHandle& op, const Stack& arguments, c10::DeviceType type) {
  const auto& schema = op.schema();
  Stack stack;
  stack.reserve(arguments.size());
  const DrawsInTrial draws;
  for (size_t i = 0; i < arguments.size(); ++i) {
    const bool draws_by = type == c10::kCPU && is_generator(schema.arguments()[i]);
    stack.push_back(
        draws_by ? c10::IValue(host_generator(at::Generator())) : stand_in(arguments[i], type));
  }
  const Stack tried = stack;
  {
    const KernelsOnly kernels_only;
    const KernelMemory memory;  // a trial on the CPU allocates as much as the operation itself
    host_kernel(op).callBoxed(&stack);
  }
  Inference inference;
  inference.known = true;
  for (size_t i = 0; i < schema.returns().size(); ++i) {
    if (stack[i].isTensorList()) {
      const auto list = stack[i].toTensorVector();
      inference.lengths.push_back(list.size());
      for (const auto& tensor : list) {
        inference.results.push_back(geometry_of(tensor));
      }
    } else if (!is_written(schema.returns()[i])) {
      inference.results.push_back(geometry_of(stack[i].toTensor()));
    }
  }
  inference.resized = resized_arguments(schema, arguments, tried);
  return inference;
}

/// Returns whether all strides, including those of dimensions of size 1, equal those of a new
/// contiguous tensor.
bool is_plain(const at::Tensor& tensor) {
  return tensor.numel() > 0 &&
      tensor.strides() == c10::IntArrayRef(c10::contiguous_strides(tensor.sizes()));
}

/// Returns whether all tensors are contiguous and not empty, and their total number of elements.
std::pair<bool, int64_t> layouts(const Stack& arguments) {
  bool plain = true;
  int64_t elements = 0;
  const auto look = [&](const at::Tensor& tensor) {
    if (tensor.defined()) {
      plain = plain && is_plain(tensor);
      elements += tensor.numel();
    }
  };
  for (const c10::IValue& value : arguments) {
    for_each_tensor(value, look);
  }
  return {plain, elements};
}

/// Returns the number of elements that a call writes.
int64_t written_elements(const Inference& inference) {
  int64_t elements = 0;
  for (const Geometry& result : inference.results) {
    elements += c10::multiply_integers(result.sizes);
  }
  for (const Resized& output : inference.resized) {
    elements += c10::multiply_integers(output.geometry.sizes);
  }
  return elements;
}

/// Sets the strides of a convolution's result to those of the CPU kernel's result, because meta
/// kernels ignore the channels-last format of operands. The CPU runs a 1D convolution as a 2D
/// convolution of a contiguous input.
void lay_out_convolution(const Stack& arguments, Geometry& result) {
  const KernelsOnly kernels_only;
  at::Tensor input = shape_view(arguments[0].toTensor());
  at::Tensor weight = shape_view(arguments[1].toTensor());
  const bool is_1d = input.dim() == 3;
  if (is_1d) {
    input = input.as_strided(input.sizes(), c10::contiguous_strides(input.sizes()));
  }
  std::optional<at::Tensor> bias;
  if (arguments[2].isTensor() && arguments[2].toTensor().defined()) {
    bias = shape_view(arguments[2].toTensor());
  }
  const auto numbers = [&arguments](size_t argument) {
    const auto list = arguments[argument].toIntVector();
    return std::vector<c10::SymInt>(list.begin(), list.end());
  };
  const auto backend = at::native::select_conv_backend(
      input, weight, bias, numbers(3), numbers(4), numbers(5), arguments[6].toBool(), numbers(7),
      arguments[8].toInt(), std::nullopt);
  std::vector<int64_t> sizes = result.sizes;
  if (is_1d) {
    input = input.unsqueeze(2);
    weight = weight.unsqueeze(2);
    sizes.insert(sizes.begin() + 2, 1);
  }
  switch (at::native::_determine_backend_memory_format(input, weight, backend)) {
    case at::MemoryFormat::ChannelsLast:
      result.strides = c10::get_channels_last_strides_2d(sizes);
      if (is_1d) {
        result.strides.erase(result.strides.begin() + 2);
      }
      break;
    case at::MemoryFormat::ChannelsLast3d:
      result.strides = c10::get_channels_last_strides_3d(result.sizes);
      break;
    default:
      break;
  }
}

/// Returns whether a call writes to a tensor whose elements share memory.
bool writes_shared_memory(const c10::FunctionSchema& schema, const Stack& arguments) {
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (!is_written(schema.arguments()[i])) {
      continue;
    }
    for (const at::Tensor& tensor : tensors_of(arguments[i])) {
      if (tensor.defined() && at::has_internal_overlap(tensor) == at::MemOverlap::Yes) {
        return true;
      }
    }
  }
  return false;
}

/// If operands are not contiguous or an output is resized, meta kernels often choose different
/// strides than CPU kernels. In these cases, a trial on the CPU determines the strides, unless the
/// trial would be slow.
Inference infer_uncached(const c10::OperatorHandle& op, const Stack& arguments) {
  if (meta_disagrees(op)) {
    return infer_by_trial(op, arguments, c10::kCPU);
  }
  Inference inference = infer_by_trial(op, arguments, c10::kMeta);
  const auto [plain, elements] = layouts(arguments);
  if (plain && inference.resized.empty()) {
    return inference;
  }
  const bool shared = writes_shared_memory(op.schema(), arguments);
  if (elements + written_elements(inference) > kQuickElements && !shared) {
    if (op.operator_name().name == "aten::convolution") {
      lay_out_convolution(arguments, inference.results[0]);
    }
    return inference;
  }
  try {
    return infer_by_trial(op, arguments, c10::kCPU);
  } catch (const std::exception& error) {  // for example, the operator does not support zeros
    rethrow_interrupt();
    if (shared && std::strstr(error.what(), "written-to tensor")) {
      throw;
    }
    return inference;
  }
}

/// Returns the error of a failed trial, or null if the trial failed because meta tensors have no
/// data.
std::exception_ptr refusal(const std::string& what) {
  if (what.find("meta") != std::string::npos || what.find("Meta") != std::string::npos) {
    return nullptr;
  }
  return std::make_exception_ptr(c10::Error({__func__, __FILE__, __LINE__}, what));
}

struct Entry {
  std::vector<int64_t> words;
  Inference inference;
};

auto* cache = new std::unordered_map<uint64_t, Entry>;

}  // namespace

uint64_t mixed(uint64_t hash, uint64_t word) {
  hash = (hash ^ word) * 0xff51afd7ed558ccd;
  return hash ^ hash >> 32;
}

Signature signature_of(const c10::OperatorHandle& op, const Stack& arguments) {
  Signature signature;
  signature.words.reserve(32);
  signature.words.push_back(reinterpret_cast<intptr_t>(&op.schema()));
  signature.words.push_back(static_cast<int64_t>(c10::get_default_dtype_as_scalartype()));
  SignatureBuilder builder(signature, floats_affect_shape(op));
  for (const c10::IValue& value : arguments) {
    builder.add(value);
  }
  for (int64_t word : signature.words) {
    signature.hash = mixed(signature.hash, static_cast<uint64_t>(word));
  }
  return signature;
}

const Inference& infer(
    const c10::OperatorHandle& op, const Stack& arguments, const Signature& signature) {
  static const Inference unknown;
  static Inference refused;
  auto& entries = *cache;
  const auto found = entries.find(signature.hash);
  if (found != entries.end() && found->second.words == signature.words) {
    return found->second.inference;
  }
  if (entries.size() >= kCacheLimit) {
    entries.clear();
  }
  const auto start = std::chrono::steady_clock::now();
  Entry entry{signature.words, {}};
  try {
    entry.inference = infer_uncached(op, arguments);
  } catch (const c10::NotImplementedError&) {
    // There is no meta kernel, or the shape depends on the data. The cache keeps this result, so
    // that later calls do not repeat the inference.
  } catch (const c10::Error& error) {
    refused.refusal = refusal(error.what_without_backtrace());
    return refused;
  } catch (const py::error_already_set& error) {  // some meta kernels are written in Python
    rethrow_interrupt();
    py::gil_scoped_acquire gil;
    refused.refusal = refusal(py::str(error.value()));
    return refused;
  } catch (const std::exception&) {
    rethrow_interrupt();
    return unknown;
  }
  inference_time += std::chrono::duration_cast<std::chrono::nanoseconds>(
                        std::chrono::steady_clock::now() - start)
                        .count();
  return entries.insert_or_assign(signature.hash, std::move(entry)).first->second.inference;
}

const Inference& infer_on_host(
    const c10::OperatorHandle& op, const Stack& arguments, const Signature& signature) {
  static auto& trials = *new std::unordered_map<uint64_t, Entry>;
  const auto found = trials.find(signature.hash);
  if (found != trials.end() && found->second.words == signature.words) {
    return found->second.inference;
  }
  Entry entry{signature.words, infer_by_trial(op, arguments, c10::kCPU)};
  return trials.insert_or_assign(signature.hash, std::move(entry)).first->second.inference;
}

void forget_inferences() {
  cache = new std::unordered_map<uint64_t, Entry>;
}

int64_t take_inference_time() {
  return std::exchange(inference_time, 0);
}

}  // namespace hpu
