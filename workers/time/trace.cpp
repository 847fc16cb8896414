#include "workers/time/trace.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <new>
#include <numeric>
#include <sstream>
#include <system_error>
#include <tuple>
#include <utility>

#include "workers/base/process.hpp"
#include "workers/base/terminal_text.hpp"

namespace syncopate {

namespace {

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view blanks = " \t\r";
  const auto first = text.find_first_not_of(blanks);
  if (first == text.npos) return {};
  return text.substr(first, text.find_last_not_of(blanks) - first + 1);
}

constexpr std::size_t longest_shown = 80;

// A value of a table as faults show it.
std::string_view shown_value(std::string_view value) {
  return value.empty() ? "nothing" : value.substr(0, longest_shown);
}

constexpr std::string_view byte_order_mark = "\xef\xbb\xbf";

constexpr std::int64_t most_steps = 1'000'000'000;
constexpr std::int64_t most_micro_batches = 1 << 24;

// Mean and variance of a series in one pass; NaN for an empty series.
class RunningMoments {
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

constexpr std::uint8_t stream_of_base = 255;                        // entries of [[delays]] have smaller numbers
constexpr std::uint32_t number_of_begin = 0, number_of_worker = 1;  // indices in a block's stream

// Returns a random number from 0 to count - 1.
std::int64_t drawn(const RandomStream& stream, std::uint32_t number, std::int64_t count) {
  return static_cast<std::int64_t>(stream.uniform(number) * static_cast<double>(count));
}

class TraceDelay final : public DelayProcess {
 public:
  TraceDelay(std::shared_ptr<const Trace> trace, TraceReplay replay)
      : trace_(std::move(trace)), replay_(std::move(replay)) {}

  void add(const RandomStream& stream, std::uint32_t first, std::span<double> added_s) const override {
    while (!added_s.empty()) {
      const auto recorded_s = find(stream, first, added_s.size());
      if (recorded_s.empty()) fail_for_missing(stream, first);
      for (std::size_t i = 0; i < recorded_s.size(); ++i) added_s[i] += replay_.scale * recorded_s[i] + replay_.shift_s;
      added_s = added_s.subspan(recorded_s.size());
      first += static_cast<std::uint32_t>(recorded_s.size());
    }
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
    if (replay_.stretch) return minimum_s();  // the worker may follow any recorded worker
    return replay_.scale * trace_->minimum_s(rows_of(worker)) + replay_.shift_s;
  }
  bool can_run_out() const override { return true; }

