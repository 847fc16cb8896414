// A contiguous, cache-line aligned vector of float32: parameters, momentum and reduced gradients
// all live in one of these, so that an all-reduce or an optimizer pass works on one buffer.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <memory>
#include <new>
#include <span>

namespace syncopate {

class FlatVector {
 public:
  FlatVector() = default;

  // Uninitialised: every user writes the whole vector before it is read.
  explicit FlatVector(std::size_t size) : size_(size), data_(allocate(size)) {}

  float* data() { return data_.get(); }
  const float* data() const { return data_.get(); }
  std::size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  std::span<float> span() { return {data(), size_}; }
  std::span<const float> span() const { return {data(), size_}; }

 private:
  struct Free {
    void operator()(float* pointer) const { std::free(pointer); }
  };

  static float* allocate(std::size_t size) {
    constexpr std::size_t line = 64;
    const std::size_t bytes = (size * sizeof(float) + line - 1) / line * line;
    if (bytes == 0) return nullptr;
    void* pointer = std::aligned_alloc(line, bytes);
    if (!pointer) throw std::bad_alloc();
    return static_cast<float*>(pointer);
  }

  std::size_t size_ = 0;
  std::unique_ptr<float, Free> data_;
};

}  // namespace syncopate
