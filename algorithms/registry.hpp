// The methods that an experiment file may name.
#pragma once

#include <memory>
#include <span>
#include <string_view>

#include "algorithms/method/algorithm.hpp"

namespace syncopate {

// The registry: one row per method. It feeds `syncopate list`, the error messages and the tests.
struct AlgorithmRow {
  std::string_view name;      // `algorithm = ...` in TOML
  std::string_view family;    // its folder, and its heading in `syncopate list`
  std::string_view sentence;  // one-sentence description
  std::string_view source;    // paper
  std::unique_ptr<Algorithm> (*make)(Settings& settings, const AlgorithmContext& context);
  // Values of the required keys, in TOML, for a run of 4 workers; for tests that run every method.
  std::string_view example = {};
  std::string_view evaluated = {};  // the model that the method publishes for evaluation
};
std::span<const AlgorithmRow> algorithms();

// The baseline of comparisons, added if an experiment file does not name it.
std::unique_ptr<Algorithm> make_baseline();

// Reads one table of [[methods]]. Its keys `algorithm` and `label` and its tables `average` and `compression` are the
// same for all methods; the others belong to the algorithm. Returns null, and reports a fault of the settings, if no
// algorithm has this name.
std::unique_ptr<Algorithm> make_algorithm(Settings& settings, const AlgorithmContext& context);

}  // namespace syncopate
