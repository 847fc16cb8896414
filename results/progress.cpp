#include "results/progress.hpp"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>

#include "workers/base/terminal_text.hpp"

namespace syncopate {

namespace {

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// Cuts the text before the first part that does not fit, unless less than half of the line would remain.
std::string fit(std::string text, std::size_t width) {
  if (text.size() < width) return text;
  for (const char* const between : {", ", " "})
    if (const std::size_t end = text.rfind(between, width - 1); end != text.npos && end > width / 2)
      return text.substr(0, end);
  text.resize(width - 1);
  // Does not leave half of a multi-byte character.
  while (!text.empty() && (static_cast<unsigned char>(text.back()) & 0x80) != 0) text.pop_back();
  return text;
}

// The accuracy and loss for a progress line. Trials are chosen by the validation samples, so their lines do not show
// results on the test set.
std::string quality(const Run& run, const Evaluation& evaluation) {
  const bool validated = run.is_trial && !std::isnan(evaluation.validation_loss);
  const double accuracy = validated ? evaluation.validation_accuracy : evaluation.test_accuracy;
  const double loss = validated ? evaluation.validation_loss : evaluation.test_loss;
  const char* const of = validated ? "validation " : "";
  std::string text;
  if (!std::isnan(accuracy)) text += fmt::format(", {}accuracy {} %", of, with_decimals(accuracy * 100, 2));
  return text + fmt::format(", {}loss {}", text.empty() ? of : "", shown_number(loss));
}

std::string quality(const Run& run, const RunSummary& summary) {
  if (!summary.final_test_loss) return {};
  constexpr double nan = std::numeric_limits<double>::quiet_NaN();
  return quality(run, {.test_loss = *summary.final_test_loss,
                       .test_accuracy = summary.final_test_accuracy.value_or(nan),
                       .validation_loss = summary.final_validation_loss.value_or(nan),
                       .validation_accuracy = summary.final_validation_accuracy.value_or(nan)});
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

std::size_t terminal_columns(int descriptor) {
  winsize size{};
  return isatty(descriptor) && ioctl(descriptor, TIOCGWINSZ, &size) == 0 ? size.ws_col : 0;
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
    : style_(style), runs_(runs), clock_(std::move(clock)), all_(static_cast<double>(to_do)), clears_line_([style] {
        if (style == Style::terminal) standard_error.write("\r\x1b[K");  // so other messages begin on an empty line
      }) {}

Progress::~Progress() { clear_line(); }

void Progress::expect(std::map<std::string, double> host_s) {
  double sum = 0;
  for (const auto& [hash, seconds] : host_s) sum += seconds;
  if (!(sum > 0)) return;
  expected_s_ = std::move(host_s);
  all_ = sum;
}

double Progress::work(const Run& run) const {
  if (expected_s_.empty()) return 1;
  const auto found = expected_s_.find(run.hash);
  return found == expected_s_.end() ? 0 : found->second;
}

std::string Progress::noun() const { return is_common_phase_ ? "before run" : run_->is_trial ? "trial" : "run"; }

double Progress::work() const { return is_common_phase_ ? work_of_common_phase(*run_) : work(*run_); }

void Progress::begin(std::size_t number, const Run& run, bool is_common_phase) {
  is_common_phase_ = is_common_phase;
  number_ = number;
  run_ = &run;
  run_start_ = HostClock::now();
  next_ = run_start_;
  if (style_ != Style::lines) return;
  if (!listener_) next_ += interval_;
  next_line_ = run_start_ + interval_;
  note(fmt::format("{} {} of {}: {}: begins", noun(), number_, runs_, label_with_seed(*run_)));
}

bool Progress::due() {
  if (style_ == Style::silent && !listener_) return false;
  const auto now = HostClock::now();
  if (now < next_) return false;
  next_ = now + (listener_ ? std::min<std::chrono::milliseconds>(interval_, std::chrono::seconds(1)) : interval_);
  return true;
}

// The remaining time, by the speed so far in host seconds per expected second. To give an estimate from the beginning,
// ten seconds of work are counted as if they had gone as expected. If the work is faster than expected, these are ten
// expected seconds. If it is slower, they are ten seconds of the host, because a far too short expectation would
// otherwise outweigh minutes of work.
std::string Progress::remaining_text(double under_way) const {
  constexpr double weight_of_plan_s = 10;
  const double plan_s = expected_s_.empty() ? 0 : std::min(all_, weight_of_plan_s);
  const double done = done_ + under_way, spent = seconds_since(start_);
  if (done + plan_s <= 0) return "?";
  const bool is_slower = plan_s > 0 && done > 0 && spent > done;
  const double pace =
      is_slower ? (spent * spent / done + plan_s) / (spent + plan_s) : (spent + plan_s) / (done + plan_s);
  return clock_text(pace * (all_ - done));
}

// The share comes first, because a line that is too long loses its end.
void Progress::show(const RunPosition& position) {
  const double share = share_done(run_->budget, position);
  if (listener_) listener_(share);
  if (style_ == Style::silent) return;
  if (listener_ && style_ == Style::lines) {
    if (HostClock::now() < next_line_) return;
    next_line_ = HostClock::now() + interval_;
  }
  const std::string done = fmt::format("{:.0f} %, {} left", std::floor(share * 100), remaining_text(share * work()));
  const std::string at =
      fmt::format("{} s {}, {} host{}, {} syncs", shown_number(to_seconds(position.reached.time)), clock_,
                  clock_text(seconds_since(run_start_)), position.latest ? quality(*run_, *position.latest) : "",
                  position.synchronisations);
  if (style_ == Style::lines)
    return note(fmt::format("{} {} of {}: {}: {}, {}", noun(), number_, runs_, label_with_seed(*run_), done, at));
  rewrite_line(fmt::format("{} {}/{}: {}: {}, {}", noun(), number_, runs_, done, label_with_seed(*run_), at));
}

std::string Progress::ended_text(const Run& run, const RunSummary& summary) const {
  // A failed run's last record may be much earlier than its failure. The time of the failure is in the reason.
  const char* const until = summary.status == RunStatus::failed ? ", recorded until" : " after";
  return fmt::format("{}: {}{} {} s {}, {} s host{}", label_with_seed(run), to_string(summary.status), until,
                     shown_number(summary.end_time_s), clock_, shown_number(summary.host_s, 3), quality(run, summary));
}

void Progress::end_elsewhere(std::size_t number, const Run& run, const RunSummary& summary, bool is_shown) {
  done_ += work(run);
  if (is_shown)
    note(fmt::format("{} {} of {}: {}", run.is_trial ? "trial" : "run", number, runs_, ended_text(run, summary)));
}

void Progress::show_elsewhere(std::size_t ended, std::span<const Elsewhere> under_way) {
  if (!due() || style_ == Style::silent) return;
  double part = 0;
  std::string each;
  for (const auto& [run, share, is_common_phase] : under_way) {
    part += share * (is_common_phase ? work_of_common_phase(*run) : work(*run));
    each += fmt::format("{}{} {:.0f} %", each.empty() ? ": " : ", ", label_with_seed(*run), std::floor(share * 100));
  }
  const std::string text = fmt::format("{} of {} ended, {} left, {} under way{}", ended, runs_, remaining_text(part),
                                       under_way.size(), each);
  if (style_ == Style::lines) return note(text);
  rewrite_line(text);
}

void Progress::rewrite_line(const std::string& text) {
  const std::size_t columns = terminal_columns(STDERR_FILENO);  // a longer line would wrap, and could not be rewritten
  standard_error.write(fmt::format("\r\x1b[K{}", fit(printable(text), columns > 0 ? columns : 80)));
  line_shown_ = true;
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

}  // namespace syncopate
