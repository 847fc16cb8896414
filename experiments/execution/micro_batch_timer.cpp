#include <fmt/format.h>
#include <sched.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <stop_token>
#include <system_error>
#include <thread>

#include "experiments/execution/cost.hpp"
#include "experiments/execution/ranks.hpp"
#include "results/run_directory.hpp"
#include "results/summary.hpp"
#include "workers/base/files.hpp"
#include "workers/base/machine.hpp"
#include "workers/base/process.hpp"
#include "workers/base/terminal_text.hpp"
#include "workers/data/sampler.hpp"
#include "workers/mpi/mpi_session.hpp"
#include "workers/training/objective.hpp"

namespace syncopate {

template <typename AnyJson>
void list_members(JsonMembers<AnyJson> members, Listed<LengthFit, AnyJson>& fit) {
  for (const auto& [key, cost] : content_costs) members(key, fit.cost.*cost);
  members("r_squared", fit.r_squared);
  members("largest_residual_s", fit.largest_residual_s);
  members("typical_residual_s", fit.typical_residual_s);
  members("points", fit.points);
}

namespace {

namespace fs = std::filesystem;

// Returns the entries [{"host", "work", "micro_batch_s", ...}, ...] of the file; empty without a file.
Json entries_of(const fs::path& file) {
  const auto text = read_file(file);
  if (!text) return Json::array();
  Json entries = Json::parse(*text);
  if (!entries.is_array()) throw std::runtime_error("not a list");
  return entries;
}

// Returns the number of workers that compute at the same time on this machine.
int at_once_of(const MicroBatchWork& work) {
  return std::min(work.workers, static_cast<int>(std::max(1U, std::thread::hardware_concurrency())));
}

// Returns the number of cores that this process may use; a launcher may have bound it to some of them.
int cores_of_this_process() {
  cpu_set_t set;
  CPU_ZERO(&set);
  return sched_getaffinity(0, sizeof(set), &set) == 0 ? std::max(1, CPU_COUNT(&set)) : 1;
}

// 256 MiB, which exceeds all caches.
constexpr std::size_t beyond_caches = std::size_t{1} << 28;

// Computes gradients as a worker does, which keeps the gradients of a step until the step ends. So later gradients use
// memory outside the caches. This class keeps only enough gradients to exceed the caches, and at least one.
class GradientsOfSteps {
 public:
  GradientsOfSteps(const Objective& objective, std::uint64_t seed, int micro_batches)
      : objective_(objective), parameters_(objective.initial_parameters(seed)), buffers_(objective.initial_buffers()) {
    const std::size_t bytes = std::max<std::size_t>(objective.parameters() * sizeof(float), 1);
    const std::size_t enough = 1 + (beyond_caches - 1) / bytes;
    kept_.resize(std::min(static_cast<std::size_t>(micro_batches), enough));
  }

  // Releases the oldest gradient and computes a new one. Returns the time of the computation alone, because workers
  // release gradients between steps.
  double compute(const MicroBatch& micro_batch, const std::function<double()>& now_s = wall_clock_s) {
    kept_[next_] = {};
    const double start_s = now_s();
    kept_[next_] = objective_.gradient(parameters_.data(), buffers_.empty() ? nullptr : buffers_.data(),
                                       std::span(&micro_batch, 1));
    next_ = (next_ + 1) % kept_.size();
    return now_s() - start_s;
  }

