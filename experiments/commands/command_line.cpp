#include <fmt/format.h>
#include <fmt/ranges.h>
#include <mpi.h>
#include <toml++/toml.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <boost/version.hpp>
#include <cctype>
#include <charconv>
#include <limits>
#include <set>
#include <span>
#include <sstream>

#include "experiments/commands/commands.hpp"
#include "results/build_info.hpp"
#include "workers/base/machine.hpp"
#include "workers/config/key_path.hpp"
#include "workers/data/text_dataset.hpp"
#include "workers/models/models.hpp"
#include "workers/models/torch_library.hpp"

namespace syncopate {

namespace {

std::string variant_of(const Run& run) {
  const auto found = std::ranges::find(run.sweep, std::string("variant"), &std::pair<std::string, std::string>::first);
  return found == run.sweep.end() ? "" : found->second;
}

constexpr const char* examples = R"(Examples:
  syncopate check experiments/quickstart.toml
  syncopate predict experiments/quickstart.toml
  syncopate run experiments/quickstart.toml
  syncopate run experiments/quickstart.toml training.model=cnn seeds=[1] budget.epochs=2
  syncopate run experiments/quickstart.toml methods.dropcompute.threshold_s=0.05,0.06,0.07
  mpirun -n 4 syncopate run experiments/quickstart.toml cluster.workers=4
  syncopate compare experiments/examples/reality.toml
  syncopate thresholds run.csv.gz --serial-s 0.2
  syncopate trace import rank*.json.gz --range forward_backward -o job.csv
  syncopate data tokens book.txt notes/ --to data/books
  syncopate table results/runs/quickstart --against "synchronous SGD"
  syncopate list algorithms
  syncopate list dropcompute

Under MPI an experiment needs one rank per worker and one per server; `./dev mpirun FILE` starts the right number.
Open MPI's mpirun refuses to run as root unless OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 are set. It
refuses more ranks than cores without mpirun --oversubscribe --bind-to none. `run` refuses more than four ranks per core
if a machine has more than sixteen ranks; its own option --oversubscribe allows them.

Exit status:
  0    success
  1    something failed while running
  2    bad usage or configuration; nothing was run
  130  interrupted (Ctrl-C)
)";

// Shows the overrides as key=value in the help, a name that CLI11 2.4 does not accept for an option.
class HelpFormatter : public CLI::Formatter {
 public:
  std::string make_option_name(const CLI::Option* option, bool is_positional) const override {
    const std::string name = CLI::Formatter::make_option_name(option, is_positional);
    return name == "key_value" ? "key=value" : name;
  }
};

// Checks that the value is a whole number in the range. Without a number CLI11 passes the next option as the value.
CLI::Validator count_between(std::int64_t low, std::int64_t high) {
  return CLI::Validator(
      [low, high](std::string& text) -> std::string {
        if (text.starts_with("--")) return "needs a number";
        std::int64_t number = 0;
        const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), number);
        const bool is_whole = problem == std::errc() && end == text.data() + text.size();
        if (is_whole && number >= low && number <= high) return "";
        return fmt::format("must be a whole number in digits, from {} to {}; found {}", low, high, text);
      },
      "");
}

// Adds an option whose value --help shows as `placeholder`.
template <typename Value>
CLI::Option* add_option(CLI::App& command, const std::string& name, Value& value, const std::string& placeholder,
                        const std::string& help) {
  return command.add_option(name, value, help)->option_text(placeholder);
}

void add_experiment(CLI::App& command, CommandLine& line, const char* file = "the experiment, a TOML file") {
  command.add_option("FILE", line.file, file)->required();
  command.add_option("key_value", line.overrides,
                     "set a key of the file, such as training.learning_rate.peak=0.1; sweep it with key=a,b,c; "
                     "remove it with ~key");
  add_option(command, "--profile", line.profiles, "NAME ...", "apply the keys of the file's [profiles.NAME]")
      ->allow_extra_args(false);
  add_option(command, "--only", line.only, "NAME ...",
             "only the runs of this method or variant, or whose hash begins with NAME")
      ->allow_extra_args(false);
  add_option(command, "--limit", line.most_runs, fmt::format("N [{}]", line.most_runs),
             "refuse an experiment with more runs than this")
      ->check(count_between(1, std::numeric_limits<std::int64_t>::max()));
}

