// Reads a method as written in an experiment file.
#pragma once

#include <memory>
#include <string>

#include "algorithms/registry.hpp"
#include "workers/config/settings.hpp"
#include "workers/config/toml.hpp"

namespace syncopate {

struct MethodReading {
  std::unique_ptr<Algorithm> algorithm;
  std::string faults;    // empty if there are none
  std::string resolved;  // resolved keys, with defaults
};

inline MethodReading read_method(const std::string& toml, const AlgorithmContext& context = {.workers = 4}) {
  SettingsDocument document(parse_toml(toml, "test.toml"));
  Settings settings = document.root();
  MethodReading reading;
  reading.algorithm = make_algorithm(settings, context);
  reading.faults = document.check().report();
  reading.resolved = write_toml(document.resolved());
  return reading;
}

}  // namespace syncopate
