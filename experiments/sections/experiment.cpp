#include "experiments/sections/experiment.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <new>
#include <string_view>
#include <variant>

#include "experiments/sections/definition.hpp"
#include "experiments/sections/variation.hpp"
#include "workers/base/machine.hpp"

namespace syncopate {

namespace {

// Checks that each axis (the variants, or swept keys) changes the runs of at least one method.
void check_axes(const std::vector<SweepAxis>& axes, const std::vector<Run>& runs) {
  FaultList faults;
  for (const SweepAxis& axis : axes) {
    const auto names_axis = [&axis](const PointName& name) {
      return std::ranges::any_of(axis.entries.front().names,
                                 [&](const SweepEntry::Name& of_axis) { return of_axis.name.first == name.first; });
    };
    if (std::ranges::any_of(runs, [&](const Run& run) { return std::ranges::any_of(run.sweep, names_axis); })) continue;
    const std::string& key = axis.entries.front().names.front().name.first;
    faults.add(axis.place,
               key == "variant"
                   ? "variants; must differ in a key that a method uses: all of them make the same runs"
                   : fmt::format("sweep.\"{}\"; must be a key that a method uses: all values make the same runs", key));
  }
  throw_if_any(faults);
}

TomlNode load_document(const std::string& file) {
  try {
    return load_toml(file);
  } catch (const TomlSyntaxFault& fault) {
    throw ConfigurationFault(fault.what());
  }
}

std::uint64_t elements(const TomlNode& root, std::string_view key) {
  const TomlNode* list = root.find(key);
  return list && list->is_array() ? std::max<std::uint64_t>(list->array().size(), 1) : 1;
}

// A lower bound, in bytes, of the memory of a planned run, which contains its keys as text and as values.
constexpr double least_bytes_of_run = 2000;

void require_memory_for(std::uint64_t runs, const SourcePlace& place) {
  constexpr std::uint64_t few = 10'000;
  if (runs <= few) return;
  const double needed = least_bytes_of_run * static_cast<double>(runs);
  const auto free = static_cast<double>(free_memory_bytes());
  if (needed <= free) return;
  throw ConfigurationFault(
      fmt::format("{}: {} runs; not enough memory to list them: they need at least {:.2g} GB, and {:.2g} GB are free",
                  place.text(), runs, 1e-9 * needed, 1e-9 * free));
}

// Replaces a number of seeds by a list: seeds = 5 means 1 to 5. Lists at most `most` seeds, because
// check_number_of_runs refuses larger numbers. Returns the number of seeds.
std::uint64_t list_seeds(TomlNode& root, std::int64_t most) {
  TomlNode* seeds = root.find("seeds");
  const auto* number = seeds ? std::get_if<std::int64_t>(&seeds->value) : nullptr;
  if (number && *number < 1)
    throw ConfigurationFault(fmt::format("{}: seeds = {}; must be a number of seeds, at least 1, or a list of seeds",
                                         seeds->place.text(), *number));
  if (!number) return elements(root, "seeds");
  const std::int64_t count = *number;
  require_memory_for(static_cast<std::uint64_t>(std::min(count, most)), seeds->place);
  TomlNode::Array list;
  for (std::int64_t seed = 1; seed <= std::min(count, most); ++seed) list.push_back({seed, seeds->place});
  seeds->value = std::move(list);
  return static_cast<std::uint64_t>(count);
}

// Reads the file without its variants, with the first value of each swept key. `check` prints this reading, so its
// output can be read as an experiment file.
Reading read_without_variants(TomlNode root, const std::vector<SweepAxis>& axes, const std::string& file,
                              const LoadOptions& options, FaultList& faults) {
  const std::vector<SweepAxis> swept(axes.begin() + 1, axes.end());  // without the variants, which are the first axis
  apply_sweep(root, swept, SweepPoint(swept.size(), 0), faults);
  Reading reading = read_document(root, file, options);
  faults.add(reading.faults);
  return reading;
}

// Refuses too many runs, because reading them takes long: each sweep point is read as a whole, and each run alone.
void check_number_of_runs(const TomlNode& root, const std::vector<SweepAxis>& axes,
                          const std::optional<TuneSection>& tune, std::uint64_t seeds, std::int64_t most) {
  const std::uint64_t points = number_of_points(axes), methods = elements(root, "methods");
  const std::uint64_t runs = saturated_product(saturated_product(points, methods), seeds);
  const std::uint64_t trials = tune ? number_of_trials(*tune, axes) : 0;
  if (runs <= static_cast<std::uint64_t>(most) && trials > static_cast<std::uint64_t>(most) - runs)
    throw ConfigurationFault(
        fmt::format("{}: tune; {} trials and {} runs; must be at most {} together; --limit N changes this limit",
                    tune->place.text(), trials, runs, most));
  const TomlNode* sweep = root.find("sweep") ? root.find("sweep") : root.find("seeds");
  const SourcePlace& place = sweep ? sweep->place : root.place;
  if (runs <= static_cast<std::uint64_t>(most)) return require_memory_for(runs + trials, place);
  throw ConfigurationFault(fmt::format("{}: {}{} x {} are {} runs; must be at most {}; --limit N changes this limit",
                                       place.text(), points > 1 ? fmt::format("{} points of a sweep x ", points) : "",
                                       counted(methods, "method"), counted(seeds, "seed"), runs, most));
}

// Returns a function that returns why no sweep point of a method has a measure.
WhyNot why_not_measured_in(const std::vector<Reading>& points) {
  return [&points](const std::string& measure, const std::string& method) {
    std::string why;
    for (const Reading& point : points)
      for (const Method& one : point.definition.methods) {
        if (one.label != method) continue;
        why = why_not_measured(measure, point.definition.of(one));
        if (why.empty()) return why;
      }
    return why;
  };
}

std::string lines_without(const std::string& text, const std::string& other) {
  const std::vector<std::string> known = split_lines(other);
  std::vector<std::string> lines = split_lines(text);
  std::erase_if(lines, [&known](const std::string& line) { return std::ranges::find(known, line) != known.end(); });
  return fmt::format("{}", fmt::join(lines, "\n"));
}

// Checks that at least one method has a server if the file contains [network.server].
void check_server_link(const TomlNode& root, const std::vector<Reading>& readings, FaultList& faults) {
  const TomlNode* const server = found_at(root, {"network", "server"});
  const auto has_server = [](const Method& method) { return method.algorithm->traits().servers > 0; };
  if (!server || std::ranges::any_of(readings, [&](const Reading& reading) {
        return std::ranges::any_of(reading.definition.methods, has_server);
      }))
    return;
  faults.add(server->place,
             fmt::format("network.server = {}; must be left out: no method has a server", inline_toml(*server)));
}

// Adds the notes about the data sets, models and recordings of all methods, without repetitions.
void add_file_notes(const Reading& reading, std::vector<std::string>& notes) {
  const auto add = [&notes](const std::string& note) {
    if (!note.empty() && std::ranges::find(notes, note) == notes.end()) notes.push_back(note);
  };
  std::ranges::for_each(reading.definition.training.objective.notes, add);
  const ClusterSection& cluster = reading.definition.cluster;
  for (const TraceLimit& limit : cluster.traces)
    add(limit.trace->note_on_holes(std::min(cluster.plan.micro_batches, limit.trace->micro_batches())));
  if (cluster.plan.outages) std::ranges::for_each(cluster.plan.outages->notes_on_nodes(cluster.plan.workers), add);
  for (const Method& method : reading.definition.methods)
    if (method.own) add_file_notes(*method.own, notes);
  if (reading.common_phase) add_file_notes(*reading.common_phase, notes);
}

}  // namespace

Experiment load_experiment(const std::string& file, const std::vector<std::string>& overrides,
                           const LoadOptions& options) try {
  const TomlNode written = load_document(file);
  TomlNode root = written;
  FaultList faults;
  apply_profiles(root, options.profiles, faults);
  apply_command_line(root, overrides, faults);
  apply_references(root, file, faults);
  const std::uint64_t seeds = list_seeds(root, options.most_runs);
  const std::vector<SweepAxis> axes = read_sweep(root, faults);
  const std::optional<TuneSection> tune = read_tune(root, axes, faults);
  if (root.find("tune") && !tune && faults.empty()) root.erase("tune");  // the command line sets all tuned keys
  check_number_of_runs(root, axes, tune, seeds, options.most_runs);

  // Reads every sweep point with all methods before any single run. So all faults are reported together, with the
  // methods' positions in the file.
  const std::vector<SweepPoint> points = sweep_points(axes);
  std::vector<TomlNode> documents;
  std::vector<Reading> readings;
  // Later points omit the lists of all values: a copy per point would take memory quadratic in the number of points.
  const TomlNode of_further_points = without_keys_of_file(root);
  for (const SweepPoint& point : points) {
    documents.push_back(documents.empty() ? root : of_further_points);
    apply_sweep(documents.back(), axes, point, faults);
    readings.push_back(read_document(documents.back(), file, options));
    FaultList found = readings.back().faults;
    say_what_was_replaced(found, documents.back(), {&root, &written});
    faults.add(found);
  }
  if (root.find("variants") && !axes.empty())
    readings.push_back(read_without_variants(root, axes, file, options, faults));
  if (!faults.empty()) read_claims(root, {}, {}, {}, faults);  // so that all faults appear at once
  if (faults.empty()) check_server_link(root, readings, faults);
  throw_if_any(faults);

  const Definition& first = readings.front().definition;
  const Reading& whole = root.find("variants") ? readings.back() : readings.front();
  Experiment experiment{.name = first.name,
                        .description = first.description,
                        .file = file,
                        .resolved_toml = write_toml(with_numbers_as_asked(whole.resolved)),
                        .known_keys = whole.known_keys,
                        .runs = {},
                        .methods = {},
                        .seeds = first.seeds};
  for (const Method& method : first.methods) experiment.methods.push_back(method.label);
  for (const Reading& reading : readings) add_file_notes(reading, experiment.file_notes);
  const auto all = std::make_shared<const Expansion>(Expansion{.file = file,
                                                               .options = options,
                                                               .axes = axes,
                                                               .points = points,
                                                               .documents = std::move(documents),
                                                               .methods = first.methods.size(),
                                                               .seeds = first.seeds});
  experiment.runs = runs_of(*all);
  check_axes(axes, experiment.runs);
  for (const Run& run : experiment.runs) experiment.hashes.push_back(run.hash);
  std::vector<std::string> meant = experiment.hashes;
  if (tune) {
    experiment.tuning = plan_tuning(all, *tune, experiment.runs, faults);
    meant.push_back(inline_toml(*root.find("tune")));
  }
  experiment.digest = digest_of_hashes(meant);
  experiment.claims = read_claims(root, experiment.methods, experiment.runs, why_not_measured_in(readings), faults);
  throw_if_any(faults);
  return experiment;
} catch (const std::bad_alloc&) {
  throw std::runtime_error(fmt::format("{}: not enough memory to read the file and expand its runs", file));
}

std::string difference_from_file(const Experiment& experiment, const std::vector<std::string>& overrides,
                                 LoadOptions options) {
  if (overrides.empty()) return {};
  options.measure = {};  // runs with micro_batch_s = "measured" are compared without their times, which vary
  const auto is_measured = [](const Run& run) { return run.cluster.measured_micro_batch_s.has_value(); };
  try {
    const Experiment plain = load_experiment(experiment.file, {}, options);
    const bool is_same = std::ranges::any_of(experiment.runs, is_measured)
                             ? load_experiment(experiment.file, overrides, options).digest == plain.digest
                             : experiment.digest == plain.digest;
    if (is_same && experiment.claims == plain.claims) return {};
  } catch (const ConfigurationFault&) {  // the file cannot be read without its overrides
  }
  return fmt::format("with {}", fmt::join(overrides, " "));
}

void check_profiles(const std::string& file, const LoadOptions& options, const std::string& faults_without) {
  const TomlNode root = load_document(file);
  const TomlNode* written = root.find("profiles");
  const TomlNode profiles = written && written->is_table() ? *written : TomlNode{};
  std::string faults = faults_without;
  for (const TomlNode::Member& profile : profiles.table()) {
    if (std::ranges::find(options.profiles, profile.key) != options.profiles.end()) continue;
    LoadOptions with_it = options;
    with_it.profiles = {profile.key};
    try {
      load_experiment(file, {}, with_it);
    } catch (const ConfigurationFault& fault) {
      if (const std::string its_own = lines_without(fault.what(), faults_without); !its_own.empty())
        faults += fmt::format("{}with --profile {}:\n{}", faults.empty() ? "" : "\n", profile.key, its_own);
    }
  }
  if (!faults.empty()) throw ConfigurationFault(faults);
}

}  // namespace syncopate
