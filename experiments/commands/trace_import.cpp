#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <istream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <streambuf>
#include <tuple>

#include "experiments/commands/commands.hpp"
#include "results/text_table.hpp"
#include "workers/base/files.hpp"
#include "workers/base/terminal_text.hpp"
#include "workers/config/key_path.hpp"
#include "workers/time/trace.hpp"

namespace syncopate {

namespace {

namespace fs = std::filesystem;

struct ImportedRow {
  std::int64_t worker = 0, step = 0, micro_batch = 0;
  double duration_s = 0;
  std::int64_t line = 0;  // line in a CSV file

  auto place() const { return std::tie(worker, step, micro_batch); }
};

struct ImportedRows {
  std::vector<ImportedRow> rows{};
  std::vector<std::string> notes{};  // lines for users about the files
};

constexpr const char* step_name = "ProfilerStep#";
constexpr double microsecond_s = 1e-6;

// A file's text, unpacked piece by piece.
class FileText : public std::streambuf {
 public:
  explicit FileText(const std::string& file)
      : file_(file), stream_(file, std::ios::binary), packed_(1 << 16), piece_(1 << 18), unpacked_([this] {
          stream_.read(packed_.data(), static_cast<std::streamsize>(packed_.size()));
          return std::string_view(packed_.data(), static_cast<std::size_t>(stream_.gcount()));
        }) {
    std::error_code ignored;
    if (fs::is_directory(file, ignored)) throw ConfigurationFault(file + ": is a directory; must be a file");
    if (!stream_.is_open()) throw ConfigurationFault(file + ": there is no such file, or it cannot be read");
  }

 private:
  int_type underflow() override {
    throw_if_interrupted();
    try {
      setg(piece_.data(), piece_.data(), piece_.data() + unpacked_.read(piece_.data(), piece_.size()));
    } catch (const GzipFault& fault) {
      throw ConfigurationFault(fmt::format("{}: {}", file_, fault.what()));
    }
    return gptr() == egptr() ? traits_type::eof() : traits_type::to_int_type(*gptr());
  }

