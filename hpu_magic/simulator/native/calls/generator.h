// The device's random generator. The generator uses the same Mersenne twister as the CPU, so a
// given seed produces the same state and the same numbers as on the CPU. DTensor sets an offset,
// which selects a position in the seed's sequence and is part of the state.
#pragma once

#include <ATen/core/Generator.h>

namespace hpu {

const at::Generator& default_generator();
at::Generator new_generator();

/// Sets the function that generators call before their state is read or changed. Lazy mode needs
/// this function, because recorded operations draw random numbers only when they run.
void settle_generators_by(void (*settle)());

/// Returns the device generator for the argument `generator`: the default generator if the argument
/// is undefined or, for a CPU generator, a new generator whose seed is drawn from the CPU
/// generator.
at::Generator device_generator(const at::Generator& generator);

/// Returns the CPU generator that a kernel uses when it is passed `generator`.
at::Generator host_generator(const at::Generator& generator);

/// While an instance exists, `host_generator` returns a separate generator on this thread, so that
/// drawing random numbers does not affect other generators.
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
