#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <new>
#include <system_error>
#include <tuple>

#include "algorithms/synchronous/drop_threshold.hpp"
#include "experiments/commands/commands.hpp"
#include "results/text_table.hpp"
#include "workers/base/terminal_text.hpp"
#include "workers/time/trace.hpp"

namespace syncopate {

namespace {

namespace fs = std::filesystem;
constexpr const char* wanted =
    "must be a CSV file with worker,step,duration_s (and micro_batch), or a run's directory with durations.csv.gz";

// Micro-batch times recorded without a threshold.
struct RecordedTimes {
  std::vector<double> times;  // (N, I, M): workers, complete steps, micro-batches; in seconds
  int workers = 1;
  int steps = 1;                   // I: number of complete steps, in which every worker has all micro-batches
  int micro_batches = 1;           // M: the largest number of a worker's micro-batches in a step
  int left_out = 0;                // number of incomplete steps
  std::optional<double> serial_s;  // T^c, if it follows from steps.csv
  std::string why_no_serial_s;     // why there is no serial_s

  MicroBatchTimes view() const { return {times, workers, steps, micro_batches}; }
};

// The effects of the thresholds in the reference code's grid, and the best threshold by each of three `ways`.
struct ThresholdReport {
  std::string source;
  RecordedTimes recorded;  // without the times themselves
  double serial_s = 0;     // T^c
  double step_s = 0;       // E[T]: mean time of the slowest worker per step, without T^c
  double worker_s = 0;     // E[T_n]: mean time of a worker per step
  bool is_equal = false;   // whether all micro-batches take equally long
  struct Way {
    const char* name;  // value of the key `search` of the automatic threshold
    const char* sentence;
    std::vector<ThresholdEffect> effects;  // by threshold
    ThresholdEffect best;                  // `threshold` is infinite if no threshold improves on dropping nothing
    LargestDropper dropper_of_best{};
  };
  std::vector<Way> ways;                 // throughput, s-eff, reference
  std::vector<LargestDropper> droppers;  // by threshold
};

// Returns the complete steps: those in which every worker has all M micro-batches.
std::vector<Step> whole_steps(const Trace& trace) {
  const auto most = static_cast<std::size_t>(trace.micro_batches());
  std::vector<Step> whole;
  for (Step step = 0; step < trace.steps(); ++step) {
    int worker = 0;
    while (worker < trace.workers() && trace.durations_s(worker, step, 0, most).size() == most) ++worker;
    if (worker == trace.workers()) whole.push_back(step);
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

// Returns E[T], the mean time of a step's slowest worker, and E[T_n], the mean time of a worker.
std::pair<double, double> mean_times(const MicroBatchTimes& recorded) {
  std::vector<double> slowest(static_cast<std::size_t>(recorded.steps), 0.0);
  double of_workers = 0, of_steps = 0;
  visit_ends(recorded, [&](int step, int micro_batch, double end) {
    double& until = slowest[static_cast<std::size_t>(step)];
    until = std::max(until, end);
    if (micro_batch + 1 == recorded.micro_batches) of_workers += end;
  });
  for (const double end : slowest) of_steps += end;
  return {of_steps / recorded.steps, of_workers / recorded.steps / recorded.workers};
}

// Sets T^c from steps.csv. Each row of this file must be one step.
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
    recorded.why_no_serial_s = "unknown, because the run's rounds have several steps";
    return;
  }
  double sum_s = 0;
  for (const Step step : whole) {
    const auto found = duration_s.find(step.value());
    if (found == duration_s.end()) {
      recorded.why_no_serial_s = fmt::format("unknown, because steps.csv has no step {}", step.value() + 1);
      return;
    }
    sum_s += found->second;
  }
  recorded.serial_s = std::max(sum_s / static_cast<double>(whole.size()) - mean_times(recorded.view()).first, 0.0);
}

// Reads the recorded times. T^c is a step's time in steps.csv minus the time of its slowest worker's micro-batches, as
// in DropCompute's reference code. It is a mean over complete steps, and at least 0.
RecordedTimes read(const fs::path& source) {
  std::error_code ignored;
  const EmbeddedFile* const recording = recording_named(source.string());
  const bool is_run = !recording && fs::is_directory(source, ignored);
  const fs::path file = is_run ? source / "durations.csv.gz" : source;
  if (!recording && !fs::exists(file, ignored))
    throw ConfigurationFault(
        is_run ? fmt::format("{}: no durations.csv.gz: repeat the run with durations = true in [recording]",
                             source.string())
               : fmt::format("{}: no such file; {}", source.string(), wanted));
  if (fs::is_character_file(file, ignored))
    throw ConfigurationFault(fmt::format("{}: is a device; {}", source.string(), wanted));
  const std::string content = recording ? std::string(recording->content) : file_content(file);
  const Trace trace(file.string(), content);
  const std::vector<Step> whole = whole_steps(trace);
  if (whole.empty())
    throw ConfigurationFault(
        fmt::format("{}: none of its {} steps has all {} micro-batches of every worker; must be a recording of a run "
                    "that drops nothing",
                    file.string(), trace.steps().value(), trace.micro_batches()));
  RecordedTimes recorded{.times = times_of(trace, whole),
                         .workers = trace.workers(),
                         .steps = static_cast<int>(whole.size()),
                         .micro_batches = trace.micro_batches(),
                         .left_out = static_cast<int>(trace.steps().value()) - static_cast<int>(whole.size()),
                         .serial_s = {},
                         .why_no_serial_s = "a trace does not contain it"};
  if (is_run) find_serial_time(source / "steps.csv", whole, recorded);
  return recorded;
}

double step_speedup(const ThresholdEffect& effect) { return 1 / (1 - effect.time_saved); }

std::vector<std::string> row_of(const ThresholdReport& report, std::size_t k) {
  const ThresholdEffect& first = report.ways.front().effects[k];
  std::vector<std::string> row{shown_number(first.threshold, 6), with_decimals(100 * first.drop_rate, 2),
                               with_decimals(step_speedup(first), 3)};
  for (const auto& way : report.ways) row.push_back(with_decimals(way.effects[k].effective_speedup, 4));
  const double share = report.droppers[k].share;
  row.push_back(share > 0 ? with_decimals(100 * share, 1) : "-");
  return row;
}

std::string dropper_text(const LargestDropper& dropper) {
  if (dropper.share == 0) return {};
  return fmt::format("; {} % of drops on worker {}", with_decimals(100 * dropper.share, 0), dropper.worker);
}

std::string heading(const ThresholdReport& report) {
  const RecordedTimes& recorded = report.recorded;
  std::string text = fmt::format("{}: {}, {} of {}", report.source, counted(recorded.workers, "worker"),
                                 counted(recorded.steps, "step"), counted(recorded.micro_batches, "micro-batch"));
  if (recorded.left_out > 0) text += fmt::format(" (without {})", counted(recorded.left_out, "incomplete step"));
  text +=
      fmt::format("\na worker computes {} s per step, the slowest {} s; T^c = {} s", shown_number(report.worker_s, 6),
                  shown_number(report.step_s, 6), shown_number(report.serial_s, 6));
  if (report.serial_s == 0 && !recorded.serial_s)
    text += fmt::format(": {}; --serial-s sets it", recorded.why_no_serial_s);
  return text + "\n\n";
}

Json json_of(const ThresholdEffect& effect, const LargestDropper& dropper) {
  return {{"threshold_s", effect.threshold},
          {"drop_rate", effect.drop_rate},
          {"time_saved", effect.time_saved},
          {"effective_speedup", effect.effective_speedup},
          {"largest_worker_share", dropper.share},
          {"largest_worker", dropper.share > 0 ? Json(dropper.worker) : Json(nullptr)}};
}

std::string threshold_table(const ThresholdReport& report) {
  if (report.is_equal) return heading(report) + "All micro-batches take equally long, so no threshold helps.\n";
  TextTable table;
  for (const char* column : {"threshold\ns", "dropped\n%", "steps'\nspeed-up", "S_eff by\nthroughput",
                             "S_eff by\nEq. 6", "S_eff by\nref. code", "one worker's\ndrops %"})
    table.add_column(column, Align::right);
  const std::size_t count = report.ways.front().effects.size();
  constexpr std::size_t rows = 20;
  for (std::size_t row = 0; row < rows; ++row) table.add_row(row_of(report, row * (count - 1) / (rows - 1)));
  std::string text = heading(report) + table.text() + "\n";
  for (const auto& way : report.ways) {
    const ThresholdEffect& best = way.best;
    if (std::isinf(best.threshold))
      text += fmt::format("best by {}: none, since no threshold helps\n", way.sentence);
    else
      text += fmt::format("best by {}: {} s drops {} %, S_eff {}{}\n", way.sentence, shown_number(best.threshold, 6),
                          with_decimals(100 * best.drop_rate, 2), with_decimals(best.effective_speedup, 4),
                          dropper_text(way.dropper_of_best));
  }
  return text;
}

std::string thresholds_json(const ThresholdReport& report) {
  const RecordedTimes& recorded = report.recorded;
  Json json{{"source", report.source},
            {"workers", recorded.workers},
            {"steps", recorded.steps},
            {"steps_left_out", recorded.left_out},
            {"micro_batches", recorded.micro_batches},
            {"serial_s", report.serial_s},
            {"serial_is_recorded", recorded.serial_s == report.serial_s},
            {"mean_worker_s", report.worker_s},
            {"mean_step_s", report.step_s}};
  for (const auto& way : report.ways) {
    Json& own = json["by"][way.name];
    own["best"] = std::isinf(way.best.threshold) ? Json(nullptr) : json_of(way.best, way.dropper_of_best);
    for (std::size_t k = 0; k < way.effects.size(); ++k)
      own["thresholds"].push_back(json_of(way.effects[k], report.droppers[k]));
  }
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::string thresholds_csv(const ThresholdReport& report) {
  std::string text =
      "threshold_s,drop_rate,step_speedup,effective_speedup_throughput,effective_speedup_s_eff,"
      "effective_speedup_reference,largest_worker_share\n";
  for (std::size_t k = 0; k < report.ways.front().effects.size(); ++k) {
    const ThresholdEffect& first = report.ways.front().effects[k];
    fmt::format_to(std::back_inserter(text), "{},{},{}", first.threshold, first.drop_rate, step_speedup(first));
    for (const auto& way : report.ways)
      fmt::format_to(std::back_inserter(text), ",{}", way.effects[k].effective_speedup);
    fmt::format_to(std::back_inserter(text), ",{}\n", report.droppers[k].share);
  }
  return text;
}

ThresholdReport report_thresholds(const ThresholdsOptions& options) {
  ThresholdReport report;
  report.source = options.source;
  try {
    report.recorded = configured<FileFault>("", [&] { return read(options.source); });
  } catch (const std::bad_alloc&) {
    throw ConfigurationFault(fmt::format("{}: not enough memory for its contents; {}", options.source, wanted));
  }
  const MicroBatchTimes recorded = report.recorded.view();
  report.serial_s = options.serial_s.value_or(report.recorded.serial_s.value_or(0));
  std::tie(report.step_s, report.worker_s) = mean_times(recorded);
  const auto [shortest, longest] = std::ranges::minmax(report.recorded.times);
  constexpr double rounding = 1e-9;
  report.is_equal = longest - shortest <= rounding * longest;
  const std::vector<double> grid = threshold_grid(recorded);
  constexpr std::tuple<SpeedupForm, const char*, const char*> ways[] = {
      {SpeedupForm::throughput, "throughput", "micro-batches per time over all steps"},
      {SpeedupForm::effective, "s-eff", "Eq. 6"},
      {SpeedupForm::reference, "reference", "the reference code"},
  };
  for (const auto& [form, name, sentence] : ways)
    report.ways.push_back({.name = name,
                           .sentence = sentence,
                           .effects = threshold_effects(recorded, report.serial_s, form, grid),
                           .best = search_threshold(recorded, report.serial_s, form, options.maximum_drop_rate)});
  report.droppers = largest_droppers(recorded, grid);
  for (ThresholdReport::Way& way : report.ways)
    way.dropper_of_best = largest_droppers(recorded, std::span(&way.best.threshold, 1)).front();
  report.recorded.times = {};
  return report;
}

}  // namespace

Action prepare_thresholds(const ThresholdsOptions& options) {
  for (const std::string& file : {options.json, options.csv})
    if (const std::string why = file.empty() ? "" : why_not_replaceable(file); !why.empty())
      throw ConfigurationFault(fmt::format("{}: cannot be written: {}", file, why));
  return [report = report_thresholds(options), json = options.json, csv = options.csv] {
    standard_output.write(printable_lines(threshold_table(report)));
    if (!json.empty()) replace_named_file(json, thresholds_json(report));
    if (!csv.empty()) replace_named_file(csv, thresholds_csv(report));
  };
}

}  // namespace syncopate
