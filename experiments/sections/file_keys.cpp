#include "experiments/sections/file_keys.hpp"

#include "experiments/sections/definition.hpp"

namespace syncopate {

std::vector<KeyDescription> keys_of_file(const std::map<std::string, std::string>& fixed) {
  return describe([](Settings& root) { read_definition(root, {.file = "", .looks_for_data = false}); }, fixed);
}

}  // namespace syncopate
