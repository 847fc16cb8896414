// Recorded durations: a row for each micro-batch of each step of each worker.
#pragma once

#include <cstdint>
#include <filesystem>
#include <initializer_list>
#include <map>
#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "workers/base/files.hpp"
#include "workers/base/random.hpp"
#include "workers/base/units.hpp"
#include "workers/config/settings.hpp"
#include "workers/time/compute_time.hpp"

namespace syncopate {

// The text of a table in a file, plain or compressed with gzip.
// What is wrong with a file, and where: "file:line: what", each fault one line.
struct FileFault : std::runtime_error {
  using std::runtime_error::runtime_error;
};

inline constexpr std::uint64_t most_text_bytes = 4'000'000'000;

// A file's content as it is stored. Throws FileFault, also where there is more than most_text_bytes.
std::string file_content(const std::filesystem::path& file);

// The table that a file's content is, piece by piece, so that it is never in memory as a whole.
class TableText {
 public:
  // `content`, compressed or not, outlives the object; faults name `file`.
  TableText(std::string_view content, std::string file, std::uint64_t most_bytes = most_text_bytes);
  TableText(const TableText&) = delete;
  TableText& operator=(const TableText&) = delete;

  // The next bytes, which stay until it is called again; none at the end. Throws FileFault for a damaged file, and
  // where the table has more than most_bytes, or unpacks to more than a hundred times what it is compressed to.
  std::string_view next();

 private:
  std::string_view content_;
  std::string file_;
  std::uint64_t most_bytes_;
  std::size_t taken_ = 0;       // of the content
  std::uint64_t unpacked_ = 0;  // bytes
  std::vector<char> piece_;
  GzipStream stream_;
};

// Numbers in a file of comma-separated values, plain or compressed with gzip.
// A column that is asked for: one that must be there, or one that has a value where it is missing.
struct CsvColumn {
  CsvColumn(const char* needed) : name(needed) {}  // NOLINT(google-explicit-constructor): a name is a column
  CsvColumn(const char* wanted, double value) : name(wanted), otherwise(value) {}

  std::string name;
  std::optional<double> otherwise{};
};

// Reads row by row the columns that are asked for, in the order in which they are asked for; others are passed over.
// The first line that is not empty and does not begin with # has the columns' names. A byte order mark and line ends
// (\n or \r\n) are passed over. Any value, and any column's name, may stand between quotation marks, as RFC 4180 has
// them, within one line. Faults are collected until somebody asks.
class CsvRows {
 public:
  // `content`, compressed or not, outlives the object. Throws FileFault if a column is missing or stands twice, if the
  // file is no text in UTF-8 or separates values by anything but commas, and as TableText does.
  CsvRows(const std::string& file, std::string_view content, std::initializer_list<CsvColumn> columns);

  // The next row whose numbers are all finite; false at the end. Other rows are faults. Throws as TableText does.
  bool next();
  std::span<const double> values() const { return values_; }
  // Value `column` of the row, an integer from 0 to `most`; nothing, and a fault, if it is none.
  std::optional<std::int64_t> integer(std::size_t column, std::int64_t most);
  double number(std::size_t column) const { return values_[column]; }
  // In the header, whether it was asked for or not; before the first row is read.
  bool has_column(std::string_view name) const { return !places_of(name).empty(); }

  std::int64_t line() const { return line_; }
  void fault(const std::string& what) { fault_at(line_, what); }
  void fault_at(std::int64_t line, const std::string& what);
  // Throws FileFault if there have been any; of very many the first ones.
  void check() const;

 private:
  bool next_line();
  bool take_line();
  std::size_t cells() const;
  bool is_left_open() const;  // the line that is read now has a quotation mark without its second
  std::string_view cell(std::size_t position) const;
  void find_column(const CsvColumn& column);
  std::vector<std::size_t> places_of(std::string_view name) const;  // in the line that is read now
  void check_form(std::string_view begin);                          // of the file: faults where it is no such table
  std::string header_in_messages() const;  // the line that is read now; empty where it cannot be shown
  bool read_value(std::size_t column);     // false after a fault