 private:
  struct RecordedPlace {
    int worker = 0;
    Step step{};
  };
  // The recorded worker that this worker follows, without a stretch.
  int rows_of(Rank worker) const {
    const auto index = static_cast<std::size_t>(worker.value);
    const int rows = index < replay_.rows_of.size() ? replay_.rows_of[index] : worker.value;
    if (rows >= trace_->workers())
      throw RunFailure(fmt::format(
          "the trace {} has only workers 0 to {}, and worker {} follows none of them; set `like` or `stretch`",
          trace_->file(), trace_->workers() - 1, worker.value));
    return rows;
  }
  Step recorded(const RandomStream& stream) const {
    const Step::Rep steps = trace_->steps().value(), step = stream.step.value();
    if (step < steps) return step;
    if (replay_.end == TraceEnd::wrap) return step % steps;
    throw RunFailure(
        fmt::format("worker {}, step {}: the trace {} ends after {} steps; set end = \"wrap\" to start "
                    "it again, or a budget of at most {} steps",
                    stream.worker.value, step, trace_->file(), steps, steps));
  }
  std::span<const double> find(const RandomStream& stream, std::uint32_t first, std::size_t most) const {
    RecordedPlace place = place_of(stream);
    if (const auto in_step = static_cast<std::uint32_t>(trace_->micro_batches());
        replay_.stretch && replay_.stretch->continues && first >= in_step) {
      place.step = Step{(place.step.value() + first / in_step) % trace_->steps().value()};
      first %= in_step;
    }
    return trace_->durations_s(place.worker, place.step, first, most);
  }
  // The recorded worker and step that the stream's worker follows in the stream's step.
  RecordedPlace place_of(const RandomStream& stream) const {
    if (!replay_.stretch) return {rows_of(stream.worker), recorded(stream)};
    RandomStream draws = draws_of(stream, block_of(stream));
    if (replay_.stretch->together) draws.worker = Rank{0};
    const Step::Rep steps = trace_->steps().value(), begin = drawn(draws, number_of_begin, steps);
    const Step::Rep within = stream.step.value() % replay_.stretch->block_steps.value();
    return {followed_worker(stream), Step{(begin + within) % steps}};
  }
  // With a stretch: the recorded worker that this worker follows in this step. If it is drawn, all recorded workers are
  // equally likely; without redraw_worker it is the same in all steps.
  int followed_worker(const RandomStream& stream) const {
    if (replay_.stretch->own_worker) return stream.worker.value;
    const Step block = replay_.stretch->redraw_worker ? block_of(stream) : Step{0};
    return static_cast<int>(drawn(draws_of(stream, block), number_of_worker, trace_->workers()));
  }
  Step block_of(const RandomStream& stream) const { return stream.step.value() / replay_.stretch->block_steps.value(); }
  RandomStream draws_of(const RandomStream& stream, Step block) const {
    return {.seed = stream.seed,
            .purpose = Purpose::trace_block,
            .stream = replay_.stretch->is_base ? stream_of_base : stream.stream,
            .worker = stream.worker,
            .step = block};
  }
  StepLaw recorded_law(const RandomStream& stream, int micro_batches) const {
    if (!replay_.stretch) return trace_->step_law(rows_of(stream.worker), micro_batches);
    if (!replay_.stretch->redraw_worker) return trace_->step_law(followed_worker(stream), micro_batches);
    return law_of_any_worker(micro_batches);
  }
  // All recorded workers are equally likely, so the variance of the mixture includes that of their means.
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
        beyond ? fmt::format("its steps have at most {} micro-batches{}", trace_->micro_batches(),
                             replay_.stretch
                                 ? "; set stretch.beyond = \"next-steps\" to use times of the next recorded steps"
                                 : "")
               : "the recorded run has probably dropped it; use a recording of a run that drops nothing"));
  }

  std::shared_ptr<const Trace> trace_;
  TraceReplay replay_;
};

std::optional<int> as_rank(const std::string& key, int workers) {
  int rank = -1;
  std::from_chars(key.data(), key.data() + key.size(), rank);
  return rank >= 0 && rank < workers && std::to_string(rank) == key ? std::optional(rank) : std::nullopt;
}

constexpr std::int64_t most_block_steps = 1'000'000'000;

TraceStretch read_stretch(Settings& table, std::optional<Step> recorded) {
  TraceStretch stretch;
  Settings keys = table.section(
      {"stretch", "Extends the recording to any number of workers and steps, by drawing blocks of steps."});
  stretch.block_steps = keys.integer({"block_steps", "Number of consecutive recorded steps in a block.", "steps"}, 1,
                                     recorded ? Stated<std::int64_t>(recorded->value())
                                              : Stated<std::int64_t>(most_block_steps, "the recorded steps"));
  stretch.redraw_worker = keys.flag(
      {"redraw_worker", "Whether each block draws a recorded worker; false: a worker always follows the same one."},
      false);
  stretch.own_worker =
      keys.choice({"worker", "Which recorded worker a worker follows: a drawn one, or the one with its own number."},
                  {{"drawn", false}, {"own", true}}, false);
  if (!keys.has("worker")) keys.leave_out("worker");  // runs from before this key keep their hashes
  if (stretch.own_worker && stretch.redraw_worker) keys.fault("worker", "must be \"drawn\" with redraw_worker = true");
  stretch.together = keys.flag(
      {"together",
       "Whether all workers take the same recorded steps at the same time, each from its own recorded worker."},
      false);
  stretch.continues = keys.choice(
      {"beyond", "If a step has more micro-batches than recorded: a failure, or times of the next recorded steps."},
      {{"error", false}, {"next-steps", true}}, false);
  if (!stretch.continues) keys.leave_out("beyond");  // runs from before this key keep their hashes
  return stretch;
}

void check_micro_batches(Settings& table, const Trace& trace, int micro_batches) {
  if (micro_batches > trace.micro_batches())
    table.fault("file", fmt::format("the trace has {} micro-batches per step, fewer than cluster.micro_batches = {}; "
                                    "lower that",
                                    trace.micro_batches(), micro_batches));
}

}  // namespace

