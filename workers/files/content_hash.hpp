// What tells contents apart.
#pragma once

#include <string>
#include <string_view>

namespace syncopate {

// 16 hexadecimal digits.
std::string content_hash(std::string_view content);

}  // namespace syncopate