void add_results_directory(CLI::App& command, RunOptions& options) {
  add_option(command, "--results", options.results_directory, fmt::format("DIR [{}]", options.results_directory),
             "directory for the runs' results")
      ->check([](const std::string& name) { return name.empty() ? "must not be empty" : ""; });
}

void add_threads(CLI::App& command, RunOptions& options, const char* help) {
  add_option(command, "--threads", options.threads, "N [0]", help)->check(count_between(0, 4096));
}

void add_run_options(CLI::App& command, RunOptions& options) {
  add_results_directory(command, options);
  add_threads(command, options, "number of computing threads; 0: one per core");
  command.add_flag("--rerun", options.rerun, "repeat finished runs");
  command.add_flag("--quiet", options.quiet, "print only the final table and errors");
}

void add_memory(CLI::App& command, CommandLine& line) {
  const auto is_size = [](const std::string& text) {
    return memory_size(text) ? "" : fmt::format("must be a size such as 8GiB, 0.5GiB or 500MB; found {}", text);
  };
  command
      .add_option_function<std::string>(
          "--memory", [&line](const std::string& text) { line.memory_bytes = *memory_size(text); },
          "refuse runs that need more than this memory per process (8GiB, for example); --jobs divides it between its "
          "processes")
      ->check(is_size)
      ->option_text("SIZE");
}

void add_choice_of_cluster(CLI::App& command, CommandLine& line) {
  const std::map<std::string, ClusterChoice> clusters = {
      {"auto", ClusterChoice::automatic}, {"simulated", ClusterChoice::simulated}, {"mpi", ClusterChoice::mpi}};
  command
      .add_option_function<std::string>(
          "--cluster", [&line, clusters](const std::string& name) { line.options.cluster = clusters.at(name); },
          "auto: mpi if started by mpirun or srun, otherwise simulated")
      ->check(CLI::IsMember(std::set<std::string>{"auto", "simulated", "mpi"}))
      ->option_text("auto|simulated|mpi [auto]");
}

void add_oversubscribe(CLI::App& command, CommandLine& line) {
  command.add_flag("--oversubscribe", line.oversubscribes,
                   "under MPI: allow more than four ranks per core even if a machine has more than sixteen ranks");
}

// Checks that the value is a number in the range. CLI::Range alone accepts "nan".
CLI::Validator number_between(double low, double high) {
  const auto is_number = [](const std::string& text) {
    return std::isnan(std::strtod(text.c_str(), nullptr)) ? fmt::format("must be a number, found {}", text) : "";
  };
  return CLI::Range(low, high) & CLI::Validator(is_number, "");
}

void add_side_by_side(CLI::App& command, CommandLine& line) {
  SideBySideOptions& options = line.side_by_side;
  const auto is_number_or_auto = [](const std::string& text) {
    const bool is_number = !text.empty() && text.size() < 5 && text.find_first_not_of("0123456789") == text.npos;
    const bool is_right = text == "auto" || (is_number && std::stoi(text) >= 1);
    return is_right ? "" : fmt::format("must be a number from 1 to 9999, or auto; found {}", text);
  };
  add_option(command, "--jobs", options.jobs, "N|auto [1]",
             "number of runs at the same time, in processes that divide threads and memory; auto: as many as cores, "
             "runs and memory allow")
      ->check(is_number_or_auto);
  command.add_flag("--share", options.shares,
                   "share the runs with other processes that are started with --share, here or on other machines");
  command.add_flag_callback(
      "--no-wait", [&options] { options.waits = false; },
      "with --share: end when no run is left to start; only the process that ends last prints the table");
  add_option(command, "--lease-timeout", options.time_out_s, fmt::format("SECONDS [{}]", options.time_out_s),
             "time after which another process takes over the run of a silent process")
      ->check(number_between(0.1, 86400));
  add_option(command, "--retry", line.options.retries, "N [0]", "how often to retry a failed run")
      ->check(count_between(0, 1000));
  // Options for the children of --jobs, hidden from --help.
  command.add_option("--job-of", options.job_of)->group("");
  command.add_option("--token", options.token)->group("");
  command.add_option("--memory-part", options.memory_part_bytes)->group("");
}

