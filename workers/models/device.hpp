// The device on which LibTorch computes a network, and the precision. Models' states, and methods' arithmetic on them,
// stay in main memory. Only the module and its batches are on the device: parameters are copied there once per state,
// and gradients are copied back. Virtual time does not depend on the device. device_tensors.hpp makes the copies; this
// file does not use LibTorch.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "workers/config/toml.hpp"

namespace syncopate {

class Settings;

// The keys training.device, precision, device_batch and deterministic.
struct Arithmetic {
  // "cpu", "cuda", "cuda:N" or "mps"; or "cpu:copy", which treats the processor as another device, for tests.
  std::string device = "cpu";
  bool bfloat16 = false;  // the forward pass runs under LibTorch's autocast
  std::optional<std::int64_t>
      batch_samples{};         // samples that the device computes together; nullopt: the model's number
  bool deterministic = false;  // on a GPU: only operators with reproducible results

  bool copies() const { return device != "cpu"; }
  bool is_processor() const { return device.starts_with("cpu"); }
  bool operator==(const Arithmetic&) const = default;
};

// Where the file or command line sets training.device and training.precision, for faults that are found later.
struct ArithmeticPlaces {
  SourcePlace device{}, precision{};
};

// Reads the keys. `device_batch` is ignored with device = "cpu", so that a file for a GPU also runs on the processor
// (plan_network makes a note of it). Ignored and absent keys stay out of the resolved configuration, so that the run's
// hash is that of a run without these keys.
Arithmetic read_arithmetic(Settings& training);

}  // namespace syncopate
