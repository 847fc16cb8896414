// Traces: recorded durations, one row per micro-batch of each step of each worker. Also the reader of CSV files.
#pragma once

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <istream>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <stdexcept>
#include <streambuf>
#include <string>
#include <string_view>
#include <vector>

#include "workers/base/files.hpp"
#include "workers/base/random.hpp"
#include "workers/base/units.hpp"
#include "workers/config/settings.hpp"
#include "workers/time/compute_time.hpp"

namespace syncopate {

// Faults of a file, one per line: "file:line: what".
struct FileFault : std::runtime_error {
  using std::runtime_error::runtime_error;
};

inline constexpr std::uint64_t most_text_bytes = 4'000'000'000;

// Returns the stored bytes of a file. Throws FileFault if it cannot be read or has more than most_text_bytes.
std::string file_content(const std::filesystem::path& file);

// The text of a file, plain or compressed with gzip, in pieces, so that it is never completely in memory. Reading
// throws FileFault for a damaged file, for more than most_bytes, and for text that unpacks to more than a hundred times
// its compressed size.
class TableText : public std::streambuf {
 public:
  // `content`, compressed or not, must outlive the object. Faults name `file`.
  TableText(std::string_view content, std::string file, std::uint64_t most_bytes = most_text_bytes);

  // Returns the first bytes without reading them. Call it before anything is read.
  std::string_view begin();

 private:
  int_type underflow() override;

  std::string_view content_;
  std::string file_;
  std::uint64_t most_bytes_;
  std::size_t taken_ = 0;       // bytes read of the content
  std::uint64_t unpacked_ = 0;  // bytes returned of the text
  std::vector<char> piece_;
  GzipStream stream_;
};

// A column to read. It is required, or has a default for files without it.
struct CsvColumn {
  CsvColumn(const char* name, std::optional<double> otherwise = {},  // NOLINT(google-explicit-constructor)
            bool takes_text = false)
      : name(name), otherwise(otherwise), takes_text(takes_text) {}

  std::string name;
  std::optional<double> otherwise;
  bool takes_text;  // whether a value may be any text; text that is not a finite number is NaN
};

// Reads numbers from comma-separated values, row by row. Columns are numbered as listed in the constructor; other
// columns are skipped. The first line that is not empty and does not begin with # is the header. A byte order mark and
// line ends (\n or \r\n) are skipped. Values and column names may be quoted, as in RFC 4180, within one line. Faults
// are collected until check().
class CsvRows {
 public:
  // `content`, compressed or not, must outlive the object. Throws FileFault if a column is missing or repeated, or if
  // the file is not UTF-8 text or separates values by anything but commas. Also throws as TableText does.
  CsvRows(const std::string& file, std::string_view content, std::vector<CsvColumn> columns);

  // Advances to the next row whose numbers are all finite, except in columns that take text; returns false at the end.
  // Other rows are faults. Throws as TableText does.
  bool next();
  // Returns the value if it is an integer from 0 to `most`; otherwise reports a fault.
  std::optional<std::int64_t> integer(std::size_t column, std::int64_t most);
  double number(std::size_t column) const { return values_[column]; }
  std::string_view text(std::size_t column) const;  // as written in the row; empty if the column is missing
  // Whether the header has a column of this name. Call it before next().
  bool has_column(std::string_view name) const { return std::ranges::find(cells_, name) != cells_.end(); }

  std::int64_t line() const { return line_; }
  void fault(const std::string& what) { fault_at(line_, what); }
  void fault_at(std::int64_t line, const std::string& what);
  // Throws FileFault with the first faults and the number of further faults, if there are any.
  void check() const;

 private:
  bool next_line();
  void split_row();
  void find_column(const CsvColumn& column);
  bool read_value(std::size_t column);  // false after a fault

