#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "workers/delays/trace.hpp"
#include "workers/process/run_failure.hpp"

namespace syncopate {
namespace {

class TraceDelay final : public DelayProcess {
 public:
  TraceDelay(std::shared_ptr<const Trace> trace, TraceReplay replay)
      : trace_(std::move(trace)), replay_(std::move(replay)) {}

  void add(const RandomStream& stream, std::uint32_t first, std::span<double> added_s) const override {
    const auto recorded_s = find(stream, first, added_s.size());
    if (recorded_s.size() < added_s.size())
      fail_for_missing(stream, first + static_cast<std::uint32_t>(recorded_s.size()));
    for (std::size_t i = 0; i < added_s.size(); ++i) added_s[i] += replay_.scale * recorded_s[i] + replay_.shift_s;
  }

  double mean_s() const override { return replay_.scale * trace_->mean_s() + replay_.shift_s; }
  double variance_s2() const override { return replay_.scale * replay_.scale * trace_->variance_s2(); }
  double minimum_s() const override { return replay_.scale * trace_->minimum_s() + replay_.shift_s; }

  StepLaw step_law(const RandomStream& stream, int micro_batches) const override {
    const StepLaw law = recorded_law(stream, micro_batches);
    return {replay_.scale * law.mean_s + micro_batches * replay_.shift_s,
            replay_.scale * replay_.scale * law.variance_s2};
  }
  double shortest_s(Rank worker) const override {
    if (replay_.stretch) return minimum_s();  // whom it follows is the seed's matter
    return replay_.scale * trace_->minimum_s(rows_of(worker)) + replay_.shift_s;
  }
  std::size_t known_ahead(const RandomStream& stream, std::uint32_t first, std::size_t most) const override {
    return std::max<std::size_t>(find(stream, first, most).size(), 1);
  }
  bool can_run_out() const override { return true; }

 private:
  int rows_of(Rank worker) const {
    const auto index = static_cast<std::size_t>(worker.value);
    const int rows = index < replay_.rows_of.size() ? replay_.rows_of[index] : worker.value;
    if (rows >= trace_->workers())
      throw RunFailure(fmt::format("the trace {} has workers 0 to {}, none for worker {}", trace_->file(),
                                   trace_->workers() - 1, worker.value));
    return rows;
  }
  Step recorded(const RandomStream& stream) const {
    const Step::Rep steps = trace_->steps().value(), step = stream.step.value();
    if (step < steps) return step;
    if (replay_.end == TraceEnd::wrap) return step % steps;
    throw RunFailure(
        fmt::format("worker {}, step {}: the trace {} ends after {} steps; choose end = \"wrap\" to start "
                    "again, or a budget of at most {} steps",
                    stream.worker.value, step, trace_->file(), steps, steps));
  }
  std::span<const double> find(const RandomStream& stream, std::uint32_t first, std::size_t most) const {
    const RecordedPlace place = place_of(stream);
    return trace_->durations_s(place.worker, place.step, first, most);
  }
  RecordedPlace place_of(const RandomStream& stream) const {
    if (replay_.stretch) return place_in_recording(*replay_.stretch, trace_->workers(), trace_->steps(), stream);
    return {rows_of(stream.worker), recorded(stream)};
  }
  StepLaw recorded_law(const RandomStream& stream, int micro_batches) const {
    if (!replay_.stretch) return trace_->step_law(rows_of(stream.worker), micro_batches);
    if (!replay_.stretch->redraw_worker)
      return trace_->step_law(followed_worker(*replay_.stretch, trace_->workers(), stream), micro_batches);
    return law_of_any_worker(micro_batches);
  }
  // Each as likely as any other: the mean over all, whose variances differences between their means add to.
  StepLaw law_of_any_worker(int micro_batches) const {
    StepLaw sums;
    double squares_s2 = 0;
    for (int worker = 0; worker < trace_->workers(); ++worker) {
      const StepLaw law = trace_->step_law(worker, micro_batches);
      sums.mean_s += law.mean_s / trace_->workers();
      sums.variance_s2 += law.variance_s2 / trace_->workers();
      squares_s2 += law.mean_s * law.mean_s / trace_->workers();
    }
    sums.variance_s2 += std::max(squares_s2 - sums.mean_s * sums.mean_s, 0.0);
    return sums;
  }
  [[noreturn]] void fail_for_missing(const RandomStream& stream, std::uint32_t micro_batch) const {
    const RecordedPlace place = place_of(stream);
    const bool beyond = micro_batch >= static_cast<std::uint32_t>(trace_->micro_batches());
    throw RunFailure(fmt::format(
        "worker {}, step {}, micro-batch {}: the trace {} has no duration for worker {}, step {}, micro-batch {}; {}",
        stream.worker.value, stream.step.value(), micro_batch, trace_->file(), place.worker, place.step.value(),
        micro_batch,
        beyond ? fmt::format("its steps have at most {}", trace_->micro_batches())
               : "the recorded run has probably dropped it: record one that drops nothing"));
  }

  std::shared_ptr<const Trace> trace_;
  TraceReplay replay_;
};

}  // namespace

std::shared_ptr<const DelayProcess> trace_delay(std::shared_ptr<const Trace> trace, TraceReplay replay) {
  return std::make_shared<TraceDelay>(std::move(trace), std::move(replay));
}

}  // namespace syncopate