CsvRows::CsvRows(const std::string& file, std::string_view content, std::vector<CsvColumn> columns)
    : file_(file), text_(content, file), wanted_(std::move(columns)) {
  for (const CsvColumn& column : wanted_) values_.push_back(column.otherwise.value_or(0));
  lines_.exceptions(std::ios::badbit);  // passes on what TableText throws
  if (const std::string form = foreign_form(text_.begin()); !form.empty())
    fault_at(1, fmt::format("the file is {}; must be comma-separated values in UTF-8", form));
  check();
  if (text_.begin().starts_with(byte_order_mark)) lines_.ignore(byte_order_mark.size());
  if (!next_line()) {
    fault_at(1, "the file is empty; must have a header");
    check();
  }
  columns_ = cells_.size();
  for (const CsvColumn& column : wanted_) find_column(column);
  check();
}

void CsvRows::find_column(const CsvColumn& column) {
  const auto found = std::ranges::find(cells_, column.name);
  const bool is_there = found != cells_.end();
  positions_.push_back(is_there ? std::optional(static_cast<std::size_t>(found - cells_.begin())) : std::nullopt);
  if (std::ranges::count(cells_, column.name) > 1) fault(fmt::format("the column {} occurs twice", column.name));
  if (is_there || column.otherwise) return;
  const bool readable = std::ranges::all_of(row_, [](unsigned char c) { return c >= 0x20 && c < 0x7f; });
  std::string hint;
  if (readable && !row_.empty()) hint = fmt::format("; the header is {}", row_.substr(0, longest_shown));
  for (const auto& [separator, name] : {std::pair{';', "semicolons"}, std::pair{'\t', "tabs"}})
    if (columns_ == 1 && row_.find(separator) != row_.npos)
      hint = fmt::format("; the header separates columns by {}; must use commas, and decimal points in numbers", name);
  fault(fmt::format("the column {} is missing{}", column.name, hint));
}

bool CsvRows::next_line() {
  while (std::getline(lines_, text_of_line_)) {
    ++line_;
    row_ = trimmed(text_of_line_);
    if (row_.empty() || row_.front() == '#') continue;
    split_row();
    return true;
  }
  return false;
}

// Removes quotation marks around a value; a mark inside stays doubled.
void CsvRows::split_row() {
  cells_.clear();
  is_left_open_ = false;
  const bool has_quotes = row_.find('"') != row_.npos;
  for (std::size_t begin = 0, end = 0; end < row_.size(); begin = end + 1) {
    end = row_.find(',', begin);
    if (has_quotes && trimmed(row_.substr(begin)).starts_with('"'))  // two marks in a row cancel
      for (end = begin; end < row_.size() && (is_left_open_ || row_[end] != ','); ++end)
        if (row_[end] == '"') is_left_open_ = !is_left_open_;
    end = std::min(end, row_.size());
    std::string_view value = trimmed(row_.substr(begin, end - begin));
    if (has_quotes && value.size() > 1 && value.front() == '"' && value.back() == '"')
      value = trimmed(value.substr(1, value.size() - 2));
    cells_.push_back(value);
  }
}

std::string_view CsvRows::text(std::size_t column) const {
  const auto position = positions_[column];
  return position && *position < cells_.size() ? cells_[*position] : std::string_view();
}

bool CsvRows::read_value(std::size_t column) {
  if (!positions_[column]) return true;  // the value is the default
  const std::string_view value = text(column);
  const auto [end, problem] = std::from_chars(value.data(), value.data() + value.size(), values_[column]);
  if (problem == std::errc() && end == value.data() + value.size() && std::isfinite(values_[column])) return true;
  if (wanted_[column].takes_text) {
    values_[column] = std::nan("");
    return true;
  }
  const bool has_comma = value.find(',') != value.npos;
  fault(fmt::format("{} = {}; must be a finite number{}", wanted_[column].name, shown_value(value),
                    has_comma ? ", with a decimal point and without thousands separators" : ""));
  return false;
}

