#include "workers/delays/trace_stretch.hpp"

#include <cstdint>

namespace syncopate {
namespace {

constexpr std::uint8_t stream_of_base = 255;  // entries of [[delays]] have smaller numbers
constexpr std::uint32_t number_of_begin = 0, number_of_worker = 1;

RandomStream draws_of(const TraceStretch& stretch, const RandomStream& stream, Step block) {
  return {.seed = stream.seed,
          .purpose = Purpose::trace_block,
          .stream = stretch.is_base ? stream_of_base : stream.stream,
          .worker = stream.worker,
          .step = block};
}

Step block_of(const TraceStretch& stretch, Step step) { return Step{step.value() / stretch.block_steps.value()}; }

// Of `count`; uniform numbers are below 1.
std::int64_t drawn(const RandomStream& stream, std::uint32_t number, std::int64_t count) {
  return static_cast<std::int64_t>(stream.uniform(number) * static_cast<double>(count));
}

}  // namespace

int followed_worker(const TraceStretch& stretch, int recorded_workers, const RandomStream& stream) {
  const Step block = stretch.redraw_worker ? block_of(stretch, stream.step) : Step{0};
  return static_cast<int>(drawn(draws_of(stretch, stream, block), number_of_worker, recorded_workers));
}

RecordedPlace place_in_recording(const TraceStretch& stretch, int recorded_workers, Step recorded_steps,
                                 const RandomStream& stream) {
  RandomStream draws = draws_of(stretch, stream, block_of(stretch, stream.step));
  if (stretch.together) draws.worker = Rank{0};
  const std::int64_t begin = drawn(draws, number_of_begin, recorded_steps.value());
  const std::int64_t within = stream.step.value() % stretch.block_steps.value();
  return {followed_worker(stretch, recorded_workers, stream), Step{(begin + within) % recorded_steps.value()}};
}

}  // namespace syncopate
