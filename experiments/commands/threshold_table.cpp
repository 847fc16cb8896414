// What `thresholds` prints and writes.
#include <fmt/format.h>

#include <cmath>
#include <cstddef>
#include <iterator>

#include "experiments/commands/thresholds.hpp"
#include "results/formats/json.hpp"
#include "results/tables/text_table.hpp"
#include "workers/process/shown_number.hpp"

namespace syncopate {
namespace {

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
  std::string text = fmt::format("{}: {} workers, {} steps of {} micro-batches", report.source, recorded.workers,
                                 recorded.steps, recorded.micro_batches);
  if (recorded.left_out > 0) text += fmt::format(" ({} others lack some, and are left out)", recorded.left_out);
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

}  // namespace

std::string threshold_table(const ThresholdReport& report) {
  if (report.is_equal) return heading(report) + "All micro-batches take equally long: no threshold gains anything.\n";
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
      text += fmt::format("best by {}: none gains anything\n", way.sentence);
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

}  // namespace syncopate
