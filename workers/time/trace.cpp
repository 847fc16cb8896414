#include "workers/delays/trace.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <tuple>
#include <utility>

#include "workers/delays/csv_rows.hpp"
#include "workers/delays/limits.hpp"

namespace syncopate {
namespace {

constexpr std::int64_t most_steps = 1'000'000'000;
constexpr std::int64_t most_micro_batches = 1 << 24;

// Mean and variance of a series, in one pass.
class Moments {
 public:
  void add(double value) {
    const double before = value - mean_;
    mean_ += before / static_cast<double>(++count_);
    squares_ += before * (value - mean_);
  }
  StepLaw law() const {
    if (count_ == 0) return {std::nan(""), std::nan("")};
    return {mean_, squares_ / static_cast<double>(count_)};
  }

 private:
  std::int64_t count_ = 0;
  double mean_ = 0;
  double squares_ = 0;
};

}  // namespace

Trace::Trace(std::string file, std::string_view content) : file_(std::move(file)) {
  CsvRows csv(file_, content, {"worker", "step", {"micro_batch", 0}, "duration_s"});
  const bool has_micro_batches = csv.has_column("micro_batch");
  std::vector<Row> rows;
  while (csv.next()) {
    const auto worker = csv.integer(0, most_workers), step = csv.integer(1, most_steps),
               micro_batch = csv.integer(2, most_micro_batches);
    if (csv.number(3) < 0) csv.fault(fmt::format("duration_s = {}; must be at least 0", csv.number(3)));
    if (csv.number(3) > longest_delay)
      csv.fault(fmt::format("duration_s = {}; must be at most {}", csv.number(3), longest_delay));
    if (worker && step && micro_batch)
      rows.push_back({.worker = static_cast<std::int32_t>(*worker),
                      .step = static_cast<std::int32_t>(*step),
                      .micro_batch = static_cast<std::int32_t>(*micro_batch),
                      .line = static_cast<std::uint32_t>(csv.line()),
                      .duration_s = csv.number(3)});
  }
  csv.check();
  if (rows.empty()) csv.fault("there are no rows below the header");
  const auto place = [](const Row& row) { return std::tie(row.worker, row.step, row.micro_batch); };
  std::ranges::stable_sort(rows, {}, place);
  for (auto row = rows.begin(); row != rows.end() && std::next(row) != rows.end(); ++row)
    if (place(*row) == place(*std::next(row)))
      csv.fault_at(std::next(row)->line,
                   has_micro_batches
                       ? fmt::format("worker {}, step {}, micro-batch {} stands in line {} already", row->worker,
                                     row->step, row->micro_batch, row->line)
                       : fmt::format("worker {}, step {} stands in line {} already; several rows of a step need a "
                                     "column micro_batch, which numbers them from 0",
                                     row->worker, row->step, row->line));

  // A number that none below has brought is a wrong one, or rows are missing altogether.
  std::int64_t next_worker = 0;
  for (const Row& row : rows) {
    if (row.worker > next_worker)
      csv.fault_at(row.line, fmt::format("worker = {}; there is no worker {}", row.worker, next_worker));
    next_worker = row.worker + 1;
  }
  std::vector<std::pair<std::int32_t, std::uint32_t>> steps;  // and their lines
  for (const Row& row : rows) steps.emplace_back(row.step, row.line);
  std::ranges::sort(steps);
  std::int64_t next_step = 0;
  for (const auto& [step, line] : steps) {
    if (step > next_step) csv.fault_at(line, fmt::format("step = {}; there is no step {}", step, next_step));
    next_step = step + 1;
  }
  constexpr std::int64_t most_empty = 64;
  if (next_worker * next_step > most_empty * std::ssize(rows))
    csv.fault(
        fmt::format("{} rows for {} workers and {} steps: most are missing", rows.size(), next_worker, next_step));
  csv.check();

  workers_ = static_cast<int>(next_worker);
  steps_ = next_step;
  minima_s_.assign(static_cast<std::size_t>(workers_), std::numeric_limits<double>::infinity());
  begin_.reserve(static_cast<std::size_t>(next_worker * next_step) + 1);
  Moments moments;
  for (const Row& row : rows) {
    const std::size_t own = step_of(row.worker, row.step);
    while (begin_.size() <= own) begin_.push_back(durations_s_.size());
    numbers_.push_back(static_cast<std::uint32_t>(row.micro_batch));
    durations_s_.push_back(row.duration_s);
    micro_batches_ = std::max(micro_batches_, row.micro_batch + 1);
    double& minimum_s = minima_s_[static_cast<std::size_t>(row.worker)];
    minimum_s = std::min(minimum_s, row.duration_s);
    moments.add(row.duration_s);
  }
  begin_.resize(static_cast<std::size_t>(next_worker * next_step) + 1, durations_s_.size());
  law_ = moments.law();
}

double Trace::minimum_s() const { return std::ranges::min(minima_s_); }

std::span<const double> Trace::durations_s(int worker, Step step, std::uint32_t first, std::size_t most) const {
  const std::size_t begin = begin_[step_of(worker, step)], end = begin_[step_of(worker, step) + 1];
  const auto numbers = std::span(numbers_).subspan(begin, end - begin);
  // Where no row is missing, micro-batch m is the m-th.
  std::size_t at = first;
  if (at >= numbers.size() || numbers[at] != first)
    at = static_cast<std::size_t>(std::ranges::lower_bound(numbers, first) - numbers.begin());
  std::size_t count = 0;
  while (count < most && at + count < numbers.size() && numbers[at + count] == first + count) ++count;
  return std::span(durations_s_).subspan(begin + at, count);
}

StepLaw Trace::step_law(int worker, int micro_batches) const {
  Moments sums;
  for (Step step = 0; step < steps_; ++step) {
    const auto durations = durations_s(worker, step, 0, static_cast<std::size_t>(micro_batches));
    if (std::ssize(durations) < micro_batches) continue;
    double sum = 0;
    for (const double duration_s : durations) sum += duration_s;
    sums.add(sum);
  }
  return sums.law();
}

}  // namespace syncopate
