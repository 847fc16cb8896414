#include "results/tables/progress.hpp"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "results/formats/not_a_number.hpp"
#include "results/formats/output.hpp"
#include "results/run/run_label.hpp"
#include "workers/process/printable.hpp"

namespace syncopate {
namespace {

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// A line longer than the terminal would wrap and could not be rewritten.
std::size_t terminal_width() {
  winsize size{};
  if (ioctl(STDERR_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return 80;
  return size.ws_col;
}

std::string fit(std::string text, std::size_t width) {
  if (text.size() < width) return text;
  text.resize(width - 1);
  // Not in the middle of a character of several bytes.
  while (!text.empty() && (static_cast<unsigned char>(text.back()) & 0x80) != 0) text.pop_back();
  return text;
}

std::string quality(std::optional<double> accuracy, std::optional<double> loss) {
  std::string text;
  if (accuracy && !std::isnan(*accuracy)) text += fmt::format(", accuracy {:.2f} %", *accuracy * 100);
  if (loss) text += fmt::format(", loss {:.4g}", without_sign_of_nan(*loss));
  return text;
}

std::string quality(const std::optional<Evaluation>& evaluation) {
  return evaluation ? quality(evaluation->test_accuracy, evaluation->test_loss) : std::string{};
}

}  // namespace

double share_done(const Budget& budget, const RunPosition& position) {
  double share = 0;
  const auto reached = [&share](double value, double limit) {
    share = std::max(share, limit > 0 ? value / limit : 1.0);
  };
  const RunPosition::Point& at = position.computed;
  if (budget.steps) reached(static_cast<double>(at.step.value()), static_cast<double>(budget.steps->value()));
  if (budget.seconds) reached(to_seconds(at.time), *budget.seconds);
  if (budget.samples) reached(static_cast<double>(at.samples), static_cast<double>(*budget.samples));
  if (budget.bytes) reached(static_cast<double>(at.bytes.value()), static_cast<double>(budget.bytes->value()));
  return std::clamp(share, 0.0, 1.0);
}

std::string clock_text(double seconds) {
  const auto whole = std::llround(std::max(seconds, 0.0));
  if (whole < 3600) return fmt::format("{}:{:02}", whole / 60, whole % 60);
  return fmt::format("{}:{:02}:{:02}", whole / 3600, whole / 60 % 60, whole % 60);
}

Progress::Style Progress::style_of_stderr(bool quiet) {
  if (quiet) return Style::silent;
  return isatty(STDERR_FILENO) ? Style::terminal : Style::lines;
}

std::chrono::milliseconds Progress::usual_interval(Style style) {
  return style == Style::terminal ? std::chrono::milliseconds(100) : std::chrono::minutes(1);
}

Progress::Progress(Style style, std::size_t runs, std::size_t to_do, std::string clock)
    : style_(style), runs_(runs), to_do_(to_do), clock_(std::move(clock)) {}

Progress::~Progress() { clear_line(); }

void Progress::begin_run(std::size_t number, const Run& run) {
  number_ = number;
  run_ = &run;
  run_start_ = HostClock::now();
  next_ = run_start_;
  if (style_ != Style::lines) return;
  next_ += interval_;
  note(fmt::format("{} {} of {}: {}: begins", noun(), number_, runs_, name()));
}

bool Progress::due() {
  if (style_ == Style::silent) return false;
  const auto now = HostClock::now();
  if (now < next_) return false;
  next_ = now + interval_;
  return true;
}

// Runs of one experiment cost about the same, so those that are done tell about those to come.
std::string Progress::remaining_text(double share) const {
  const double work_done = static_cast<double>(done_) + share;
  if (work_done <= 0) return "?";
  return clock_text(seconds_since(start_) * (static_cast<double>(to_do_) - work_done) / work_done);
}

const char* Progress::noun() const { return run_->is_trial ? "trial" : "run"; }

std::string Progress::name() const {
  return fmt::format("{}, seed {}", run_label(run_->method, run_->sweep), run_->seed);
}

// Of a line that is cut off at the terminal's width, what comes first is seen.
void Progress::show(const RunPosition& position) {
  const double share = share_done(run_->budget, position);
  const std::string done = fmt::format("{:.0f} %, {} left", std::floor(share * 100), remaining_text(share));
  const std::string at =
      fmt::format("{:.4g} s {}, {} host{}, {} syncs", to_seconds(position.reached.time), clock_,
                  clock_text(seconds_since(run_start_)), quality(position.latest), position.synchronisations);
  if (style_ == Style::lines)
    return note(fmt::format("{} {} of {}: {}: {}, {}", noun(), number_, runs_, name(), done, at));
  const std::string text = fmt::format("{} {}/{}: {}: {}, {}", noun(), number_, runs_, done, name(), at);
  standard_error.write(fmt::format("\r\x1b[K{}", fit(printable(text), terminal_width())));
  line_shown_ = true;
}

void Progress::end_run(const RunSummary& summary) {
  ++done_;
  // When a run failed its reason says, by the clock of the worker that it concerns: records may end much earlier.
  const char* const until = summary.status == RunStatus::failed ? ", recorded until" : " after";
  note(fmt::format("{} {} of {}: {}: {}{} {:.4g} s {}, {:.3g} s host{}", noun(), number_, runs_, name(),
                   to_string(summary.status), until, summary.end_time_s, clock_, summary.host_s,
                   quality(summary.final_test_accuracy, summary.final_test_loss)));
}

void Progress::note(const std::string& text) {
  if (style_ == Style::silent) return;
  clear_line();
  standard_error.write(fmt::format("{}\n", printable(text)));
}

void Progress::clear_line() {
  if (!line_shown_) return;
  standard_error.write("\r\x1b[K");
  line_shown_ = false;
}

void Progress::clear_line_at_last() const {
  if (style_ == Style::terminal) standard_error.write("\r\x1b[K");
}

}  // namespace syncopate