bool CsvRows::next() {
  while (next_line()) {
    if (is_left_open_) {
      fault("a quotation mark is not closed; must be closed in the same line");
      continue;
    }
    bool right = cells_.size() <= columns_;
    if (!right)
      fault(fmt::format("there are {} values for {} columns; a number must not contain a comma", cells_.size(),
                        columns_));
    for (std::size_t column = 0; column < values_.size(); ++column) right = read_value(column) && right;
    if (right) return true;
  }
  return false;
}

std::optional<std::int64_t> CsvRows::integer(std::size_t column, std::int64_t most) {
  const double value = values_[column];
  if (value >= 0 && value <= static_cast<double>(most) && value == std::floor(value))
    return static_cast<std::int64_t>(value);
  fault(fmt::format("{} = {}; must be an integer from 0 to {}", wanted_[column].name, shown_value(text(column)), most));
  return std::nullopt;
}

void CsvRows::fault_at(std::int64_t line, const std::string& what) {
  constexpr std::size_t most = 20;
  if (faults_.size() == most)
    ++faults_left_out_;
  else
    faults_.push_back(fmt::format("{}:{}: {}", file_, line, what));
}

void CsvRows::check() const {
  if (faults_.empty()) return;
  std::string all = fmt::format("{}", fmt::join(faults_, "\n"));
  if (faults_left_out_ > 0) all += fmt::format("\n{}: {} more faults", file_, faults_left_out_);
  throw FileFault(all);
}

const EmbeddedFile* recording_named(std::string_view name) {
  const auto recordings = embedded_recordings();
  const auto found = std::ranges::find(recordings, name, &EmbeddedFile::name);
  return found == recordings.end() ? nullptr : &*found;
}

std::optional<DataFile> find_data_file(Settings& settings) {
  const Key key{"file",
                "Path of a file, relative to the experiment file or the working directory; or a built-in recording."};
  const EmbeddedFile* const recording = recording_named(settings.word("file").value_or(""));
  std::vector<std::string> names;
  for (const EmbeddedFile& file : embedded_recordings()) names.emplace_back(file.name);
  const std::filesystem::path path = recording ? std::filesystem::path(settings.text(key)) : settings.file(key, names);
  const Key hash{"file_hash",
                 "Digest of the file's content, written by the program; the content must still have this digest.", "",
                 "any content"};
  static_cast<void>(settings.has(hash));  // makes the key known even if there is no file
  if (path.empty()) return std::nullopt;
  std::optional<DataFile> file;
  read_or_report(settings, path, [&] {
    std::string content = recording ? std::string(recording->content) : file_content(path);
    std::string digest = content_hash(content);
    if (settings.text("file_hash", digest) != digest)
      settings.fault("file_hash",
                     fmt::format("the content of {} has the digest {}; leave the key out to accept any content",
                                 path.string(), digest));
    file = {.name = path.string(), .content = std::move(content), .hash = std::move(digest)};
  });
  return file;
}

void read_or_report(Settings& settings, const std::filesystem::path& file, const std::function<void()>& read) {
  try {
    read();
  } catch (const FileFault& problem) {
    std::istringstream lines(problem.what());
    for (std::string line; std::getline(lines, line);) settings.fault("file", line);
  } catch (const std::bad_alloc&) {
    std::error_code ignored;
    settings.fault("file", fmt::format("the memory does not suffice for the content of {}, which has {} bytes",
                                       file.string(), std::filesystem::file_size(file, ignored)));
  }
}

std::string file_content(const std::filesystem::path& file) {
  std::error_code ignored;
  if (std::filesystem::is_directory(file, ignored))
    throw FileFault(fmt::format("{}: is a directory; must be a file", file.string()));
  const std::uintmax_t bytes = std::filesystem::file_size(file, ignored);
  if (!ignored && bytes > most_text_bytes)
    throw FileFault(fmt::format("{}: has {} bytes; must be at most {}", file.string(), bytes, most_text_bytes));
  try {
    return whole_file(file, most_text_bytes);
  } catch (const std::system_error& problem) {
    throw FileFault(fmt::format("{}: cannot be read: {}", file.string(), problem.code().message()));
  }
}

TableText::TableText(std::string_view content, std::string file, std::uint64_t most_bytes)
    : content_(content), file_(std::move(file)), most_bytes_(most_bytes), piece_(1 << 18), stream_([this] {
        constexpr std::size_t compressed_bytes = 1 << 16;
        const std::string_view piece = content_.substr(taken_, compressed_bytes);
        taken_ += piece.size();
        return piece;
      }) {}

