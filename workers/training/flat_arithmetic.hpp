// Element-wise arithmetic on vectors, compiled per instruction set (vector_clones.hpp). `in` must not overlap `out`.
#pragma once

#include <cstdlib>
#include <memory>
#include <new>
#include <span>
#include <utility>

namespace syncopate {

// write_scaled: out = factor x in; add_scaled: out += factor x in. Products are rounded before they are added.
void write_scaled(float* out, float factor, const float* in, std::size_t size);
void write_scaled(double* out, double factor, const float* in, std::size_t size);
void add_scaled(float* out, float factor, const float* in, std::size_t size);
void add_scaled(double* out, double factor, const float* in, std::size_t size);

void add(float* out, const float* in, std::size_t size);
void scale(float* values, float factor, std::size_t size);

// Sets `out` to the sum of weight x `in` over the terms, added in their order in double precision and rounded once.
struct WeightedVector {
  double weight;
  const float* in;
};
void write_weighted_sum(float* out, std::span<const WeightedVector> terms, std::size_t size);

// Adds in double precision, in an order that depends only on the size.
double sum_of_squares(const float* in, std::size_t size);

// A contiguous, cache-line aligned vector of float32. It stores parameters, moments or a reduced gradient, so that an
// all-reduce or an optimizer pass works on one buffer.
class FlatVector {
 public:
  FlatVector() = default;

  // Leaves the elements uninitialised: write all of them before you read any.
  explicit FlatVector(std::size_t size) : size_(size) {
    if (size == 0) return;
    // Does not use aligned_alloc, because glibc before 2.38 never reuses a freed aligned block for an equal request.
    constexpr std::size_t line = 64;
    std::size_t space = size * sizeof(float) + line;
    memory_.reset(std::malloc(space));
    if (!memory_) throw std::bad_alloc();
    void* start = memory_.get();
    data_ = static_cast<float*>(std::align(line, size * sizeof(float), start, space));
  }
  FlatVector(FlatVector&& other) noexcept { *this = std::move(other); }
  FlatVector& operator=(FlatVector&& other) noexcept {
    size_ = std::exchange(other.size_, 0);
    data_ = std::exchange(other.data_, nullptr);
    memory_ = std::move(other.memory_);
    return *this;
  }

  float* data() { return data_; }
  const float* data() const { return data_; }
  std::size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  std::span<float> span() { return {data(), size_}; }
  std::span<const float> span() const { return {data(), size_}; }

 private:
  struct Free {
    void operator()(void* pointer) const { std::free(pointer); }
  };

  std::size_t size_ = 0;
  float* data_ = nullptr;
  std::unique_ptr<void, Free> memory_;
};

}  // namespace syncopate
