// Memory-mapped files, and arrays in NumPy's format. Only the elements that are read are loaded.
// Source: NumPy's documentation of `numpy.lib.format`, versions 1.0 to 3.0.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace syncopate {

// Thrown if a file is not a usable array. The message does not contain the file's name.
struct NpyFault : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// The bytes of a mapped file; copies share the mapping. If another program shortens the file, reading the lost part
// ends the process with a message and exit_failure.
struct MappedFile {
  std::shared_ptr<const char> bytes;
  std::size_t size = 0;
};

// Throws std::system_error if the file cannot be mapped. Throws NpyFault if it is empty or not a regular file.
MappedFile map_file(const std::filesystem::path& file);

struct NpyHeader {
  std::string type;                 // NumPy's type string, with its byte order: "<f4"
  std::vector<std::int64_t> shape;  // empty: the array is a single number
  std::size_t begin = 0;            // offset of the elements, in bytes
};

// Texts for messages about a wrong type. described_type gives "float16 ('<f2')" for "<f2". way_to_save gives the Python
// code that saves an array with the type `as`: `numpy.save("a.npy", a.astype("<f4"))`.
std::string described_type(std::string_view type);
std::string way_to_save(const std::filesystem::path& file, std::string_view as);

class NpyArray {
 public:
  // Throws std::system_error if the file cannot be mapped. Throws NpyFault if it is not an array of numbers (of any
  // NumPy type) or if its size contradicts its header.
  explicit NpyArray(const std::filesystem::path& file);

  const std::string& type() const { return header_.type; }
  const std::vector<std::int64_t>& shape() const { return header_.shape; }

  // The elements in C order, aligned for their type. `Element` must match type().
  template <typename Element>
  const Element* data() const {
    return reinterpret_cast<const Element*>(bytes_.get() + header_.begin);
  }

 private:
  std::shared_ptr<const char> bytes_;
  NpyHeader header_;
};

// Returns the content of a file in NumPy's format, version 1.0, such as parameters.npy: a float32 array. One vector
// gives the shape (P,); several vectors of equal size give (vectors, P).
std::string npy(const std::vector<std::vector<float>>& vectors);

// Returns the rows of a float32 array such as npy() gives, concatenated. Throws NpyFault for other formats and types.
std::vector<float> floats_from_npy(std::string_view bytes);

}  // namespace syncopate