void add_compare_options(CLI::App& command, CompareOptions& options) {
  const auto add_tolerance = [&command](const char* name, double& tolerance, const char* text) {
    command
        .add_option_function<double>(
            name, [&tolerance](double percent) { tolerance = percent / 100; }, text)
        ->check(number_between(0, 100))
        ->option_text(fmt::format("PERCENT [{}]", 100 * tolerance));
  };
  add_tolerance("--step-time-tolerance", options.tolerances.step_time, "tolerated difference of times per step");
  add_tolerance("--drop-rate-tolerance", options.tolerances.drop_rate,
                "tolerated difference of drop rates, in percentage points");
  command.add_flag("--check", options.check, "exit with status 1 if a difference exceeds its tolerance");
  command.add_flag("--all-seeds", options.all_seeds, "compare all seeds of the file; default: only the first");
  add_option(command, "--mpiexec", options.mpiexec, "COMMAND",
             "command that starts MPI programs; default: $MPIEXEC, or as built");
  add_option(command, "--json", options.json, "FILE",
             "also write the result to FILE (besides compare.json in the results)");
  add_option(command, "--markdown", options.markdown, "FILE", "also write the result to FILE as a Markdown table");
}

void add_thresholds_options(CLI::App& command, ThresholdsOptions& options) {
  command
      .add_option("SOURCE", options.source,
                  "a CSV file with worker,step,micro_batch,duration_s, or a run's directory with durations.csv.gz")
      ->required();
  add_option(command, "--serial-s", options.serial_s, "SECONDS",
             "time of a step outside of its micro-batches (T^c); default: from the run's steps.csv, or 0")
      ->check(CLI::Range(0.0, 1e9));
  add_option(command, "--maximum-drop-rate", options.maximum_drop_rate, "SHARE",
             "consider only thresholds with at most this drop rate as the best")
      ->check(CLI::Range(0.0, 1.0));
  add_option(command, "--json", options.json, "FILE", "also write the report to FILE; `./dev plot FILE` draws it");
  add_option(command, "--csv", options.csv, "FILE", "also write all thresholds to FILE, one row each");
}

void add_trace_import_options(CLI::App& command, TraceImportOptions& options) {
  add_option(command, "FILE", options.files, "FILE ...",
             "traces of the PyTorch profiler, one per rank, or a CSV file; plain or compressed with gzip")
      ->required();
  add_option(command, "-o,--output", options.output, "FILE", "where the recording goes, such as run.csv or run.csv.gz")
      ->required();
  add_option(command, "--range", options.range, "NAME",
             "profiler: name of the record_function range around a micro-batch; default: a step is one");
  command.add_flag("--gpu", options.gpu,
                   "profiler: take the times at which ranges ran on the GPU, instead of those on the CPU");
  add_option(command, "--worker", options.worker, "COLUMN [worker]", "CSV: the column of workers");
  add_option(command, "--step", options.step, "COLUMN [step]", "CSV: the column of steps");
  add_option(command, "--micro-batch", options.micro_batch, "COLUMN [micro_batch]",
             "CSV: the column of micro-batches, if there is one");
  add_option(command, "--duration", options.duration, "[UNIT:]COLUMN [duration_s]",
             "CSV: the column of durations, with its unit (s, ms, us or ns) before a colon, such as ms:step_time");
}

void add_token_files_options(CLI::App& command, TokenFilesOptions& options) {
  add_option(command, "TEXT", options.texts, "TEXT ...",
             "texts in UTF-8, or folders of them; plain or compressed with gzip; /dev/stdin reads a pipe")
      ->required();
  add_option(command, "--to", options.to, "FOLDER",
             "the folder for train.bin, test.bin and vocabulary.txt, which it replaces")
      ->required()
      ->check([](const std::string& name) { return name.empty() ? "must not be empty" : ""; });
  command
      .add_option_function<std::string>(
          "--tokenizer", [&options](const std::string& name) { options.by_words = name == "words"; },
          "whether tokens are the bytes of the texts, or words in lower case without punctuation")
      ->check(CLI::IsMember(std::set<std::string>{"bytes", "words"}))
      ->option_text("bytes|words [bytes]");
  add_option(command, "--words", options.words, fmt::format("N [{}]", TextOptions().words),
             "number of words in the vocabulary, which has the most frequent ones")
      ->check(count_between(1, 1 << 24));
  add_option(command, "--test-share", options.test_share, fmt::format("SHARE [{}]", options.test_share),
             "share of the texts for tests: the last part of each file or, with --lines, lines chosen by a hash")
      ->check(number_between(1e-6, 1 - 1e-6));
  command.add_flag("--lines", options.lines, "each line is a text of its own; default: each file");
  command.add_flag("--header", options.header, "write llm.c's header; default: bare tokens, as nanoGPT has them");
}

