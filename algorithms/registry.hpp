// The methods that an experiment file may name.
#pragma once

#include <memory>
#include <span>
#include <string_view>

#include "algorithms/method/algorithm.hpp"

namespace syncopate {

// The registry: one row per method. It feeds `syncopate list`, the error messages and the tests.
struct AlgorithmRow {
  std::string_view name;      // as written in TOML
  std::string_view family;    // the folder that it stands in; heads the rows of its kind in `syncopate list`
  std::string_view sentence;  // what it does
  std::string_view source;    // paper
  std::unique_ptr<Algorithm> (*make)(Settings& settings, const AlgorithmContext& context);
  // The keys that it must be given, in TOML, for a run of 4 workers: from this the tests of all methods take it.
  std::string_view example = {};
  std::string_view evaluated = {};  // which model it publishes
};
std::span<const AlgorithmRow> algorithms();

// The method that others are compared with: what stands in for it where an experiment file does not name it.
std::unique_ptr<Algorithm> make_baseline();

// The keys of [[methods]] besides `algorithm`, `label` and the table `average` are the algorithm's own.
// An unknown name is a fault of the settings, and the result null.
std::unique_ptr<Algorithm> make_algorithm(Settings& settings, const AlgorithmContext& context);

}  // namespace syncopate
