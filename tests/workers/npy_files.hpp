// NumPy arrays for tests.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "tests/workers/idx_files.hpp"

namespace syncopate {

template <typename Element>
FileBytes bytes_of(const std::vector<Element>& values) {
  FileBytes bytes(values.size() * sizeof(Element));
  if (!values.empty()) std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

// A file in NumPy's documented format: magic word, version, length of the header, a dictionary as header, blanks and a
// line feed up to a multiple of 64 bytes, and the elements.
inline FileBytes npy_file(const std::string& type, const std::string& shape, const FileBytes& elements,
                          const std::string& fortran = "False", std::uint8_t version = 1) {
  std::string header = "{'descr': '" + type + "', 'fortran_order': " + fortran + ", 'shape': " + shape + ", }";
  const std::size_t before = version == 1 ? 10 : 12;
  while ((before + header.size() + 1) % 64 != 0) header += ' ';
  header += '\n';
  FileBytes bytes = {0x93, 'N', 'U', 'M', 'P', 'Y', version, 0};
  for (std::size_t at = 0; at < before - 8; ++at) bytes.push_back(static_cast<std::uint8_t>(header.size() >> (8 * at)));
  bytes.insert(bytes.end(), header.begin(), header.end());
  bytes.insert(bytes.end(), elements.begin(), elements.end());
  return bytes;
}

}  // namespace syncopate