void add_format(CLI::App& command, TableFormat& format, const std::string& help) {
  const std::map<std::string, TableFormat> formats = {{"text", TableFormat::text},
                                                      {"markdown", TableFormat::markdown},
                                                      {"csv", TableFormat::csv},
                                                      {"latex", TableFormat::latex}};
  command
      .add_option_function<std::string>(
          "--format", [&format, formats](const std::string& name) { format = formats.at(name); }, help)
      ->check(CLI::IsMember(std::set<std::string>{"text", "markdown", "csv", "latex"}))
      ->option_text("text|markdown|csv|latex [text]");
}

void add_tables_options(CLI::App& command, TablesOptions& options) {
  command.add_option("DIR", options.directory, "a directory that contains runs, such as results/runs/quickstart")
      ->required();
  add_option(command, "--against", options.against, "METHOD",
             "also print the differences to this method (or row), paired by seed, with 95 % intervals");
  add_option(command, "--measure", options.measures, "NAME ...",
             "measures to compare, such as final_test_loss; default: the most common ones")
      ->allow_extra_args(false);
  add_option(command, "--rank", options.rank, "NAME", "also print the best method at each sweep point by this measure");
  add_format(command, options.format, "csv: one line per row of the table and measure, with all measures");
}

// May be called before MPI_Init.
std::string mpi_version() {
  std::array<char, MPI_MAX_LIBRARY_VERSION_STRING> text{};
  int length = 0;
  if (MPI_Get_library_version(text.data(), &length) != MPI_SUCCESS) return "unknown";
  const std::string version(text.data(), static_cast<std::size_t>(length));
  return version.substr(0, version.find_first_of("\n,"));
}

// Returns one line each for Syncopate, compiler, LibTorch, BLAS kernel, MPI, ...
std::string version_text() {
  const BuildInfo& build = build_info();
  const std::string commit = build.commit == "unknown" ? ""
                                                       : fmt::format(" ({}{})", build.commit.substr(0, 12),
                                                                     build.dirty.value_or(false) ? ", changed" : "");
  std::string result = fmt::format("Syncopate {}{}\n", build.version, commit);
  const auto add = [&](std::string_view part, std::string_view version) {
    result += fmt::format("{:<12}{}\n", part, version);
  };
  add("system", fmt::format("{}; {}", distribution_name(), operating_system()));
  add("compiler", build.compiler);
  try {
    load_torch();
    add("LibTorch", fmt::format("{} ({})", torch_version(), loaded_torch_file()));
    add("BLAS kernel", blas_kernel() + (blas_is_reference() ? " (the reference BLAS: slow)" : ""));
    add("kernels", torch_kernels());
    add("GPU", gpus_of_torch());
  } catch (const std::runtime_error& fault) {  // a damaged installation, whose version the user still wants to know
    add("LibTorch", torch_version());
    add("BLAS kernel", fmt::format("unknown: {}", fault.what()));
    add("kernels", "unknown");
  }
  add("MPI", mpi_version());
  add("toml++", fmt::format("{}.{}.{}", TOML_LIB_MAJOR, TOML_LIB_MINOR, TOML_LIB_PATCH));
  add("Boost", fmt::format("{}.{}.{}", BOOST_VERSION / 100000, BOOST_VERSION / 100 % 1000, BOOST_VERSION % 100));
  result.pop_back();
  return result;
}

