// How arithmetic on flat vectors is cut into executor tasks.
#include <algorithm>
#include <utility>

#include "workers/training/course_log.hpp"
#include "workers/training/training.hpp"

namespace syncopate {

namespace {

std::size_t number_of_ranges(std::size_t size) {
  // Fewer elements than this take less time than waking another thread.
  constexpr std::size_t smallest_range = 64 * 1024;
  constexpr std::size_t most_ranges = 16;
  const std::size_t ranges = std::clamp(size / smallest_range, std::size_t{1}, most_ranges);
  return ranges == 1 ? 1 : ranges + ranges % 2;  // an even number: two cores end together
}

}  // namespace

CellPtr Training::submit_cell(std::size_t size, std::span<const CellPtr> reads, ProcessSet places,
                              std::function<void(float*, std::size_t, std::size_t)> work) {
  auto cell = new_cell();
  if (number_of_ranges(size) == 1) {
    const auto fill = [cell, size, work = std::move(work)] {
      cell->value = FlatVector(size);
      work(cell->value.data(), 0, size);
    };
    compute({.reads = {reads.begin(), reads.end()}, .writes = {cell}, .work = fill}, places);
    return cell;
  }
  const auto prerequisites = brought(reads, places);
  cell->at = places;
  if (!is_here(places)) return cell;
  const auto allocated = executor_.submit([cell, size] { cell->value = FlatVector(size); }, prerequisites);
  cell->producer = submit_ranges(allocated, 0, size, [cell, work = std::move(work)](std::size_t from, std::size_t to) {
    work(cell->value.data(), from, to);
  });
  return cell;
}

std::shared_ptr<Task> Training::submit_ranges(const std::shared_ptr<Task>& first, std::size_t begin, std::size_t end,
                                              std::function<void(std::size_t, std::size_t)> work) {
  const std::size_t size = end - begin;
  const std::size_t ranges = number_of_ranges(size);
  const std::shared_ptr<Task> prerequisites[] = {first};
  std::vector<std::shared_ptr<Task>> parts;
  for (std::size_t i = 0; i < ranges; ++i) {
    const std::size_t from = begin + size * i / ranges;
    const std::size_t to = begin + size * (i + 1) / ranges;
    parts.push_back(executor_.submit([work, from, to] { work(from, to); }, prerequisites));
  }
  return executor_.submit([] {}, parts);
}

}  // namespace syncopate