  std::string file_;
  TableText text_;
  std::string taken_;      // of the text: the line that is read now, and what follows it
  std::size_t begin_ = 0;  // of the next line there
  std::string_view row_{};
  bool has_quotes_ = false;  // the row
  std::int64_t line_ = 0;
  std::vector<CsvColumn> wanted_;
  std::vector<std::optional<std::size_t>> positions_;  // of the columns within a row; none: it is missing
  std::vector<double> values_;
  std::size_t columns_ = 0;  // of the header
  std::vector<std::string> faults_;
  std::int64_t faults_left_out_ = 0;
};

// A file that an experiment names with the key `file`, parsed once however often the experiment is read.
struct DataFile {
  std::string name;  // where it was found
  std::string content;
  std::string hash;
};

// Finds and reads the file; its hash becomes the key file_hash of the resolved configuration, and must be that if it
// is written. Nothing after a fault. (The path becomes absolute there, so that a recorded configuration finds the
// file.)
std::optional<DataFile> find_data_file(Settings& settings);

void report_lack_of_memory(const std::filesystem::path& file, Settings& settings);

// Each line of it becomes a fault of the settings.
void report(const FileFault& problem, Settings& settings);

// The file as a Parsed(name, content), whose FileFault becomes a fault of the settings; null after a fault.
template <typename Parsed>
std::shared_ptr<const Parsed> read_data_file(Settings& settings) {
  static std::mutex mutex;
  static std::map<std::string, std::weak_ptr<const Parsed>> parsed_before;
  const auto file = find_data_file(settings);
  if (!file) return nullptr;
  const std::lock_guard lock(mutex);
  auto& before = parsed_before[file->name + '\n' + file->hash];
  if (auto parsed = before.lock()) return parsed;
  try {
    auto parsed = std::make_shared<const Parsed>(file->name, file->content);
    before = parsed;
    return parsed;
  } catch (const FileFault& problem) {
    report(problem, settings);
  } catch (const std::bad_alloc&) {
    report_lack_of_memory(file->name, settings);
  }
  return nullptr;
}

// A recording stretched to any number of workers and steps: each worker puts its own run together from whole blocks of
// recorded steps. Times within a block, and so how they hang together from step to step, stay as they were.
// Source:  Politis and Romano 1992, the circular block bootstrap: a block may begin at any recorded step, and the
//          recording's first step follows its last, so that every step is as likely as any other.
// Shapes:  steps b L to b L + L - 1 of a worker are block b.
struct TraceStretch {
  Step block_steps{1};         // L, at least 1 and at most what the recording has
  bool redraw_worker = false;  // true: every block may be of another recorded worker; false: all of a worker's are of
                               // one, so that who is slow stays slow
  bool together = false;       // all workers take the same recorded steps at a time: what hits all at once still does
  bool is_base = false;        // of the base times, whose draws are none of those of [[delays]]
};

struct RecordedPlace {
  int worker = 0;
  Step step{};
};

// The recorded worker that this one follows in this step, each as likely as any other; without redraw_worker the same
// in all steps.
int followed_worker(const TraceStretch& stretch, int recorded_workers, const RandomStream& stream);

// Where its durations of this step stand, in a recording of so many workers and steps. A pure function of the stream.
RecordedPlace place_in_recording(const TraceStretch& stretch, int recorded_workers, Step recorded_steps,
                                 const RandomStream& stream);

class Trace {
 public:
  // What a file holds, compressed or not: comma-separated worker, step, micro_batch, duration_s, in any order, all from
  // 0; other columns are passed over. Without the column micro_batch each step has one micro-batch. Every worker and
  // every step has a row, no row stands twice, but rows may be missing. Throws FileFault, which names `file` and the
  // line.
  Trace(std::string file, std::string_view content);

  const std::string& file() const { return file_; }
  int workers() const { return workers_; }
  Step steps() const { return steps_; }
  int micro_batches() const { return micro_batches_; }  // the most that a step has

  // One after the other from `first` on, as far as rows are there, and at most `most`.
  std::span<const double> durations_s(int worker, Step step, std::uint32_t first, std::size_t most) const;

  // Over all rows, and of one worker's.
  double mean_s() const { return law_.mean_s; }
  double variance_s2() const { return law_.variance_s2; }
  double minimum_s() const;
  double minimum_s(int worker) const { return minima_s_[static_cast<std::size_t>(worker)]; }

  // Over the worker's steps that have at least so many micro-batches from 0 on; not a number if there are none.
  StepLaw step_law(int worker, int micro_batches) const;

 private:
  // Small, for there are many; a file of most_text_bytes has no more lines than `line` can count.
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
  std::vector<std::size_t> begin_;  // of each worker's steps in the two below, and the end
  std::vector<std::uint32_t> numbers_;
  std::vector<double> durations_s_;
  StepLaw law_;
  std::vector<double> minima_s_;  // per worker
};

// What comes after a trace's last step.
enum class TraceEnd {
  error,  // a run that asks for more fails
  stop,   // the run ends there: its budget is cut; whoever asks for more fails
  wrap,   // it starts again
};

struct TraceReplay {
  double scale = 1;  // >= 0
  double shift_s = 0;
  TraceEnd end = TraceEnd::error;
  std::vector<int> rows_of{};  // [worker]: the worker of the trace that it follows; empty: that of its own number
  std::optional<TraceStretch> stretch{};  // the two above mean nothing then
};

// scale x the recorded duration + shift_s. What is not there throws RunFailure, which names worker, step and
// micro-batch and says what to do.
std::shared_ptr<const DelayProcess> trace_delay(std::shared_ptr<const Trace> trace, TraceReplay replay);

// How an experiment file names a trace: [cluster.trace], or an entry of [[delays]] with kind = "trace".
// What a trace asks of the budget; checked once that is known, with faults at `table`.
struct TraceLimit {
  Settings table;
  std::string file;
  int workers = 0;
  Step steps{};
  TraceEnd end = TraceEnd::error;
  int micro_batches = 0;
};

// Keys: file, end, and stretch = { block_steps, redraw_worker, together }, which has no end and takes its place. Null
// after a fault; else `limits` is one longer.
std::shared_ptr<const Trace> read_trace(Settings& table, TraceReplay& replay, std::vector<TraceLimit>& limits);

// [cluster.trace], whose durations are whole ones. Keys: those above, and like = { "3" = 0 }: worker 3 follows
// worker 0's rows. `workers`, `micro_batches`: of the cluster; 0: not known. Null after a fault.
std::shared_ptr<const DelayProcess> read_base_trace(Settings& table, int workers, int micro_batches,
                                                    std::vector<TraceLimit>& limits);

}  // namespace syncopate
