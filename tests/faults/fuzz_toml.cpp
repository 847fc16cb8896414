#include <string>

#include "tests/faults/fuzzing.hpp"
#include "workers/config/toml.hpp"

namespace syncopate {
void fuzz_toml(std::string_view input) {
  TomlNode document;
  try {
    document = parse_toml(input, "file.toml");
  } catch (const TomlSyntaxFault& fault) {
    must(std::string_view(fault.what()).starts_with("file.toml:"), "a fault of syntax begins with its place");
    return;
  }
  const std::string text = write_toml(document);
  must(write_toml(parse_toml(text, "again.toml")) == text, "what is written reads back to the same document");
}

}  // namespace syncopate
