#include "workers/mpi/value_layout.hpp"

#include <algorithm>
#include <cassert>
#include <cstdint>

namespace syncopate {
namespace {

struct Bounds {
  std::size_t begin;
  std::size_t size;
};

Bounds bounds_of(const Slice& slice, std::size_t parameters) {
  const auto count = static_cast<std::int64_t>(parameters);
  const auto begin = static_cast<std::size_t>(slice.begin(count));
  return {begin, static_cast<std::size_t>(slice.end(count)) - begin};
}

}  // namespace

FlatVector cut(const FlatVector& whole, const ValueLayout& layout, const Slice& slice) {
  assert(whole.size() == layout.size());
  const Bounds bounds = bounds_of(slice, layout.parameters);
  const std::size_t buffers = slice.index == 0 ? layout.buffers : 0;
  FlatVector part(layout.parts() * bounds.size + buffers);
  float* out = part.data();
  for (std::size_t i = 0; i < layout.parts(); ++i)
    out = std::copy_n(whole.data() + i * layout.parameters + bounds.begin, bounds.size, out);
  std::copy_n(whole.data() + layout.parts() * layout.parameters, buffers, out);
  return part;
}

FlatVector spread(const FlatVector& part, const ValueLayout& layout, const Slice& slice) {
  const Bounds bounds = bounds_of(slice, layout.parameters);
  const std::size_t buffers = slice.index == 0 ? layout.buffers : 0;
  assert(part.size() == layout.parts() * bounds.size + buffers);
  FlatVector whole(layout.size());
  std::fill_n(whole.data(), whole.size(), 0.0f);
  for (std::size_t i = 0; i < layout.parts(); ++i)
    std::copy_n(part.data() + i * bounds.size, bounds.size, whole.data() + i * layout.parameters + bounds.begin);
  std::copy_n(part.data() + layout.parts() * bounds.size, buffers, whole.data() + layout.parts() * layout.parameters);
  return whole;
}

FlatVector widened(const FlatVector& narrow, const ValueLayout& layout) {
  assert(narrow.size() == layout.size() && !layout.wide);
  FlatVector wide(layout.size() + layout.parameters);
  float* out = std::copy_n(narrow.data(), layout.parameters, wide.data());
  out = std::fill_n(out, layout.parameters, 0.0f);
  std::copy_n(narrow.data() + layout.parameters, layout.buffers, out);
  return wide;
}

FlatVector copy_of(const FlatVector& values) {
  FlatVector copy(values.size());
  std::copy_n(values.data(), values.size(), copy.data());
  return copy;
}

void add_values(FlatVector& total, const FlatVector& values, const ValueLayout& layout) {
  assert(total.size() == layout.size() && values.size() == layout.size());
  const std::size_t p = layout.parameters;
  float* const sum = total.data();
  const float* const more = values.data();
  if (layout.wide) {
    for (std::size_t i = 0; i < p; ++i)
      split(joined(sum[i], sum[p + i]) + joined(more[i], more[p + i]), sum[i], sum[p + i]);
  } else {
    for (std::size_t i = 0; i < p; ++i) sum[i] += more[i];
  }
  for (std::size_t i = layout.parts() * p; i < layout.size(); ++i) sum[i] += more[i];
}

}  // namespace syncopate
