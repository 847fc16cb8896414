// A file's contents compressed as gzip does, the same bytes at any time on any machine.
#pragma once

#include <string>
#include <string_view>

namespace syncopate {

// Throws std::runtime_error if zlib cannot.
std::string gzip(std::string_view contents);

}  // namespace syncopate