void add_commands(CLI::App& app, CommandLine& line) {
  app.formatter(std::make_shared<HelpFormatter>());
  app.footer(examples);
  app.require_subcommand(1);
  app.set_version_flag(
      "--version", [] { return version_text(); }, "versions, and the BLAS kernel in use");
  CLI::App* run = app.add_subcommand("run", "run an experiment and print its table");
  add_experiment(*run, line);
  add_run_options(*run, line.options);
  add_choice_of_cluster(*run, line);
  add_oversubscribe(*run, line);
  add_side_by_side(*run, line);
  add_memory(*run, line);
  add_option(*run, "--accept", line.accepted, "DIR",
             "run nothing if the experiment's folder in DIR contains a claims.json for the same claims and runs")
      ->excludes("--rerun");
  CLI::App* status = app.add_subcommand(
      "status", "print the progress of an experiment: finished, running, failed and remaining runs, and the time left");
  add_experiment(*status, line, "the experiment, a TOML file; or a directory such as results/runs/quickstart");
  add_results_directory(*status, line.options);
  status->add_flag("--json", line.json, "print JSON");
  CLI::App* check = app.add_subcommand("check", "print the resolved experiment and its runs, run nothing");
  add_experiment(*check, line);
  check->add_flag("--ranks", line.ranks, "print only the number of processes that it needs under MPI");
  add_memory(*check, line);
  add_choice_of_cluster(*check, line);
  add_results_directory(*check, line.options);
  add_threads(*check, line.options, "number of threads to assume; 0: one per core");
  check->add_flag("--measure", line.measures,
                  "time micro-batches for some seconds, for a better estimate of runs of unknown duration");
  CLI::App* foretell = app.add_subcommand(
      "predict", "predict time and communication of the methods by formulas and short simulations, without training");
  add_experiment(*foretell, line);
  foretell->add_flag("--json", line.json, "print JSON; `./dev plot` draws predictions of a sweep from it");
  add_option(*foretell, "--against", line.against, "METHOD",
             "compare with this method of the file; default: synchronous SGD")
      ->check([](const std::string& label) { return label.empty() ? "must not be empty" : ""; });
  add_option(*foretell, "--to-target", line.target_runs, "DIR",
             "also predict the time to the target of the finished runs in DIR, from their measured noise scale");
  CLI::App* both = app.add_subcommand(
      "compare", "run an experiment on the simulated cluster and under MPI, and print the error of the simulation");
  add_experiment(*both, line);
  add_run_options(*both, line.options);
  add_compare_options(*both, line.compare);
  add_oversubscribe(*both, line);
  CLI::App* thresholds = app.add_subcommand(
      "thresholds", "print what DropCompute's thresholds would have changed in a recorded run: drops, speed-up, S_eff");
  add_thresholds_options(*thresholds, line.thresholds);
  CLI::App* trace = app.add_subcommand("trace", "convert recordings of a job's times");
  trace->require_subcommand(1);
  add_trace_import_options(
      *trace->add_subcommand("import",
                             "make a recording for [cluster.trace] from PyTorch profiler traces or a CSV file"),
      line.trace_import);
  CLI::App* data = app.add_subcommand("data", "make data sets");
  data->require_subcommand(1);
  add_token_files_options(
      *data->add_subcommand("tokens", "make token files for training.dataset = \"tokens\" from texts"),
      line.token_files);
  CLI::App* table = app.add_subcommand("table", "print the table of finished runs, and differences paired by seed");
  add_tables_options(*table, line.tables);
  CLI::App* exported =
      app.add_subcommand("export", "write finished runs to runs.csv and evaluations.csv, for your own analyses");
  exported->add_option("DIR", line.exported.directory, "a directory that contains runs")->required();
  add_option(*exported, "--to", line.exported.to, "DIR", "directory for the files; default: DIR");
  exported->add_flag("--trials", line.exported.with_trials, "include the trials of tuning, marked in a column `trial`");
  CLI::App* claims = app.add_subcommand("claims", "print the claims of finished experiments, and their verdicts");
  add_option(*claims, "DIR", line.claims.directories, "[results/runs] ...",
             "directories that contain experiments; an experiment in several of them is read from the first");
  add_format(*claims, line.claims.format, "csv: one line per claim");
  claims->add_flag_callback(
      "--markdown", [&line] { line.claims.format = TableFormat::markdown; }, "short for --format markdown");
  CLI::App* list = app.add_subcommand("list", "print the names that an experiment file may use, and their keys");
  list->add_option(
      "NAME", line.listed,
      "algorithms, delays, networks, models, datasets, schedules or optimizers; or a name from these lists, "
      "or a key; any other word is searched for in all descriptions; default: all lists");
  list->add_flag("--write-pages", line.writes_pages,
                 "in a checkout: rewrite experiments/reference.md and the table in algorithms/README.md");
}