std::string_view TableText::begin() {
  sgetc();
  return {gptr(), egptr()};
}

TableText::int_type TableText::underflow() {
  // Even a table of equal durations does not compress to less than about a tenth.
  constexpr std::size_t most_times = 100, from_bytes = 64'000'000;
  throw_if_interrupted();
  try {
    const std::size_t got = stream_.read(piece_.data(), piece_.size());
    if (got > most_bytes_ - unpacked_)
      throw FileFault(fmt::format("{}: unpacks to more than {} bytes, the maximum for a table", file_, most_bytes_));
    unpacked_ += got;
    if (unpacked_ > from_bytes && unpacked_ / most_times > taken_)
      throw FileFault(
          fmt::format("{}: unpacks to more than {} times its size; a table of numbers does not", file_, most_times));
    setg(piece_.data(), piece_.data(), piece_.data() + got);
    return got == 0 ? traits_type::eof() : traits_type::to_int_type(piece_.front());
  } catch (const GzipFault& problem) {
    throw FileFault(fmt::format("{}: {}", file_, problem.what()));
  }
}

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
  if (rows.empty()) csv.fault("there are no rows after the header");
  const auto place = [](const Row& row) { return std::tie(row.worker, row.step, row.micro_batch); };
  std::ranges::stable_sort(rows, {}, place);
  for (auto row = rows.begin(); row != rows.end() && std::next(row) != rows.end(); ++row)
    if (place(*row) == place(*std::next(row)))
      csv.fault_at(std::next(row)->line,
                   has_micro_batches
                       ? fmt::format("worker {}, step {}, micro-batch {} is already in line {}", row->worker, row->step,
                                     row->micro_batch, row->line)
                       : fmt::format("worker {}, step {} is already in line {}; several rows of one step need a "
                                     "column micro_batch that numbers them from 0",
                                     row->worker, row->step, row->line));

  // Checks that workers and steps are numbered from 0 without gaps.
  std::int64_t next_worker = 0;
  for (const Row& row : rows) {
    if (row.worker > next_worker)
      csv.fault_at(row.line, fmt::format("worker = {}; there is no worker {}", row.worker, next_worker));
    next_worker = row.worker + 1;
  }
  std::vector<std::pair<std::int32_t, std::uint32_t>> steps;  // with their lines
  for (const Row& row : rows) steps.emplace_back(row.step, row.line);
  std::ranges::sort(steps);
  std::int64_t next_step = 0;
  for (const auto& [step, line] : steps) {
    if (step > next_step) csv.fault_at(line, fmt::format("step = {}; there is no step {}", step, next_step));
    next_step = step + 1;
  }
  constexpr std::int64_t most_empty = 64;
  if (next_worker * next_step > most_empty * std::ssize(rows))
    csv.fault(fmt::format("there are only {} rows for {} workers and {} steps; most rows are missing", rows.size(),
                          next_worker, next_step));
  csv.check();

  workers_ = static_cast<int>(next_worker);
  steps_ = next_step;
  minima_s_.assign(static_cast<std::size_t>(workers_), std::numeric_limits<double>::infinity());
  begin_.reserve(static_cast<std::size_t>(next_worker * next_step) + 1);
  RunningMoments moments;
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
  // If no row is missing, micro-batch m is in row m.
  std::size_t at = first;
  if (at >= numbers.size() || numbers[at] != first)
    at = static_cast<std::size_t>(std::ranges::lower_bound(numbers, first) - numbers.begin());
  std::size_t count = 0;
  while (count < most && at + count < numbers.size() && numbers[at + count] == first + count) ++count;
  return std::span(durations_s_).subspan(begin + at, count);
}

StepLaw Trace::step_law(int worker, int micro_batches) const {
  RunningMoments sums;
  for (Step step = 0; step < steps_; ++step) {
    const auto durations = durations_s(worker, step, 0, static_cast<std::size_t>(micro_batches));
    if (std::ssize(durations) < micro_batches) continue;
    sums.add(std::accumulate(durations.begin(), durations.end(), 0.0));
  }
  return sums.law();
}