 private:
  const Objective& objective_;
  std::vector<float> parameters_;
  std::vector<float> buffers_;
  std::vector<PartialGradient> kept_;  // used as a ring
  std::size_t next_ = 0;
};

// Returns a function that computes one gradient per call, as another worker would. The function is empty if the data
// cannot be loaded, which rank 0 reports.
std::function<void()> neighbour_of(const MicroBatchWork& work) {
  try {
    const auto objective = work.load();
    const auto gradients = std::make_shared<GradientsOfSteps>(*objective, work.seed, work.micro_batches);
    return [objective, gradients, step = std::int64_t{0}]() mutable {
      gradients->compute({.worker = Rank{0}, .step = step++, .index = 0});
    };
  } catch (const Interrupted&) {
    throw;
  } catch (const std::exception&) {
    return {};
  }
}

bool is_of(const Json& entry, const MicroBatchWork& work) {
  return entry.at("host").get<std::string>() == host_name() && entry.at("work").get<std::string>() == work.key &&
         entry.value("at_once", 0) == at_once_of(work) && entry.value("micro_batches", 0) == work.micro_batches;
}

// Returns threads that compute gradients until they are destroyed. They compete for memory, caches and power as other
// workers on the machine would. Each thread begins with a different micro-batch. Throws std::runtime_error if a thread
// cannot be started; then threads that were already started end. The arguments must outlive the threads.
std::vector<std::jthread> start_neighbours(int count, const Objective& objective, const MicroBatchWork& work,
                                           const std::vector<MicroBatch>& micro_batches) {
  std::vector<std::jthread> threads;
  for (int i = 1; i <= count; ++i) {
    const auto first = micro_batches.size() * static_cast<std::size_t>(i) / static_cast<std::size_t>(count + 1);
    const auto compute = [&objective, &work, &micro_batches, first](const std::stop_token& is_over) {
      try {
        GradientsOfSteps gradients(objective, work.seed, work.micro_batches);
        for (std::size_t j = first; !is_over.stop_requested(); ++j)
          gradients.compute(micro_batches[j % micro_batches.size()]);
      } catch (const std::exception&) {  // an interruption, which also ends the measurement
      }
    };
    try {
      threads.emplace_back(compute);
    } catch (const std::system_error& problem) {
      throw std::runtime_error(
          fmt::format("needs {} more threads to compute in parallel with the timed one, but only {} can be started: {}",
                      count, i - 1, problem.code().message()));
    }
  }
  return threads;
}

struct TimedMicroBatch {
  MicroBatch micro_batch;
  TimedLengths lengths;
  std::vector<double> times_s{};
};

// Returns micro-batches in ascending order of their tokens, from the fewest to the most. Padding counts as tokens if it
// is computed.
std::vector<TimedMicroBatch> spread_by_length(const MicroBatchWork& work) {
  constexpr int looked_at = 512, chosen = 24;
  const BatchLengths& batches = *work.lengths;
  std::vector<TimedMicroBatch> all;
  std::vector<std::int32_t> lengths;
  for (int i = 0; i < looked_at; ++i) {
    const MicroBatch micro_batch{.worker = Rank{i % batches.workers()},
                                 .step = calibration_epoch * batches.steps_per_epoch() + i / batches.workers(),
                                 .index = 0};
    lengths.clear();
    batches.append(micro_batch, lengths);
    TimedLengths sums;
    sums.tokens = seconds_of({.per_token_s = 1}, lengths);
    sums.padded_tokens = seconds_of({.per_padded_token_s = 1}, lengths);
    sums.squares = seconds_of({.per_squared_length_s = 1, .pads = work.pads}, lengths);
    all.push_back({micro_batch, sums});
  }
  std::ranges::stable_sort(
      all, {}, [&](const TimedMicroBatch& one) { return work.pads ? one.lengths.padded_tokens : one.lengths.tokens; });
  std::vector<TimedMicroBatch> spread;
  for (int i = 0; i < chosen; ++i) spread.push_back(all[static_cast<std::size_t>(i * (looked_at - 1) / (chosen - 1))]);
  return spread;
}

double median(std::vector<double> values) {
  const auto middle = values.begin() + std::ssize(values) / 2;
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

// Throws if the entry does not match its digest. Entries of earlier versions have no digest.
void check_as_written(Json entry) {
  if (!entry.contains("crc32")) return;
  const Json digest = entry.at("crc32");
  entry.erase("crc32");
  if (digest != json_digest(entry)) throw std::runtime_error("the stored time was modified; --rerun measures again");
}

MeasuredMicroBatch time_of(const Json& value) {
  if (value.is_number()) {
    const double seconds = value;
    if (!(seconds > 0)) throw std::runtime_error("the stored time is not above 0");
    return {.micro_batch_s = seconds};
  }
  const LengthFit fit = value;
  for (const auto& [key, cost] : content_costs)
    if (!(fit.cost.*cost >= 0)) throw std::runtime_error("a stored cost is negative");
  return {.micro_batch_s = 0, .fit = fit};
}

Json measure(const MicroBatchWork& work, int at_once) {
  const auto objective = work.load();
  if (!work.lengths) return measure_micro_batch_s(*objective, work, at_once);
  const LengthFit fit = measure_by_lengths(*objective, work, at_once);
  standard_error.write(
      fmt::format("measured by lengths: {:.4g} s, {:.4g} s per token, {:.4g} s per padded token, {:.4g} s per squared "
                  "length; R^2 = {:.4f}, largest residual {:.3g} s of {} micro-batches\n",
                  fit.cost.base_s, fit.cost.per_token_s, fit.cost.per_padded_token_s, fit.cost.per_squared_length_s,
                  fit.r_squared, fit.largest_residual_s, fit.points));
  return fit;
}

// Returns the stored time, or measures it. Calls `on_measure` before it measures.
MeasuredMicroBatch kept_or_measured(const MicroBatchWork& work, const MicroBatchTimerOptions& options, bool under_mpi,
                                    const std::function<void()>& on_measure) {
  const fs::path file = experiment_directory(options.results_directory, work.experiment) / "measured.json";
  try {
    Json entries = entries_of(file);
    const auto found = std::ranges::find_if(entries, [&](const Json& entry) { return is_of(entry, work); });
    if (found != entries.end() && !options.remeasure) {
      check_as_written(*found);
      return time_of(found->at("micro_batch_s"));
    }
    on_measure();
    // Under MPI the other ranks compute gradients meanwhile, so no threads are needed.
    const Json measured = measure(work, under_mpi ? 1 : std::min(at_once_of(work), cores_of_this_process()));
    Json entry = {{"host", host_name()},
                  {"work", work.key},
                  {"at_once", at_once_of(work)},
                  {"micro_batches", work.micro_batches},
                  {"micro_batch_s", measured}};
    entry["crc32"] = json_digest(entry);
    if (found != entries.end())
      *found = std::move(entry);
    else
      entries.push_back(std::move(entry));
    if (options.keep) {
      require_no_link(file.parent_path());
      fs::create_directories(file.parent_path());
      replace_file(file, entries.dump(2) + "\n");
    }
    return time_of(measured);
  } catch (const Interrupted&) {
    throw;
  } catch (const std::exception& problem) {
    throw ConfigurationFault(
        fmt::format("cluster.micro_batch_s = \"measured\" ({}): {}", file.string(), problem.what()));
  }
}

// Returns rank 0's time on all ranks.
MeasuredMicroBatch agreed_time(const MicroBatchWork& work, const MicroBatchTimerOptions& options,
                               const MpiSession& session) {
  const std::string measured = fmt::format("to be measured, for {}", work.key);
  agree(session, {.fault = {}, .identity = measured, .plan = {{"cluster.micro_batch_s", measured}}});
  if (!session.active()) return kept_or_measured(work, options, false, [] {});
  MeasuredMicroBatch value;
  std::string problem;
  std::function<void()> meanwhile;  // called until rank 0's value arrives
  if (session.rank() == 0) {
    bool is_sent = false;
    const auto send_decision = [&](bool measures) {
      if (!std::exchange(is_sent, true)) from_rank_0(session, measures);
    };
    try {
      value = kept_or_measured(work, options, true, [&] { send_decision(true); });
    } catch (const ConfigurationFault& fault) {
      problem = fault.what();
    }
    send_decision(false);
  } else {
    const bool measures = from_rank_0(session, false);
    if (measures && session.rank() < work.workers) meanwhile = neighbour_of(work);
  }
  value.micro_batch_s = from_rank_0(session, value.micro_batch_s, meanwhile);
  value.fit = from_rank_0(session, value.fit);
  if (value.micro_batch_s == 0 && !value.fit) throw ConfigurationFault(problem);  // only rank 0 prints it
  return value;
}

}  // namespace

double wall_clock_s() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

double measure_micro_batch_s(const Objective& objective, const MicroBatchWork& work, int at_once,
                             const std::function<double()>& now_s) {
  constexpr int warm_up = 10, most = 60, fewest = 5;
  constexpr double enough_s = 5;
  std::vector<MicroBatch> micro_batches;
  for (int i = 0; i < warm_up + most; ++i) micro_batches.push_back({.worker = Rank{0}, .step = i, .index = 0});
  GradientsOfSteps gradients(objective, work.seed, work.micro_batches);
  const auto neighbours = start_neighbours(at_once - 1, objective, work, micro_batches);
  std::vector<double> times;
  const double begin_s = now_s();
  for (int i = 0; i < warm_up + most; ++i) {
    if (i >= warm_up + fewest && now_s() - begin_s > enough_s) break;
    times.push_back(gradients.compute(micro_batches[static_cast<std::size_t>(i)], now_s));
  }
  times.erase(times.begin(), times.begin() + warm_up);
  return std::max(1.0, std::round(median(std::move(times)) * 1e9)) / 1e9;
}

LengthFit measure_by_lengths(const Objective& objective, const MicroBatchWork& work, int at_once,
                             const std::function<double()>& now_s) {
  constexpr int warm_up = 2, most = 25, fewest = 5;  // rounds
  constexpr double enough_s = 8;
  std::vector<TimedMicroBatch> timed = spread_by_length(work);
  std::vector<MicroBatch> micro_batches;
  for (const TimedMicroBatch& one : timed) micro_batches.push_back(one.micro_batch);
  GradientsOfSteps gradients(objective, work.seed, work.micro_batches);
  const auto neighbours = start_neighbours(at_once - 1, objective, work, micro_batches);
  const double begin_s = now_s();
  for (int round = 0; round < warm_up + most; ++round) {
    if (round >= warm_up + fewest && now_s() - begin_s > enough_s) break;
    for (TimedMicroBatch& one : timed) {
      throw_if_interrupted();
      const double time_s = gradients.compute(one.micro_batch, now_s);
      if (round >= warm_up) one.times_s.push_back(time_s);
    }
  }
  std::vector<TimedLengths> points;
  for (TimedMicroBatch& one : timed) {
    one.lengths.seconds = median(std::move(one.times_s));
    points.push_back(one.lengths);
  }
  return fit_lengths(points, !work.pads             ? Computed::own
                             : work.asks_for_tokens ? Computed::padded_and_asked
                                                    : Computed::padded);
}

std::function<MeasuredMicroBatch(const MicroBatchWork&)> micro_batch_timer(MicroBatchTimerOptions options,
                                                                           const MpiSession& session) {
  // Copies of the function share the times that it has returned.
  const auto known = std::make_shared<std::map<std::string, MeasuredMicroBatch>>();
  return [options = std::move(options), &session, known](const MicroBatchWork& work) {
    const std::string what = fmt::format("{}, {} at once, {} per step", work.key, at_once_of(work), work.micro_batches);
    if (!known->contains(what)) known->emplace(what, agreed_time(work, options, session));
    return known->at(what);
  };
}

}  // namespace syncopate