// Commands that the script `dev` has and the program lacks.
constexpr std::array commands_of_dev = {"build",  "mpirun", "test",  "bench", "plot",
                                        "report", "lint",   "paper", "format"};

// Returns the command that the first words name, such as `run` or `trace import`, and the number of these words.
std::pair<const CLI::App*, std::size_t> named_command(const CLI::App& app, std::span<char* const> words) {
  const CLI::App* command = &app;
  std::size_t depth = 0;
  for (; depth < words.size(); ++depth) {
    const std::vector<const CLI::App*> parts = command->get_subcommands([](const CLI::App*) { return true; });
    const auto found = std::ranges::find_if(
        parts, [&](const CLI::App* part) { return part->get_name() == std::string_view(words[depth]); });
    if (found == parts.end()) break;
    command = *found;
  }
  return {command, depth};
}

// Throws if a word in the place of a command is none. CLI11's message would only say that a command is missing.
void check_command(const CLI::App& app, std::span<char* const> words) {
  const auto [command, depth] = named_command(app, words);
  const std::string word = depth < words.size() ? words[depth] : "";
  std::vector<std::string> known;
  for (const CLI::App* part : command->get_subcommands([](const CLI::App*) { return true; }))
    known.push_back(part->get_name());
  if (word.empty() || word.front() == '-' || known.empty()) return;
  if (depth == 0 && std::ranges::find(commands_of_dev, word) != commands_of_dev.end())
    throw ConfigurationFault(
        fmt::format("{0}: is not a command of this program, but of the script `dev` in a checkout: ./dev {0}", word));
  throw ConfigurationFault(fmt::format("{}: unknown command; must be one of {}{}",
                                       fmt::join(words.first(depth + 1), " "), fmt::join(known, ", "),
                                       suggestion(word, known)));
}

// Returns a line for each option that the command lacks; empty if it has all of them. The first words are the command.
std::string unknown_options(const CLI::App& app, std::span<char* const> words) {
  const auto [named, depth] = named_command(app, words);
  if (depth == 0) return {};
  const CLI::App& command = *named;
  std::vector<std::string> known;
  for (const CLI::Option* option :
       command.get_options([](const CLI::Option* one) { return !one->get_group().empty(); }))
    for (const std::string& name : option->get_lnames()) known.push_back("--" + name);
  const bool takes_keys = command.get_option_no_throw("key_value") != nullptr;
  std::string text;
  for (const std::string word : words.subspan(depth)) {
    if (word == "--") break;  // no options follow
    const std::string name = word.substr(0, word.find('='));
    const std::size_t begin = name.find_first_not_of('-');
    if (begin == 0 || begin > 2 || !std::isalpha(static_cast<unsigned char>(name[begin]))) continue;
    if (command.get_option_no_throw(name)) continue;
    const bool is_key = takes_keys && (word.find('=') != word.npos || word.find('.') != word.npos);
    std::string hint = suggestion(name, known);
    if (is_key) {
      const std::string key = word.substr(begin) + (word.find('=') == word.npos ? "=VALUE" : "");
      hint += fmt::format("{} keys of the file are written without dashes: {}", hint.empty() ? ";" : "", key);
    }
    if (hint.empty()) hint = fmt::format("; must be one of {}", fmt::join(known, ", "));
    text += fmt::format("{}{}: unknown option of {}{}", text.empty() ? "" : "\n", word,
                        fmt::join(words.first(depth), " "), hint);
  }
  return text;
}

}  // namespace

