// Where LibTorch computes a network, and in which precision. Models' states, and all that methods do with them, stay in
// main memory. Only the module and its batches are on the device: parameters go there once per state, and gradients
// come back. Virtual time does not depend on it. device_tensors.hpp does the copying; this file does not use LibTorch.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

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

// Reads the keys. Keys with their defaults stay out of the resolved configuration, so that runs from before these keys
// keep their hashes.
Arithmetic read_arithmetic(Settings& training);

}  // namespace syncopate
