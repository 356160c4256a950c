// Signatures, which identify calls that have the same price.
#pragma once

#include "prices/sequence.h"

#include <c10/util/SmallVector.h>

#include <optional>

namespace hpu::prices {

/// Returns whether a tensor belongs to a trace or a transform. The operators on such a tensor call
/// other operators, which are observed instead. A trace may record reads of a tensor's size, so the
/// size must not be read.
bool is_wrapper(const at::Tensor& tensor);
bool is_on_card(const at::Tensor& tensor);
/// Scalars on the host are arguments, not data that is copied.
bool is_on_host(const at::Tensor& tensor);

/// Computes the signature of a call.
class Signer {
 public:
  /// `seed` identifies the operator or program. Values of floating-point arguments only count if
  /// `uses_floats` is true.
  explicit Signer(uint64_t seed, bool uses_floats = false)
      : uses_floats_(uses_floats), hash_(seed) {}

  void add(const c10::IValue& value);
  void add(c10::IntArrayRef numbers);

  uint64_t hash() const {
    return hash_;
  }
  bool reads_card() const {
    return !storages_.empty();
  }
  bool has_wrappers() const {
    return has_wrappers_;
  }
  bool names_card() const {
    return names_card_;
  }
  bool uses_host() const {
    return uses_host_;
  }

 private:
  void mix(uint64_t word) {
    hash_ = mixed(hash_, word);
  }

  void add(const at::Tensor& tensor);

  const bool uses_floats_;
  bool has_wrappers_ = false;
  bool names_card_ = false;
  bool uses_host_ = false;
  uint64_t hash_;
  c10::SmallVector<const c10::StorageImpl*, 8> storages_;
};

/// Identifies a run of a program by the sizes, strides and types of its inputs. Returns nothing if
/// an input belongs to a trace.
std::optional<uint64_t> signature_of_run(uint64_t program, const std::vector<c10::IValue>& inputs);

}  // namespace hpu::prices