void choose_runs(Experiment& experiment, const std::vector<std::string>& names) {
  std::set<std::string> known_methods, known_variants, methods, variants, hashes;
  for (const Run& run : experiment.runs) {
    known_methods.insert(run.method);
    if (const std::string variant = variant_of(run); !variant.empty()) known_variants.insert(variant);
  }
  for (const std::string& name : names) {
    // If the experiment tunes, the hashes of its runs are not known yet.
    const auto begins_hash = [&](const Run& run) {
      return !experiment.tuning && !name.empty() && run.hash.starts_with(name);
    };
    if (known_methods.contains(name)) {
      methods.insert(name);
    } else if (known_variants.contains(name)) {
      variants.insert(name);
    } else if (std::ranges::any_of(experiment.runs, begins_hash)) {
      hashes.insert(name);
    } else {
      std::vector<std::string> known(known_methods.begin(), known_methods.end());
      known.insert(known.end(), known_variants.begin(), known_variants.end());
      throw ConfigurationFault(fmt::format(
          "--only {}: must be the label of a method or variant, or the beginning of a run's hash as printed "
          "by `check`{}",
          name, suggestion(name, known)));
    }
  }
  std::erase_if(experiment.runs, [&](const Run& run) {
    const bool has_hash = hashes.empty() || std::ranges::any_of(hashes, [&](const std::string& begin) {
                            return run.hash.starts_with(begin);
                          });
    // A run without a variant is not affected by any, so it matches all of them.
    const std::string variant = variant_of(run);
    const bool has_variant = variants.empty() || variant.empty() || variants.contains(variant);
    return !(has_hash && has_variant && (methods.empty() || methods.contains(run.method)));
  });
  std::erase_if(experiment.methods, [&](const std::string& method) {
    return std::ranges::none_of(experiment.runs, [&](const Run& run) { return run.method == method; });
  });
}

std::vector<std::string> arguments_of_run(const CommandLine& line) {
  std::vector<std::string> words = {"run", line.file};
  words.insert(words.end(), line.overrides.begin(), line.overrides.end());
  for (const std::string& name : line.profiles) words.insert(words.end(), {"--profile", name});
  words.insert(words.end(),
               {"--limit", std::to_string(line.most_runs), "--results", line.options.results_directory, "--quiet"});
  if (line.options.rerun) words.emplace_back("--rerun");
  return words;
}

CommandLine parse_command_line(int argc, char** argv) {
  CommandLine line;
  CLI::App app("Syncopate compares methods of data-parallel training under the same stragglers.", "syncopate");
  add_commands(app, line);
  const std::span<char* const> words = std::span(argv, static_cast<std::size_t>(argc)).subspan(1);
  check_command(app, words);
  try {
    app.parse(argc, argv);
    line.command = app.get_subcommands().front()->get_name();
  } catch (const CLI::ParseError& outcome) {  // also thrown by CLI11 for --help and --version
    std::ostringstream text;
    app.exit(outcome, text, text);
    line.answer = text.str();
    if (outcome.get_exit_code() == 0) return line;
    // The last option lacks its value. CLI11's message would be "1 required TEXT missing".
    if (const std::string what = outcome.what(); outcome.get_name() == "ArgumentMismatch" && what.ends_with("missing"))
      throw ConfigurationFault(
          fmt::format("{}: needs a value\nRun with --help for more information.", what.substr(0, what.find(':'))));
    const std::string unknown = unknown_options(app, words);
    throw ConfigurationFault(unknown.empty() ? line.answer.substr(0, line.answer.find_last_not_of('\n') + 1) : unknown);
  }
  return line;
}

void refuse_keys_of_file(const CommandLine& line) {
  std::vector<std::string> found = line.overrides;
  for (const std::string& name : line.only) found.push_back("--only " + name);
  for (const std::string& name : line.profiles) found.push_back("--profile " + name);
  if (line.most_runs != LoadOptions().most_runs) found.push_back(fmt::format("--limit {}", line.most_runs));
  if (line.options.results_directory != RunOptions().results_directory)
    found.push_back("--results " + line.options.results_directory);
  if (found.empty()) return;
  throw ConfigurationFault(fmt::format(
      "{}: is a directory, so all of its runs are shown; {} {} only for experiment files, and must be left out",
      line.file, fmt::join(found, ", "), found.size() == 1 ? "is" : "are"));
}

}  // namespace syncopate