  std::string file_;
  std::ifstream stream_;
  std::vector<char> packed_, piece_;
  GzipStream unpacked_;
};

struct Span {
  double begin_us = 0, duration_us = 0;
};

// The contents of one rank's profiler trace.
struct RankTrace {
  std::optional<std::int64_t> rank{};
  std::map<std::int64_t, Span> steps{};
  std::vector<Span> micro_batches{};
  std::set<std::string> ranges{};  // names of the user's ranges, to suggest one
  std::set<std::int64_t> repeated{};
  std::int64_t untimed = 0;  // number of steps, and of ranges around micro-batches, that have no begin or no duration
  std::string first_untimed{};
  std::string fault{};  // why an event cannot be used; empty: all can
};

// Takes an event of the user's ranges or of a profiler step, if it is complete ("ph": "X").
void take_event(const nlohmann::json& event, const TraceImportOptions& options, RankTrace& trace) {
  const auto text = [&event](const char* key) {
    const auto found = event.find(key);
    return found != event.end() && found->is_string() ? found->get<std::string>() : "";
  };
  const auto begin = event.find("ts"), duration = event.find("dur");
  const std::string name = text("name"), category = text("cat");
  const bool is_of_gpu = category == "gpu_user_annotation";
  const bool is_timed = begin != event.end() && begin->is_number() && duration != event.end() && duration->is_number();
  if (text("ph") != "X" || is_of_gpu != options.gpu) return;
  const bool is_step = name.starts_with(step_name), is_micro_batch = !options.range.empty() && name == options.range;
  if (!is_timed) {
    if ((is_step || is_micro_batch) && trace.untimed++ == 0) trace.first_untimed = name;
    return;
  }
  const Span span{begin->get<double>(), duration->get<double>()};
  if (span.duration_us < 0 && trace.fault.empty())
    trace.fault = fmt::format("the event \"{}\" at ts = {} has dur = {}; must be at least 0", name, span.begin_us,
                              span.duration_us);
  if (is_step) {
    const auto step = number_in(std::string_view(name).substr(std::string_view(step_name).size()));
    if (step && !trace.steps.emplace(static_cast<std::int64_t>(*step), span).second)
      trace.repeated.insert(static_cast<std::int64_t>(*step));
  } else if (is_micro_batch) {
    trace.micro_batches.push_back(span);
  } else if (category == "user_annotation" || is_of_gpu) {
    constexpr std::size_t most_names = 1000;
    if (trace.ranges.size() < most_names) trace.ranges.insert(name);
  }
}

// Reads Chrome's JSON, of which only one event at a time is in memory.
// Source:  the Trace Event Format; names, categories and distributedInfo as torch.profiler writes them.
RankTrace read_events(const std::string& file, const TraceImportOptions& options) {
  using Part = nlohmann::json::parse_event_t;
  RankTrace trace;
  bool is_bare_list = false;  // whether the file is a plain list of events, without "traceEvents"
  std::string section;        // key of the outermost object
  const auto keep = [&](int depth, Part part, nlohmann::json& value) {
    if (depth == 0 && part == Part::array_start) is_bare_list = true;
    if (depth == 1 && part == Part::key) section = value.get<std::string>();
    const bool is_of_events = is_bare_list || section == "traceEvents", is_of_ranks = section == "distributedInfo";
    if (depth == 1 && part == Part::object_end && is_of_ranks && value.contains("rank") && value["rank"].is_number())
      trace.rank = static_cast<std::int64_t>(value["rank"].get<double>());
    const bool is_event = part == Part::object_end && depth == (is_bare_list ? 1 : 2) && is_of_events;
    if (is_event) take_event(value, options, trace);
    const bool begins_section = depth == 1 && (part == Part::object_start || part == Part::array_start);
    return begins_section ? is_of_events || is_of_ranks : !is_event;
  };
  FileText text(file);
  std::istream stream(&text);
  const auto fault = [&file](const std::string& what) {
    return ConfigurationFault(fmt::format("{}: {}; must be a trace of the PyTorch profiler", file, what));
  };
  try {
    [[maybe_unused]] const nlohmann::json rest = nlohmann::json::parse(stream, keep);
  } catch (const nlohmann::json::parse_error& problem) {
    throw fault(fmt::format("is no JSON at byte {}", problem.byte));
  } catch (const nlohmann::json::out_of_range&) {
    throw fault("contains a number that is too large");
  }
  return trace;
}

std::string note_on_untimed(const RankTrace& trace) {
  return fmt::format("{} without ts or dur {} left out, first \"{}\"", counted(trace.untimed, "event"),
                     trace.untimed == 1 ? "is" : "are", trace.first_untimed);
}

RankTrace read_rank(const std::string& file, const TraceImportOptions& options) {
  RankTrace trace = read_events(file, options);
  if (!trace.fault.empty()) throw ConfigurationFault(fmt::format("{}: {}", file, trace.fault));
  const char* const side = options.gpu ? " on the GPU" : "";
  const std::string untimed = trace.untimed > 0 ? "; " + note_on_untimed(trace) : "";
  if (trace.steps.empty())
    throw ConfigurationFault(
        fmt::format("{}: has no {}n{}; the training loop must call profiler.step(){}", file, step_name, side, untimed));
  if (!trace.repeated.empty())
    throw ConfigurationFault(fmt::format("{}: has {}{} twice", file, step_name, *trace.repeated.begin()));
  if (!options.range.empty() && trace.micro_batches.empty()) {
    const std::vector<std::string> names(trace.ranges.begin(), trace.ranges.end());
    throw ConfigurationFault(fmt::format("{}: has no range \"{}\"{}{}{}", file, options.range, side,
                                         names.empty()
                                             ? "; put one around each micro-batch with torch.profiler.record_function"
                                             : suggestion(options.range, names),
                                         untimed));
  }
  return trace;
}

// Adds rows for a rank. A range is a micro-batch of the step in which it begins; ranges between steps are left out.
void add_rows(const RankTrace& trace, std::int64_t worker, bool has_range, std::vector<ImportedRow>& rows) {
  std::vector<Span> ranges = trace.micro_batches;
  std::ranges::sort(ranges, {}, &Span::begin_us);
  for (const auto& [step, span] : trace.steps) {
    if (!has_range) {
      rows.push_back({.worker = worker, .step = step, .duration_s = span.duration_us * microsecond_s});
      continue;
    }
    auto range = std::ranges::lower_bound(ranges, span.begin_us, {}, &Span::begin_us);
    for (std::int64_t number = 0; range != ranges.end() && range->begin_us < span.begin_us + span.duration_us; ++range)
      rows.push_back(
          {.worker = worker, .step = step, .micro_batch = number++, .duration_s = range->duration_us * microsecond_s});
  }
}

ImportedRows rows_of_profiler(const TraceImportOptions& options) {
  ImportedRows imported;
  std::vector<std::string> without_rank;      // files
  std::map<std::int64_t, std::string> files;  // by rank, to find repeated ranks
  std::vector<std::string> faults;
  for (std::size_t i = 0; i < options.files.size(); ++i) try {
      const RankTrace trace = read_rank(options.files[i], options);
      const std::int64_t worker = trace.rank.value_or(static_cast<std::int64_t>(i));
      const auto [other, is_new] = files.emplace(worker, options.files[i]);
      if (!is_new)
        throw ConfigurationFault(fmt::format("{}: has rank {}, like {}; must be one file per rank", options.files[i],
                                             worker, other->second));
      add_rows(trace, worker, !options.range.empty(), imported.rows);
      if (!trace.rank) without_rank.push_back(options.files[i]);
      if (trace.untimed > 0) imported.notes.push_back(fmt::format("{}: {}", options.files[i], note_on_untimed(trace)));
    } catch (const ConfigurationFault& fault) {
      faults.emplace_back(fault.what());
    }
  if (!faults.empty()) throw ConfigurationFault(fmt::format("{}", fmt::join(faults, "\n")));
  if (options.files.size() > 1 && !without_rank.empty())
    imported.notes.push_back(fmt::format(
        "{} no rank (distributedInfo), first {}: ranks follow the order of the files",
        counted(without_rank.size(), "file") + (without_rank.size() == 1 ? " has" : " have"), without_rank.front()));
  return imported;
}

// Splits "ms:step_time" into 0.001 and the column.
std::pair<double, std::string> unit_and_column(const std::string& duration) {
  constexpr std::array<std::pair<std::string_view, double>, 4> units = {
      {{"s", 1}, {"ms", 1e-3}, {"us", 1e-6}, {"ns", 1e-9}}};
  const std::size_t colon = duration.find(':');
  if (colon == duration.npos) return {1, duration};
  const std::string unit = duration.substr(0, colon);
  for (const auto& [name, in_s] : units)
    if (unit == name) return {in_s, duration.substr(colon + 1)};
  throw ConfigurationFault(fmt::format("--duration: {}; the unit must be one of s, ms, us, ns", duration));
}

// Numbers the names of workers in alphabetical order, which does not depend on the order of the rows. Empty if the
// column has nothing but numbers.
std::map<std::string, std::int64_t> named_workers(const TraceImportOptions& options, std::string_view content) {
  CsvRows csv(options.files.front(), content, {{options.worker.c_str(), 0, true}});
  std::map<std::string, std::int64_t> workers;
  bool has_names = false;
  while (csv.next()) {
    has_names = has_names || (std::isnan(csv.number(0)) && !csv.text(0).empty());
    workers.try_emplace(std::string(csv.text(0)));
  }
  if (!has_names) return {};
  std::int64_t next = 0;
  for (auto& [name, number] : workers) number = next++;
  return workers;
}

std::string note_on_names(const std::map<std::string, std::int64_t>& workers) {
  constexpr std::size_t most = 4;
  std::vector<std::string> shown;
  for (const auto& [name, number] : workers) {
    if (shown.size() == most) break;
    shown.push_back(fmt::format("{} = {}", number, name));
  }
  return fmt::format("workers are numbered by name, in alphabetical order: {}{}", fmt::join(shown, ", "),
                     workers.size() > most ? fmt::format(" and {} more", workers.size() - most) : "");
}

ImportedRows rows_of_csv(const TraceImportOptions& options) {
  if (options.files.size() > 1)
    throw ConfigurationFault(
        fmt::format("{}: must be one CSV file, whose rows name their worker", fmt::join(options.files, ", ")));
  constexpr std::int64_t most = std::int64_t{1} << 52;  // a double holds such integers exactly
  const std::string& file = options.files.front();
  const auto [unit_s, column] = unit_and_column(options.duration);
  ImportedRows imported;
  std::vector<ImportedRow>& rows = imported.rows;
  const std::string content = file_content(file);
  const std::map<std::string, std::int64_t> names = named_workers(options, content);
  const auto number_of = [&](CsvRows& csv) -> std::optional<std::int64_t> {
    if (names.empty()) return csv.integer(0, most);
    if (!csv.text(0).empty()) return names.at(std::string(csv.text(0)));
    csv.fault(fmt::format("{} = nothing; must be a number or a name", options.worker));
    return std::nullopt;
  };
  std::vector<CsvColumn> columns = {
      {options.worker.c_str(), std::nullopt, true}, options.step.c_str(), column.c_str(), options.micro_batch.c_str()};
  if (options.micro_batch == "micro_batch") columns.back().otherwise = 0;
  CsvRows csv(file, content, std::move(columns));
  while (csv.next()) {
    const auto worker = number_of(csv), step = csv.integer(1, most), micro_batch = csv.integer(3, most);
    if (csv.number(2) < 0) csv.fault(fmt::format("{} = {}; must be at least 0", column, csv.number(2)));
    if (worker && step && micro_batch)
      rows.push_back({.worker = *worker,
                      .step = *step,
                      .micro_batch = *micro_batch,
                      .duration_s = csv.number(2) * unit_s,
                      .line = csv.line()});
  }
  std::ranges::stable_sort(rows, {}, &ImportedRow::place);
  for (std::size_t i = 1; i < rows.size(); ++i)
    if (rows[i].place() == rows[i - 1].place())
      csv.fault_at(rows[i].line, fmt::format("repeats worker {}, step {}, micro-batch {} of line {}",
                                             names.empty() ? std::to_string(rows[i].worker)
                                                           : std::next(names.begin(), rows[i].worker)->first,
                                             rows[i].step, rows[i].micro_batch, rows[i - 1].line));
  csv.check();
  if (!names.empty()) imported.notes.push_back(note_on_names(names));
  if (rows.empty()) throw ConfigurationFault(file + ": there are no rows below the header");
  return imported;
}

bool is_json(const std::string& file) {
  FileText text(file);
  auto next = text.sgetc();
  while (next == ' ' || next == '\n' || next == '\r' || next == '\t') next = text.snextc();
  return next == '{' || next == '[';
}

// Numbers the elements from 0, in ascending order.
std::map<std::int64_t, std::int64_t> numbered(const std::set<std::int64_t>& written) {
  std::map<std::int64_t, std::int64_t> numbers;
  for (const std::int64_t number : written) numbers.emplace(number, std::ssize(numbers));
  return numbers;
}

// Removes the rows of steps that not all workers have. Returns the number of these steps.
std::size_t keep_common_steps(std::vector<ImportedRow>& rows) {
  std::set<std::int64_t> workers;
  std::map<std::int64_t, std::set<std::int64_t>> workers_at;
  for (const ImportedRow& row : rows) {
    workers.insert(row.worker);
    workers_at[row.step].insert(row.worker);
  }
  std::erase_if(rows, [&](const ImportedRow& row) { return workers_at[row.step].size() < workers.size(); });
  return static_cast<std::size_t>(
      std::ranges::count_if(workers_at, [&](const auto& step) { return step.second.size() < workers.size(); }));
}

// One step of all workers.
struct StepTimes {
  double sum_s = 0, slowest_s = 0;
  bool is_complete = true;  // every worker has as many micro-batches as in any of its steps
};

// The steps that are complete. A worker's time in another step is unknown. `micro_batches`: [worker], in any step.
std::vector<StepTimes> complete_steps(const std::vector<ImportedRow>& rows, std::int64_t steps,
                                      const std::vector<std::int64_t>& micro_batches) {
  struct WorkerStep {
    double duration_s = 0;
    std::int64_t recorded = 0;  // number of micro-batches
  };
  std::map<std::pair<std::int64_t, std::int64_t>, WorkerStep> of_workers;  // by step and worker
  for (const ImportedRow& row : rows) {
    WorkerStep& own = of_workers[{row.step, row.worker}];
    own.duration_s += row.duration_s;
    ++own.recorded;
  }
  std::vector<StepTimes> times(static_cast<std::size_t>(steps));
  for (const auto& [place, own] : of_workers) {
    StepTimes& step = times[static_cast<std::size_t>(place.first)];
    step.sum_s += own.duration_s;
    step.slowest_s = std::max(step.slowest_s, own.duration_s);
    if (own.recorded < micro_batches[static_cast<std::size_t>(place.second)]) step.is_complete = false;
  }
  std::erase_if(times, [](const StepTimes& step) { return !step.is_complete; });
  return times;
}

// The mean and the slowest worker's time of a step, as far as they are known.
std::string comparison_of(const std::vector<StepTimes>& complete, std::int64_t steps, std::int64_t workers) {
  if (complete.empty()) return "no step has all micro-batches of every worker, so steps are not compared\n";
  const auto count = static_cast<double>(complete.size());
  double sum_s = 0, sum_of_slowest_s = 0;
  for (const StepTimes& step : complete) {
    sum_s += step.sum_s;
    sum_of_slowest_s += step.slowest_s;
  }
  const double mean_s = sum_s / (static_cast<double>(workers) * count), mean_slowest_s = sum_of_slowest_s / count;
  const std::string where =
      std::ssize(complete) == steps
          ? ""
          : fmt::format("in {} of {} steps every worker has all its micro-batches; in these steps ", complete.size(),
                        steps);
  return fmt::format("{}a worker's step takes {} s on average, the slowest worker's {} s: {} times as long\n", where,
                     shown_number(mean_s), shown_number(mean_slowest_s),
                     with_decimals(mean_s > 0 ? mean_slowest_s / mean_s : 1, 3));
}

// A line if some workers have more micro-batches per step than others.
std::string differences_of(const std::vector<std::int64_t>& micro_batches) {
  std::map<std::int64_t, std::vector<std::size_t>> workers_with;
  for (std::size_t worker = 0; worker < micro_batches.size(); ++worker)
    workers_with[micro_batches[worker]].push_back(worker);
  if (workers_with.size() == 1) return {};
  std::vector<std::string> parts;
  for (const auto& [number, workers] : workers_with)
    parts.push_back(fmt::format("{} (worker {}{})", number, workers.front(),
                                workers.size() > 1 ? fmt::format(" and {} more", workers.size() - 1) : ""));
  return fmt::format("workers differ in micro-batches per step: {}\n", fmt::join(parts, ", "));
}

std::string summary_of(const std::vector<ImportedRow>& rows, std::size_t left_out) {
  const std::int64_t workers = rows.back().worker + 1;  // rows are sorted by worker
  std::vector<std::int64_t> micro_batches_of(static_cast<std::size_t>(workers));
  std::int64_t steps = 0;
  double sum_s = 0;
  for (const ImportedRow& row : rows) {
    std::int64_t& own = micro_batches_of[static_cast<std::size_t>(row.worker)];
    own = std::max(own, row.micro_batch + 1);
    steps = std::max(steps, row.step + 1);
    sum_s += row.duration_s;
  }
  const std::int64_t micro_batches = std::ranges::max(micro_batches_of);
  std::string text =
      fmt::format("{}, {}, {} per step; {} s each on average\n", counted(workers, "worker"), counted(steps, "step"),
                  counted(micro_batches, "micro-batch"), shown_number(sum_s / static_cast<double>(rows.size())));
  text += comparison_of(complete_steps(rows, steps, micro_batches_of), steps, workers);
  if (const std::int64_t missing = workers * steps * micro_batches - std::ssize(rows); missing > 0)
    text += fmt::format("{} of {} micro-batches {} no duration; a run that needs one fails\n", missing,
                        workers * steps * micro_batches, missing == 1 ? "has" : "have");
  text += differences_of(micro_batches_of);
  if (left_out == 1) text += "1 step is left out: not every worker has it\n";
  if (left_out > 1) text += fmt::format("{} steps are left out: not every worker has them\n", left_out);
  return text;
}

// Throws ConfigurationFault if a file would be read twice, or replaced by the output.
void check_files(const TraceImportOptions& options) {
  std::error_code ignored;  // files that do not exist are reported when they are read
  for (auto file = options.files.begin(); file != options.files.end(); ++file) {
    if (fs::equivalent(*file, options.output, ignored))
      throw ConfigurationFault(fmt::format("{}: is an input; name another file for the output", options.output));
    const auto again = std::find_if(options.files.begin(), file,
                                    [&](const std::string& other) { return fs::equivalent(*file, other, ignored); });
    if (again != file) throw ConfigurationFault(fmt::format("{}: is the same file as {}", *file, *again));
  }
}

// A note if the numbers in the files are not those of the recording, which begin at 0.
std::string renumbered(std::string_view what, const std::set<std::int64_t>& written) {
  if (*written.begin() == 0 && *written.rbegin() == std::ssize(written) - 1) return {};
  return fmt::format("{} {} to {} of the input are numbered from 0\n", what, *written.begin(), *written.rbegin());
}

}  // namespace

Action prepare_trace_import(const TraceImportOptions& options) {
  if (const std::string why = why_not_replaceable(options.output); !why.empty())
    throw ConfigurationFault(fmt::format("{}: cannot be written: {}", options.output, why));
  check_files(options);
  const std::ptrdiff_t json_files = std::ranges::count_if(options.files, is_json);
  const bool is_profiler = json_files == std::ssize(options.files);
  if (!is_profiler && json_files > 0)
    throw ConfigurationFault(
        fmt::format("{}: some are JSON and some are not; must be traces of the PyTorch profiler, or one CSV file",
                    fmt::join(options.files, ", ")));
  auto [rows, notes] =
      is_profiler ? rows_of_profiler(options) : configured<FileFault>("", [&] { return rows_of_csv(options); });
  const std::size_t left_out = keep_common_steps(rows);
  if (rows.empty()) {
    notes.insert(notes.begin(),
                 fmt::format("{}: the workers have no step in common{}", fmt::join(options.files, ", "),
                             is_profiler && !options.range.empty() ? ", or ranges lie outside of steps" : ""));
    throw ConfigurationFault(fmt::format("{}", fmt::join(notes, "\n")));
  }
  if (std::ranges::all_of(rows, [](const ImportedRow& row) { return row.duration_s == 0; }))
    throw ConfigurationFault(fmt::format("{}: all durations are 0", fmt::join(options.files, ", ")));
  std::set<std::int64_t> workers, steps;
  for (const ImportedRow& row : rows) {
    workers.insert(row.worker);
    steps.insert(row.step);
  }
  const auto worker_numbers = numbered(workers), step_numbers = numbered(steps);
  for (ImportedRow& row : rows) {
    row.worker = worker_numbers.at(row.worker);
    row.step = step_numbers.at(row.step);
  }
  std::ranges::sort(rows, {}, &ImportedRow::place);
  std::string content = "worker,step,micro_batch,duration_s\n";
  for (const ImportedRow& row : rows)
    content += fmt::format("{},{},{},{:.9g}\n", row.worker, row.step, row.micro_batch, row.duration_s);
  if (options.output.ends_with(".gz")) content = gzip(content);
  std::string summary = summary_of(rows, left_out);
  for (const std::string& note : notes) summary += note + '\n';
  summary += renumbered("workers", workers) + renumbered("steps", steps);
  return [output = options.output, content = std::move(content), summary = std::move(summary)] {
    replace_named_file(output, content);
    standard_output.write(printable_lines(fmt::format("{}\n{}", output, summary)));
  };
}

}  // namespace syncopate
