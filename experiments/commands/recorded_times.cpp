#include "experiments/commands/recorded_times.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <map>
#include <memory>
#include <new>
#include <system_error>

#include "experiments/sections/experiment.hpp"
#include "workers/delays/csv_rows.hpp"
#include "workers/delays/trace.hpp"

namespace syncopate {
namespace {

namespace fs = std::filesystem;
constexpr const char* wanted =
    "must be a CSV file with worker,step,duration_s (and micro_batch), or a run's directory with durations.csv.gz";

// The recorded steps in which every worker has all M micro-batches.
std::vector<Step> whole_steps(const Trace& trace) {
  const auto most = static_cast<std::size_t>(trace.micro_batches());
  std::vector<Step> whole;
  for (Step step = 0; step < trace.steps(); ++step) {
    bool is_whole = true;
    for (int worker = 0; worker < trace.workers() && is_whole; ++worker)
      is_whole = trace.durations_s(worker, step, 0, most).size() == most;
    if (is_whole) whole.push_back(step);
  }
  return whole;
}

std::vector<double> times_of(const Trace& trace, const std::vector<Step>& steps) {
  std::vector<double> times;
  times.reserve(static_cast<std::size_t>(trace.workers()) * steps.size() *
                static_cast<std::size_t>(trace.micro_batches()));
  for (int worker = 0; worker < trace.workers(); ++worker)
    for (const Step step : steps) {
      const auto durations = trace.durations_s(worker, step, 0, static_cast<std::size_t>(trace.micro_batches()));
      times.insert(times.end(), durations.begin(), durations.end());
    }
  return times;
}

double mean_of_slowest(const RecordedTimes& recorded) {
  std::vector<double> slowest_s(static_cast<std::size_t>(recorded.steps), 0.0);
  visit_ends(recorded.view(), [&](int step, int, double end) {
    double& slowest = slowest_s[static_cast<std::size_t>(step)];
    slowest = std::max(slowest, end);
  });
  double sum_s = 0;
  for (const double slowest : slowest_s) sum_s += slowest;
  return sum_s / recorded.steps;
}

// From the rows of steps.csv that are one step each, of the whole steps.
void find_serial_time(const fs::path& file, const std::vector<Step>& whole, RecordedTimes& recorded) {
  const std::string content = file_content(file);
  CsvRows rows(file.string(), content, {"step", "duration_s", "period_steps"});
  std::map<std::int64_t, double> duration_s;  // by step, from 0
  bool has_rounds = false;
  while (rows.next()) {
    has_rounds |= rows.number(2) != 1;
    duration_s[static_cast<std::int64_t>(rows.number(0)) - 1] += rows.number(1);
  }
  rows.check();
  if (has_rounds) {
    recorded.why_no_serial_s = "the run's rounds have several steps";
    return;
  }
  double sum_s = 0;
  for (const Step step : whole) {
    const auto found = duration_s.find(step.value());
    if (found == duration_s.end()) {
      recorded.why_no_serial_s = fmt::format("steps.csv has no step {}", step.value() + 1);
      return;
    }
    sum_s += found->second;
  }
  recorded.serial_s = std::max(sum_s / static_cast<double>(whole.size()) - mean_of_slowest(recorded), 0.0);
}

RecordedTimes read(const fs::path& source) {
  std::error_code ignored;
  const bool is_run = fs::is_directory(source, ignored);
  const fs::path file = is_run ? source / "durations.csv.gz" : source;
  if (!fs::exists(file, ignored))
    throw ConfigurationFault(
        is_run ? fmt::format("{}: there is no durations.csv.gz: let the run record it, [recording] durations = true",
                             source.string())
               : fmt::format("{}: there is no such file; {}", source.string(), wanted));
  if (fs::is_character_file(file, ignored))
    throw ConfigurationFault(fmt::format("{}: is a device; {}", source.string(), wanted));
  const std::string content = file_content(file);
  const Trace trace(file.string(), content);
  const std::vector<Step> whole = whole_steps(trace);
  if (whole.empty())
    throw ConfigurationFault(
        fmt::format("{}: in none of its {} steps every worker has all {} micro-batches; must be of a run that drops "
                    "nothing",
                    file.string(), trace.steps().value(), trace.micro_batches()));
  RecordedTimes recorded{.times = times_of(trace, whole),
                         .workers = trace.workers(),
                         .steps = static_cast<int>(whole.size()),
                         .micro_batches = trace.micro_batches(),
                         .left_out = static_cast<int>(trace.steps().value()) - static_cast<int>(whole.size()),
                         .serial_s = {},
                         .why_no_serial_s = "a trace does not say it"};
  if (is_run) find_serial_time(source / "steps.csv", whole, recorded);
  return recorded;
}

}  // namespace

RecordedTimes read_recorded_times(const fs::path& source) {
  try {
    return read(source);
  } catch (const FileFault& fault) {
    throw ConfigurationFault(fault.what());
  } catch (const std::bad_alloc&) {
    throw ConfigurationFault(
        fmt::format("{}: the memory does not suffice for what it holds; {}", source.string(), wanted));
  }
}

}  // namespace syncopate
