#include "experiments/sections/file_keys.hpp"

#include <mutex>

#include "experiments/sections/claims_section.hpp"
#include "experiments/sections/common_phase.hpp"
#include "experiments/sections/definition.hpp"
#include "experiments/sections/tune_section.hpp"

namespace syncopate {

namespace {

std::vector<KeyDescription> described(const std::map<std::string, std::string>& fixed) {
  const auto read = [](Settings& root) {
    read_definition(root, {.file = "", .looks_for_data = false});
    describe_common_phase(root);
    describe_tune(root);
    describe_claims(root);
  };
  return describe(read, fixed);
}

}  // namespace

const std::vector<KeyDescription>& keys_of_file(const std::map<std::string, std::string>& fixed) {
  static std::mutex mutex;
  static std::map<std::map<std::string, std::string>, std::vector<KeyDescription>> found;  // by `fixed`
  const std::lock_guard lock(mutex);
  const auto known = found.find(fixed);
  return known != found.end() ? known->second : found.emplace(fixed, described(fixed)).first->second;
}

const std::vector<KeyDescription>& keys_of_file() {
  static const std::map<std::string, std::string> nothing;
  return keys_of_file(nothing);
}

}  // namespace syncopate
