// JSON files that say whether they are as they were written: their last member is the CRC-32 of all before it. It is
// there to find accidents, not forgeries, as that of files.json is.
#pragma once

#include <string>
#include <string_view>

#include "results/formats/json.hpp"

namespace syncopate {

// 8 hexadecimal digits of a value as it is written on one line.
std::string json_digest(const Json& value);

// The object, which has a member, with its digest.
std::string with_digest(const Json& object);

// `text` and what it was parsed to. A file without a digest is of an earlier program: its last member is `last`, or
// `or_last`, and it is taken as it is.
bool is_as_written(std::string_view text, const Json& object, std::string_view last, std::string_view or_last = {});

}  // namespace syncopate