  std::string file_;
  TableText text_;
  std::istream lines_{&text_};
  std::string text_of_line_;
  std::string_view row_{};               // the line without blanks around it
  std::vector<std::string_view> cells_;  // of the row
  bool is_left_open_ = false;            // a quotation mark of the row is not closed
  std::int64_t line_ = 0;
  std::vector<CsvColumn> wanted_;
  std::vector<std::optional<std::size_t>> positions_;  // index of each wanted column within a row; empty: missing
  std::vector<double> values_;
  std::size_t columns_ = 0;  // in the header
  std::vector<std::string> faults_;
  std::int64_t faults_left_out_ = 0;
};

// Files compiled into the program, which are found without a path.
struct EmbeddedFile {
  std::string_view name;
  std::string_view sentence;
  std::string_view content;
};

// Recordings of real clusters. See workers/time/recordings/README.md.
std::span<const EmbeddedFile> embedded_recordings();
const EmbeddedFile* recording_named(std::string_view name);  // null: there is none

// A file that an experiment names with the key `file`, or an embedded recording by its name.
struct DataFile {
  std::string name;  // path where it was found
  std::string content;
  std::string hash;
};

// Finds and reads the file. Adds its absolute path (or the name of a built-in recording) and its hash (as file_hash) to
// the resolved configuration. A file_hash that is already given must be equal. Returns nullopt after a fault.
std::optional<DataFile> find_data_file(Settings& settings);

// Calls `read`. A FileFault, and a lack of memory for the file's content, become faults of the settings.
void read_or_report(Settings& settings, const std::filesystem::path& file, const std::function<void()>& read);

// Reads the file that the settings name, as a Parsed(name, content). While that object is in use, later calls for the
// same content return it. A FileFault becomes a fault of the settings; returns null after a fault.
template <typename Parsed>
std::shared_ptr<const Parsed> read_data_file(Settings& settings) {
  static std::mutex mutex;
  static std::map<std::string, std::weak_ptr<const Parsed>> parsed_before;
  const auto file = find_data_file(settings);
  if (!file) return nullptr;
  const std::lock_guard lock(mutex);
  auto& before = parsed_before[file->name + '\n' + file->hash];
  auto parsed = before.lock();
  if (!parsed)
    read_or_report(settings, file->name,
                   [&] { before = parsed = std::make_shared<const Parsed>(file->name, file->content); });
  return parsed;
}

// A recording extended to any number of workers and steps. Each worker's run is a sequence of whole blocks of recorded
// steps. Within a block the correlation between steps is preserved.
// Source:  Politis and Romano 1992, the circular block bootstrap: a block may begin at any recorded step, and the
//          recording's first step follows its last, so all steps are equally likely.
// Shapes:  steps b L to b L + L - 1 of a worker form block b.
struct TraceStretch {
  Step block_steps{1};         // L, at least 1 and at most the number of recorded steps
  bool redraw_worker = false;  // each block draws a recorded worker; false: drawn once, so a slow worker stays slow
  bool own_worker = false;     // worker k follows the recorded worker k; nothing is drawn but the blocks
  bool together = false;   // all workers take the same recorded steps at the same time, so common delays stay common
  bool continues = false;  // micro-batches beyond those of a recorded step take the times of the next recorded steps
  bool is_base = false;    // for base times, whose draws differ from those of [[delays]]
};

class Trace {
 public:
  // Parses a file's content, compressed or not: comma-separated worker, step, micro_batch, duration_s in any order, all
  // numbered from 0. Without the column micro_batch each step has one micro-batch. Each worker and each step must have
  // a row; other rows may be missing, and no row may be repeated. Throws FileFault, which names `file` and the line.
  Trace(std::string file, std::string_view content);

  const std::string& file() const { return file_; }
  int workers() const { return workers_; }
  Step steps() const { return steps_; }
  int micro_batches() const { return micro_batches_; }  // largest number of micro-batches in a step

  // Durations of micro-batches from `first` on, until the first missing row, at most `most`.
  std::span<const double> durations_s(int worker, Step step, std::uint32_t first, std::size_t most) const;

  double mean_s() const { return law_.mean_s; }
  double variance_s2() const { return law_.variance_s2; }
  double minimum_s() const;
  double minimum_s(int worker) const { return minima_s_[static_cast<std::size_t>(worker)]; }

  // Mean and variance of the sum of a step's first `micro_batches` durations, over the worker's steps that have all of
  // them; NaN if no step does.
  StepLaw step_law(int worker, int micro_batches) const;

  // Returns a note for users if some of the workers' steps lack one of their first `micro_batches` durations. It says
  // how many steps do, and names the first one. Empty if no step does.
  std::string note_on_holes(int micro_batches) const;

 private:
  // Small, because there are many rows. `line` can count the lines of the largest file (most_text_bytes).
  struct Row {
    std::int32_t worker, step, micro_batch;
    std::uint32_t line;
    double duration_s;
  };
  std::size_t step_of(int worker, Step step) const {
    return static_cast<std::size_t>(worker * steps_.value() + step.value());
  }

  std::string file_;
  int workers_ = 0;
  Step steps_{};
  int micro_batches_ = 0;
  std::vector<std::size_t> begin_;  // where each step of each worker begins in the next two vectors; last: their size
  std::vector<std::uint32_t> numbers_;
  std::vector<double> durations_s_;
  StepLaw law_;
  std::vector<double> minima_s_;  // per worker
};

// The behaviour after a trace's last step.
enum class TraceEnd {
  error,  // a run that needs more steps fails
  stop,   // the run's budget is cut there; a run that needs more steps fails
  wrap,   // the trace starts again
};

struct TraceReplay {
  double scale = 1;  // >= 0
  double shift_s = 0;
  TraceEnd end = TraceEnd::error;
  std::vector<int> rows_of{};             // [worker]: the recorded worker that it follows; empty: the same number
  std::optional<TraceStretch> stretch{};  // replaces `end` and `rows_of`
};

// scale x the recorded duration + shift_s. Throws RunFailure for a missing duration; the message gives its worker,
// step, micro-batch and advice.
std::shared_ptr<const DelayProcess> trace_delay(std::shared_ptr<const Trace> trace, TraceReplay replay);

// A trace's limits for the budget. They are checked once the budget is known. Faults are reported at `table`.
struct TraceLimit {
  Settings table;
  std::shared_ptr<const Trace> trace;
  int workers = 0;  // number of workers for which the trace has durations
  TraceEnd end = TraceEnd::error;
};

// Reads an entry of [[delays]] with kind = "trace". Keys: file, and either end or stretch = { block_steps,
// redraw_worker, worker, together, beyond }. Returns null after a fault; otherwise appends one element to `limits`.
std::shared_ptr<const Trace> read_trace(Settings& table, TraceReplay& replay, std::vector<TraceLimit>& limits);

// Reads [cluster.trace], with durations of whole micro-batches. Keys: those of read_trace, and like = { "3" = 0 }:
// worker 3 follows worker 0's rows. `workers`, `micro_batches`: the cluster's numbers; 0: unknown. Null after a fault.
std::shared_ptr<const DelayProcess> read_base_trace(Settings& table, int workers, int micro_batches,
                                                    std::vector<TraceLimit>& limits);

}  // namespace syncopate
