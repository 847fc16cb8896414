// By which version of the files' schema a file of a run was written.
#pragma once

#include <optional>
#include <string>

namespace syncopate {

// As the JSON text says it, where that is another one than results_schema_version; nothing where it says none.
std::optional<std::string> other_schema_version(const std::string& text);

// "of schema version 3, and this program knows 2"
std::string of_other_schema(const std::string& version);

}  // namespace syncopate
