// The device's random generator. It is the CPU's Mersenne twister, so its state and its numbers
// equal the CPU's for the same seed. DTensor sets an offset, which selects a position in the seed's
// sequence and is part of the state.
#pragma once

#include <ATen/core/Generator.h>

namespace hpu {

const at::Generator& default_generator();
at::Generator new_generator();

/// Sets the function that generators call before their state is read or changed. Lazy mode sets it
/// once, because recorded operations draw numbers when they run.
void settle_generators_by(void (*settle)());

/// The device generator for an argument `generator`: the default one if it is undefined; for a CPU
/// generator, a new one whose seed the CPU generator draws.
at::Generator device_generator(const at::Generator& generator);

/// The CPU generator that a kernel uses for this argument.
at::Generator host_generator(const at::Generator& generator);

/// While it exists, `host_generator` on this thread returns a separate generator, whose numbers
/// have no effect on others.
class DrawsInTrial {
 public:
  DrawsInTrial();
  ~DrawsInTrial();
  DrawsInTrial(const DrawsInTrial&) = delete;
  DrawsInTrial& operator=(const DrawsInTrial&) = delete;

 private:
  at::Generator generator_;
};

}  // namespace hpu
