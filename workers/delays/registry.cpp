#include "workers/delays/registry.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string>
#include <utility>
#include <vector>

#include "workers/delays/bernoulli.hpp"
#include "workers/delays/bounded_lognormal.hpp"
#include "workers/delays/constant.hpp"
#include "workers/delays/drift.hpp"
#include "workers/delays/exponential.hpp"
#include "workers/delays/gamma.hpp"
#include "workers/delays/histogram.hpp"
#include "workers/delays/limits.hpp"
#include "workers/delays/lognormal.hpp"
#include "workers/delays/normal.hpp"
#include "workers/delays/pareto.hpp"
#include "workers/delays/scoped_delay.hpp"
#include "workers/delays/uniform.hpp"
#include "workers/delays/weibull.hpp"

namespace syncopate {
namespace {

// Families whose quantities are all in units.
template <auto read>
std::shared_ptr<const DelayProcess> in_units(Settings& settings, const DelayContext& context) {
  return read(settings, context.unit_s);
}

std::shared_ptr<const DelayProcess> read_trace_delay(Settings& settings, const DelayContext& context) {
  std::vector<TraceLimit> nobody;
  TraceReplay replay;
  auto trace = read_trace(settings, replay, context.traces ? *context.traces : nobody);
  replay.scale =
      settings.number({"scale", "What the durations are multiplied by."}, Range::between(0, longest_delay), 1.0);
  replay.shift_s = context.unit_s * settings.number({"shift", "What is added to them.", of_unit},
                                                    Range::between(-longest_delay, longest_delay), 0.0);
  if (!trace) return constant_delay(0);
  return trace_delay(std::move(trace), std::move(replay));
}

constexpr std::array delay_rows = {
    DelayRow{"constant", "The same delay for every micro-batch: value.", in_units<read_constant_delay>},
    DelayRow{"uniform", "Uniform between low and high.", in_units<read_uniform_delay>},
    DelayRow{"normal", "Normal with mean and standard_deviation; may be negative.", in_units<read_normal_delay>},
    DelayRow{"exponential", "Exponential with mean.", in_units<read_exponential_delay>},
    DelayRow{"shifted-exponential", "shift plus an exponential with mean: shift + mean on average.",
             in_units<read_shifted_exponential_delay>},
    DelayRow{"gamma", "Gamma with shape and scale: mean shape x scale.", in_units<read_gamma_delay>},
    DelayRow{"weibull", "Weibull with shape and scale: mean scale x Gamma(1 + 1 / shape).",
             in_units<read_weibull_delay>},
    DelayRow{"pareto", "Pareto with shape and minimum: the heaviest tail; no finite mean up to shape 1.",
             in_units<read_pareto_delay>},
    DelayRow{"bernoulli", "value with a probability, else nothing.", in_units<read_bernoulli_delay>},
    DelayRow{"lognormal", "scale x exp(mu + sigma Z), Z standard normal.", in_units<read_lognormal_delay>},
    DelayRow{"bounded-lognormal",
             "DropCompute's simulated stragglers: scale x a bounded log-normal, form = \"table\" or \"formula\".",
             in_units<read_bounded_lognormal_delay>},
    DelayRow{"histogram",
             "Drawn from a histogram, times scale, plus shift: a file with bin_left_s, bin_right_s, density, or data = "
             "\"dropcompute-160\", \"dropcompute-192\".",
             in_units<read_histogram_delay>},
    DelayRow{"drift", "Grows by per_step with each step, up to maximum.", in_units<read_drift_delay>, true},
    DelayRow{
        "trace",
        "Recorded durations from a file with worker, step, micro_batch, duration_s, times scale, plus shift; end = "
        "\"error\", \"stop\", \"wrap\", or stretch.",
        read_trace_delay, true},
};

// The workers, or groups, of the cluster that a trace has no rows for, and micro-batches beyond its own.
void check_size_of_trace(Settings& settings, const DelayReach& reach, const DelayContext& context) {
  const TraceLimit& limit = context.traces->back();
  if (reach.scope == DelayScope::micro_batch && context.micro_batches > limit.micro_batches)
    settings.fault("file", fmt::format("the steps of the trace have {} micro-batches; cluster.micro_batches, {}, must "
                                       "be at most that, unless scope = \"step\"",
                                       limit.micro_batches, context.micro_batches));
  const int last = reach.workers.empty() ? context.workers - 1 : std::ranges::max(reach.workers);
  if (last / reach.group_size < limit.workers) return;
  settings.fault("file",
                 fmt::format("the trace has no rows for {} {}: it has {} workers",
                             reach.group_size > 1 ? "group" : "worker", last / reach.group_size, limit.workers));
}

}  // namespace

std::span<const DelayRow> delays() { return delay_rows; }

std::shared_ptr<const DelayProcess> make_delay(Settings& settings, DelayContext context) {
  const DelayRow* row = settings.row({"kind", "The distribution, or where the delay comes from."}, delay_rows);
  const Key unit{"unit", "What the delay's numbers are in: seconds, or times of micro_batch_s."};
  if (settings.choice(unit, {{"seconds", false}, {"micro_batch", true}}, false)) context.unit_s = context.base_s;
  const std::size_t traces = context.traces ? context.traces->size() : 0;
  auto process = row ? row->make(settings, context) : constant_delay(0);
  const DelayReach reach = read_delay_reach(settings, context.workers, row && row->follows_steps);
  if (context.workers > 0 && context.traces && context.traces->size() > traces)
    check_size_of_trace(settings, reach, context);
  return scoped_delay(std::move(process), reach);
}

}  // namespace syncopate
