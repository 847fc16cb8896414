// An experiment file's document, and all that comes of reading it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "experiments/sections/definition.hpp"
#include "experiments/sections/experiment.hpp"
#include "results/run/run.hpp"
#include "workers/settings/fault_list.hpp"
#include "workers/settings/known_key.hpp"
#include "workers/settings/toml_tree.hpp"

namespace syncopate {

struct Reading {
  Definition definition;
  TomlNode resolved{};
  std::vector<KnownKey> known_keys{};
  FaultList faults{};
  // Methods' own, in their order: read with what [methods.training] says, without methods. Null where it says nothing.
  std::vector<std::shared_ptr<const Reading>> own{};
  std::shared_ptr<const Reading> common_phase{};  // null where there is none; of a method's own: its own, or the file's
};

Reading read_document(const TomlNode& written, const std::string& file, const LoadOptions& options);

// The document of one run: one method, one seed, nothing swept.
TomlNode document_of_run(TomlNode root, std::size_t method, std::uint64_t seed);

// Runs that share it compute the same. Unlike a run's hash it does not tell apart what experiment and method are
// called, what [training] says of keys that the method has otherwise, nor what is said of models and data sets that it
// does not use.
std::string course_of(const Reading& reading);

// The run of a document of one method and seed. Throws ConfigurationFault.
Run plan_run(TomlNode document, const std::string& file, const LoadOptions& options);

void throw_if_any(const FaultList& faults);

}  // namespace syncopate
