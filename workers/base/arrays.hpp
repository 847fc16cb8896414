// Arrays in NumPy's format, read where they lie: a file is mapped into memory, and only what is asked for is loaded.
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

// What is wrong with an array, without its file's name.
struct NpyFault : std::runtime_error {
  using std::runtime_error::runtime_error;
};

struct NpyHeader {
  std::string type;                 // NumPy's word, with its byte order: "<f4"
  std::vector<std::int64_t> shape;  // empty: one number
  std::size_t begin = 0;            // of the elements, in bytes

  std::int64_t elements() const;
};

// Of what a file begins with. Throws NpyFault, also for arrays in Fortran's order.
NpyHeader npy_header(std::string_view bytes);

// For messages, of a type that does not suit: what it is, and how an array is saved as another one.
std::string described_type(std::string_view type);  // "float16 ('<f2')"
std::string way_to_save(const std::filesystem::path& file,
                        std::string_view as);  // numpy.save("a.npy", a.astype("<f4"))

class NpyArray {
 public:
  // Throws std::system_error for a file that cannot be mapped, and NpyFault for one that is no array of numbers or that
  // is shorter or longer than its header says. The numbers may be of any type that NumPy has.
  explicit NpyArray(const std::filesystem::path& file);

  const std::string& type() const { return header_.type; }
  const std::vector<std::int64_t>& shape() const { return header_.shape; }

  // The elements in C's order, which are aligned for their type; `Element` must be that of type().
  template <typename Element>
  const Element* data() const {
    return reinterpret_cast<const Element*>(bytes_.get() + header_.begin);
  }

 private:
  std::shared_ptr<const char> bytes_;
  NpyHeader header_;
};

// parameters.npy: float32 arrays in NumPy's format, version 1.0.
// One vector is an array of shape (P,), several of equal size one of shape (vectors, P).
std::string npy(const std::vector<std::vector<float>>& vectors);

// What npy wrote, the rows one after the other. Throws std::runtime_error for anything else.
std::vector<float> floats_from_npy(std::string_view bytes);

}  // namespace syncopate