std::string Trace::note_on_holes(int micro_batches) const {
  std::int64_t holes = 0;
  std::string first;
  for (int worker = 0; worker < workers_; ++worker)
    for (Step step = 0; step < steps_; ++step) {
      const auto found = durations_s(worker, step, 0, static_cast<std::size_t>(micro_batches)).size();
      if (found == static_cast<std::size_t>(micro_batches)) continue;
      if (holes++ == 0) first = fmt::format("micro-batch {} of step {} of worker {}", found, step.value(), worker);
    }
  if (holes == 0) return "";
  return fmt::format("{}: {} of {} steps of its workers lack a duration, first {}; a run that needs one of them fails",
                     file_, holes, workers_ * steps_.value(), first);
}

std::shared_ptr<const DelayProcess> trace_delay(std::shared_ptr<const Trace> trace, TraceReplay replay) {
  return std::make_shared<TraceDelay>(std::move(trace), std::move(replay));
}

std::shared_ptr<const Trace> read_trace(Settings& table, TraceReplay& replay, std::vector<TraceLimit>& limits) {
  auto trace = read_data_file<Trace>(table);
  if (table.has("stretch")) {
    const std::size_t faults = table.faults_so_far();
    replay.stretch = read_stretch(table, trace ? std::optional(trace->steps()) : std::nullopt);
    replay.end = TraceEnd::wrap;
    if (table.has("end"))
      table.fault("end", "must be left out with stretch, which draws blocks for as long as the run lasts");
    if (!trace || table.faults_so_far() > faults) return nullptr;
    limits.push_back({table, trace, replay.stretch->own_worker ? trace->workers() : most_workers, replay.end});
    return trace;
  }
  const auto written = table.choice<TraceEnd>(
      {"end", "What follows the last recorded step: a failure, the end of the run, or the first step again."},
      {{"error", TraceEnd::error}, {"stop", TraceEnd::stop}, {"wrap", TraceEnd::wrap}});
  replay.end = written.value_or(TraceEnd::error);
  if (trace && written) limits.push_back({table, trace, trace->workers(), replay.end});
  return trace;
}

std::shared_ptr<const DelayProcess> read_base_trace(Settings& table, int workers, int micro_batches,
                                                    std::vector<TraceLimit>& limits) {
  TraceReplay replay;
  const auto trace = read_trace(table, replay, limits);
  if (replay.stretch) {
    if (table.has("like"))
      table.fault("like", "must be left out with stretch, which draws a recorded worker for each worker");
    if (!trace || workers == 0) return nullptr;
    check_micro_batches(table, *trace, micro_batches);
    if (replay.stretch->own_worker && workers > trace->workers())
      table.section({"stretch"})
          .fault("worker", fmt::format("must be \"drawn\": the trace has {} workers, fewer than "
                                       "cluster.workers = {}",
                                       trace->workers(), workers));
    replay.stretch->is_base = true;
    return trace_delay(trace, std::move(replay));
  }
  Settings like = table.section(
      {"like", "Workers that follow other workers' rows: with { \"3\" = 0 } worker 3 follows worker 0's rows."});
  const std::vector<std::string> keys = like.keys();
  if (!trace || workers == 0) {
    for (const std::string& key : keys) static_cast<void>(like.has(key));
    return nullptr;
  }
  replay.rows_of.resize(static_cast<std::size_t>(workers));
  std::iota(replay.rows_of.begin(), replay.rows_of.end(), 0);
  for (const std::string& key : keys) {
    const auto follower = as_rank(key, workers);
    const auto rows = like.integer(key, 0, trace->workers() - 1);
    if (follower) replay.rows_of[static_cast<std::size_t>(*follower)] = static_cast<int>(rows);
    if (!follower) like.fault(key, fmt::format("the key must be a worker from 0 to {}", workers - 1));
  }
  const auto without = std::ranges::find_if(replay.rows_of, [&](int rows) { return rows >= trace->workers(); });
  if (without != replay.rows_of.end()) {
    table.fault(
        "file",
        fmt::format("worker {} of {} has no rows, because the trace has {} workers; let it follow another worker, "
                    "like = {{ \"{}\" = 0 }}, or draw rows for all workers, stretch = {{ block_steps = 50 }}",
                    *without, workers, trace->workers(), *without));
    return nullptr;
  }
  check_micro_batches(table, *trace, micro_batches);
  return trace_delay(trace, std::move(replay));
}

}  // namespace syncopate
