#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>
#include <set>

#include "experiments/sections/definition.hpp"
#include "experiments/sections/variation.hpp"
#include "results/summary.hpp"

namespace syncopate {

namespace {

std::vector<Patch> patches_to(const std::vector<VariedKey>& axes, const Setting& setting) {
  std::vector<Patch> patches;
  for (std::size_t i = 0; i < axes.size(); ++i) {
    SourcePlace place = axes[i].place;
    place.origin = "[tune]";
    patches.push_back({axes[i].path, setting[i], std::move(place), axes[i].key});
  }
  return patches;
}

// Sets a trial's target on the validation split if there is one, because settings must be judged by held-out samples.
// The runs after tuning keep the target in the file, which may be on the test set.
void aim_at_validation(TomlNode& root, std::size_t method, const SourcePlace& place) {
  const bool is_held_out = found_at(root, {"training", "validation_samples"}) ||
                           found_at(root, {"methods", std::to_string(method), "training", "validation_samples"});
  TomlNode* const evaluation = root.find("evaluation");
  if (is_held_out && evaluation && (evaluation->find("target_accuracy") || evaluation->find("target_loss")))
    evaluation->set("target_of", place, {std::string("validation"), place});
}

std::vector<Setting> settings_of(const std::vector<VariedKey>& axes) {
  std::vector<Setting> settings;
  for (const auto& place : combinations(axes, [](const VariedKey& axis) { return axis.values.size(); })) {
    settings.emplace_back();
    for (std::size_t i = 0; i < axes.size(); ++i) settings.back().push_back(axes[i].values[place[i]]);
  }
  return settings;
}

// Returns why the measure cannot judge settings; empty if it can.
std::string why_not_judged_by(const std::string& name, const Definition& trained) {
  // A formula has no samples to hold out, so its test loss may judge settings.
  const bool has_data = !trained.training.objective.is_formula();
  if (measure_named(name)->better == Better::neither) return "must be a measure with a better direction (less or more)";
  if (has_data && name.find("test_") != std::string::npos)
    return "must not be a measure of the test set, on which the best settings are evaluated";
  const std::string why = why_not_measured(name, trained);
  if (!why.empty()) return why;
  if (has_data && name.find("to_target") != std::string::npos && !trained.evaluation.targets_validation)
    return "uses the validation split: set training.validation_samples";
  return "";
}

// Returns the name of the measure that judges settings; empty after a fault.
std::string measure_of_tuning(const TuneSection& tune, const std::vector<Definition>& methods, FaultList& faults) {
  const auto all_have = [&methods](const char* measure) {
    return std::ranges::all_of(methods, [&](const Definition& one) { return why_not_measured(measure, one).empty(); });
  };
  const auto fault = [&](const std::string& text) -> std::string {
    faults.add(tune.place, text);
    return {};
  };
  if (!tune.measure.empty()) {
    std::vector<std::string> known;
    for (const Measure& measure : measures()) known.emplace_back(measure.name);
    std::string why;
    if (!measure_named(tune.measure)) why = must_be_one_of(tune.measure, known);
    for (const Definition& one : methods)
      if (why.empty()) why = why_not_judged_by(tune.measure, one);
    return why.empty() ? tune.measure : fault(fmt::format("tune.measure = \"{}\"; {}", tune.measure, why));
  }
  if (!all_have("final_train_loss"))
    return fault("tune.measure is missing; must be set if no model is trained, for example to step_time_s");
  if (std::ranges::all_of(methods, [](const Definition& one) { return one.training.objective.is_formula(); }))
    return "final_test_loss";
  if (!all_have("final_validation_loss"))
    return fault(
        "tune; uses the validation split: set training.validation_samples, or a `measure` that does not need the "
        "split");
  return all_have("final_validation_accuracy") ? "final_validation_accuracy" : "final_validation_loss";
}

// The tuning groups of all methods at their tuning points.
class Groups {
 public:
  Groups(std::shared_ptr<const Expansion> experiment, TuneSection section, FaultList& faults)
      : all(std::move(experiment)), tune(std::move(section)) {
    for (std::size_t point = 0; point < all->points.size(); ++point)
      if (tuning_point(point) == all->points[point]) {
        for (std::size_t method = 0; method < all->methods; ++method) add(point, method, faults);
      }
  }

  const std::shared_ptr<const Expansion> all;
  const TuneSection tune;
  std::vector<TuningGroup> groups{};
  std::vector<std::size_t> points{};  // sweep point of each group
  std::vector<Definition> trained{};  // by method, at the first tuning point

  std::size_t of(std::size_t point, std::size_t method) const { return found_.at({tuning_point(point), method}); }

  // Returns the document of a trial, without [recording].
  TomlNode document_of_trial(std::size_t point, std::size_t method, const Setting& setting, std::uint64_t seed) const {
    TomlNode root = all->documents[point];
    for (const Patch& patch : tune.trials) apply(root, patch);
    for (const Patch& patch : patches_to(tune.axes[method], setting)) apply(root, patch);
    root.erase("recording");
    if (tune.measure.find("to_target") != std::string::npos) aim_at_validation(root, method, tune.place);
    return document_of_run(std::move(root), method, seed);
  }

 private:
  // Returns the point at which methods are tuned for the given point: the axes in `where` take the values that it
  // names.
  SweepPoint tuning_point(std::size_t point) const {
    SweepPoint result = all->points[point];
    for (const auto& [axis, entry] : tune.fixed) result[axis] = entry;
    return result;
  }

  std::vector<PointName> name_of(std::size_t point, std::size_t method) const {
    std::vector<PointName> names = describe_point(all->axes, all->points[point], method);
    for (const auto& [axis, entry] : tune.fixed)
      for (const SweepEntry::Name& fixed : all->axes[axis].entries[entry].names) std::erase(names, fixed.name);
    return names;
  }

  // Returns the fingerprint of a setting's first trial. If its document has faults, adds them and returns nullopt.
  std::optional<std::string> fingerprint(std::size_t point, std::size_t method, const Setting& setting,
                                         FaultList& faults) {
    const Reading one =
        read_document(document_of_trial(point, method, setting, tune.seeds.front()), all->file, all->options);
    faults.add(one.faults);
    if (!one.faults.empty()) return {};
    if (groups.size() < all->methods && trained.size() <= groups.size())
      trained.push_back(one.definition.of(one.definition.methods.front()));
    return fmt::format("{} {}", method, fingerprint_of(one));
  }

  // Adds a group, or shares that of an earlier point with equal trials, because the sweep does not affect the method.
  void add(std::size_t point, std::size_t method, FaultList& faults) {
    const std::vector<Setting> settings = settings_of(tune.axes[method]);
    const std::optional<std::string> first = fingerprint(point, method, settings.front(), faults);
    if (const auto known = first ? fingerprints_.find(*first) : fingerprints_.end(); known != fingerprints_.end()) {
      found_[{all->points[point], method}] = known->second;
      std::vector<PointName> name = name_of(point, method);
      return keep_what_is_equal(groups[known->second].point, name);
    }
    std::set<std::string> fingerprints;
    if (first) {
      fingerprints.insert(*first);
      fingerprints_[*first] = groups.size();
    }
    for (std::size_t i = 1; i < settings.size(); ++i) {
      const std::optional<std::string> next = fingerprint(point, method, settings[i], faults);
      if (next && !fingerprints.insert(*next).second)
        faults.add(tune.place, fmt::format("tune; two settings of \"{}\" make the same run: each value must be listed "
                                           "once, and must affect the method",
                                           tune.methods[method]));
    }
    found_[{all->points[point], method}] = groups.size();
    groups.push_back({.method_index = method,
                      .method = tune.methods[method],
                      .point = name_of(point, method),
                      .axes = tune.axes[method]});
    points.push_back(point);
  }

  std::map<std::pair<SweepPoint, std::size_t>, std::size_t> found_;  // group by tuning point and method
  std::map<std::string, std::size_t> fingerprints_;  // group by the fingerprint of the group's first trial
};

constexpr std::array own_keys = {"seeds", "measure", "where", "extend", "trials"};

bool is_own_key(const std::string& key) { return std::ranges::find(own_keys, key) != own_keys.end(); }

void read_own_keys(Settings& table, TuneSection& section) {
  for (const std::int64_t seed : table.integers({"seeds", "Seeds of the trials; none may be one of the experiment's."},
                                                0, std::numeric_limits<std::int64_t>::max()))
    section.seeds.push_back(static_cast<std::uint64_t>(seed));
  section.measure =
      table.text({"measure", "The measure that judges settings, named as in `table`; not of the test set."},
                 Stated<std::string>("", "final_validation_accuracy, or the loss without an accuracy"));
  if (section.measure.empty()) table.leave_out("measure");
  section.extensions = static_cast<int>(table.integer(
      {"extend", "How often a grid may grow by one value while its best setting is at an edge."}, 0, 100, 2));
  table.keep_as_written({"where", "Swept keys with the one value at which methods are tuned, for all of its values."});
  table.keep_as_written(
      {"trials", "Keys that only trials have, such as a shorter budget; written as in [[variants]]."});
}

// Whether one of the paths leads into the other.
bool overlap(const Path& a, const Path& b) { return begins_with(a, b) || begins_with(b, a); }

class TuneReader {
 public:
  TuneReader(const TomlNode& root, const std::vector<SweepAxis>& swept, FaultList& faults)
      : root_(root), swept_(swept), faults_(faults) {}

  std::optional<TuneSection> read(const TomlNode& tune) {
    const std::size_t faults_before = faults_.size();
    section_.place = tune.place;
    read_settings(tune);
    read_methods();
    if (section_.methods.empty()) return {};  // definition.cpp reports it
    if (const TomlNode* where = tune.find("where")) read_where(*where);
    read_keys(tune);
    if (const TomlNode* trials = tune.find("trials")) read_trials(*trials);
    check_seeds(tune);
    if (faults_.size() > faults_before) return {};
    join();
    if (!section_.axes.empty() && std::ranges::all_of(section_.axes, &std::vector<VariedKey>::empty)) {
      if (!left_out_) faults_.add(tune.place, "tune; must contain at least one key with the values to try");
      return {};
    }
    check_numbers(tune);
    if (faults_.size() > faults_before) return {};
    return section_;
  }

 private:
  void read_settings(const TomlNode& tune) {
    TomlNode own, alone;
    for (const TomlNode::Member& member : tune.table())
      if (is_own_key(member.key)) own.set(member.key, member.place, member.value);
    own.place = tune.place;
    alone.set("tune", tune.place, std::move(own));
    SettingsDocument document(std::move(alone));
    Settings root = document.root(), table = root.section("tune");
    read_own_keys(table, section_);
    faults_.add(document.check());
  }

  void read_methods() {
    const TomlNode* methods = root_.find("methods");
    if (!methods || !methods->is_array_of_tables()) return;
    for (const TomlNode& method : methods->array()) {
      const TomlNode* name = method.find("label") ? method.find("label") : method.find("algorithm");
      section_.methods.push_back(name ? plain_text(*name) : std::to_string(section_.methods.size()));
    }
    section_.axes.resize(section_.methods.size());
  }

  // Reads `where`. Each of its members names an axis and one of the axis's values.
  void read_where(const TomlNode& where) {
    if (!require_table(where, "tune.where", "a table of swept keys or `variant`", faults_)) return;
    SweptNames known;
    for (const SweepAxis& axis : swept_)
      for (const SweepEntry& entry : axis.entries)
        for (const auto& [name, methods] : entry.names) known[name.first].insert(name.second);
    for (const TomlNode::Member& member : where.table()) {
      const PointName wanted{member.key, plain_text(member.value)};
      if (const std::string why = why_not_swept(known, wanted.first, wanted.second); !why.empty())
        faults_.add(member.place, "tune.where; " + why);
      for (std::size_t axis = 0; axis < swept_.size(); ++axis)
        for (std::size_t entry = 0; entry < swept_[axis].entries.size(); ++entry)
          if (std::ranges::count(swept_[axis].entries[entry].names, wanted, &SweepEntry::Name::name) > 0)
            section_.fixed[axis] = entry;
    }
  }

  void read_keys(const TomlNode& tune) {
    for (VariedKey& key : read_varied_keys(
             root_, tune, "tune", is_own_key, [this](const VariedKey& one) { check(one); }, faults_)) {
      if (is_set_by_command_line(root_, key.path))
        left_out_ = true;
      else
        keys_.push_back(std::move(key));
    }
    std::stable_partition(keys_.begin(), keys_.end(),
                          [](const VariedKey& key) { return key.path.front() == "training"; });
  }

  // Reads [tune.trials]. Its keys must not be tuned, because the values to try would replace them.
  void read_trials(const TomlNode& trials) {
    if (!require_table(trials, "tune.trials", "a table of keys that only trials have", faults_)) return;
    section_.trials = patches_of_runs(root_, trials, "tune.trials", "[tune.trials]", faults_);
    const auto refuse = [this](const Patch& patch, const std::string& why) {
      faults_.add(patch.place, fmt::format("tune.trials.{}; {}", patch.key, why));
    };
    for (const Patch& patch : section_.trials) {
      const Path& path = patch.path;
      const auto tuned = std::ranges::find_if(keys_, [&](const VariedKey& key) { return overlap(key.path, path); });
      if (path.front() == "methods" && (path.size() < 3 || path[2] == "label" || path[2] == "algorithm"))
        refuse(patch, "must not be changed in trials: it identifies the methods");
      else if (tuned != keys_.end())
        refuse(patch, fmt::format("must not be changed in trials: \"{}\" is tuned", tuned->key));
    }
  }

  void check(const VariedKey& key) const {
    const Path& path = key.path;
    const bool is_of_method = path.front() == "methods" && path.size() > 2;
    if (!is_of_method && !(path.front() == "training" && path.size() > 1))
      throw KeyPathFault("must be a key of [training] or of a method: methods.LABEL.key");
    if (!is_of_method) return;
    static_cast<void>(element_index(*root_.find("methods"), path[1]));  // throws if there is no such method
    if (path[2] == "label" || path[2] == "algorithm") throw KeyPathFault("must not be tuned: it identifies the method");
  }

  // Whether a sweep or variant sets the key. This is a fault, unless the command line sweeps the key.
  bool is_swept(const VariedKey& axis, const Path& path) {
    for (const SweepAxis& varies : swept_)
      for (const SweepEntry& entry : varies.entries)
        for (const Patch& patch : entry.patches) {
          if (!overlap(path, patch.path)) continue;
          if (patch.place.source == command_line_source) return true;
          faults_.add(axis.place,
                      fmt::format("tune.\"{}\"; must not be tuned: the sweep or variants set it (\"{}\")", axis.key,
                                  entry.names.front().name.first == "variant" ? "variant" : patch.key));
          return true;
        }
    return false;
  }

  // Sets each method's axes: the tuned keys of [training] that the method does not override, and its own tuned keys.
  void join() {
    for (std::size_t method = 0; method < section_.axes.size(); ++method)
      for (const VariedKey& key : keys_) {
        const Path own = {"methods", std::to_string(method)};
        VariedKey axis = key;
        if (key.path.front() == "training") {
          axis.path.insert(axis.path.begin(), own.begin(), own.end());
          if (std::ranges::any_of(keys_, [&](const VariedKey& other) { return overlap(other.path, axis.path); }))
            continue;
        } else if (!begins_with(key.path, own)) {
          continue;
        }
        if (is_swept(axis, key.path) || is_swept(axis, axis.path))
          left_out_ = true;
        else
          section_.axes[method].push_back(std::move(axis));
      }
  }

  void check_seeds(const TomlNode& tune) {
    const TomlNode *own = tune.find("seeds"), *seeds = root_.find("seeds");
    if (!own || !own->is_array()) return;  // read_settings reports it
    std::set<std::uint64_t> others, seen;
    if (!seeds) others = {1};
    if (seeds && seeds->is_array())
      for (const TomlNode& seed : seeds->array())
        if (const auto* number = std::get_if<std::int64_t>(&seed.value))
          others.insert(static_cast<std::uint64_t>(*number));
    if (own->array().empty()) faults_.add(own->place, "tune.seeds = []; must list at least one seed");
    for (const std::uint64_t seed : section_.seeds)
      if (others.contains(seed) || !seen.insert(seed).second)
        faults_.add(own->place,
                    fmt::format("tune.seeds = {}; {}", inline_toml(*own),
                                others.contains(seed)
                                    ? fmt::format("must not contain the experiment's own seeds, such as {}", seed)
                                    : fmt::format("must not list {} twice", seed)));
  }

  void check_numbers(const TomlNode& tune) {
    std::string text;
    bool differ = false;
    for (std::size_t method = 0; method < section_.axes.size(); ++method) {
      text +=
          fmt::format("{}\"{}\" has {}", text.empty() ? "" : ", ", section_.methods[method], section_.settings(method));
      differ |= section_.settings(method) != section_.settings(0);
    }
    if (differ) faults_.add(tune.place, fmt::format("tune; every method must have equally many settings: {}", text));
  }

  const TomlNode& root_;
  const std::vector<SweepAxis>& swept_;
  FaultList& faults_;
  TuneSection section_;
  std::vector<VariedKey> keys_;  // those of [training] before those of methods
  bool left_out_ = false;        // whether a key is not tuned because the command line sets it
};

}  // namespace

std::uint64_t number_of_trials(const TuneSection& tune, const std::vector<SweepAxis>& axes) {
  std::uint64_t trials = saturated_product(tune.seeds.size(), tune.methods.size());
  for (std::size_t axis = 0; axis < axes.size(); ++axis)
    if (!tune.fixed.contains(axis)) trials = saturated_product(trials, axes[axis].entries.size());
  return saturated_product(trials, tune.settings(0));
}

std::shared_ptr<const TuningPlan> plan_tuning(const std::shared_ptr<const Expansion>& all, const TuneSection& tune,
                                              std::span<const Run> runs, FaultList& faults) {
  FaultList found;
  const auto groups = std::make_shared<const Groups>(all, tune, found);
  TuningPlan plan{.seeds = tune.seeds,
                  .measure = found.empty() ? measure_of_tuning(tune, groups->trained, found) : "",
                  .extensions = tune.extensions};
  faults.add(found);
  if (!found.empty()) return nullptr;
  for (const auto& [axis, entry] : tune.fixed)
    for (const SweepEntry::Name& name : all->axes[axis].entries[entry].names) plan.where.push_back(name.name);
  plan.groups = groups->groups;
  for (const Run& run : runs) plan.group_of_run.emplace(run.hash, groups->of(run.point_index, run.method_index));
  plan.trial = [all, groups](std::size_t group, const Setting& setting, std::uint64_t seed) {
    const TuningGroup& of = groups->groups[group];
    Run run = plan_run(groups->document_of_trial(groups->points[group], of.method_index, setting, seed), all->file,
                       all->options);
    run.is_trial = true;
    run.method_index = of.method_index;
    run.sweep = of.point;
    for (std::size_t i = 0; i < setting.size(); ++i)
      run.sweep.emplace_back(of.axes[i].key, label_of(of.axes[i], setting[i]));
    return run;
  };
  plan.runs = [all, groups](const std::map<std::size_t, Setting>& settings) {
    const auto tuned = [&](std::size_t point, std::size_t method) -> std::optional<std::vector<Patch>> {
      const std::size_t group = groups->of(point, method);
      const auto setting = settings.find(group);
      if (setting == settings.end()) return {};
      return patches_to(groups->groups[group].axes, setting->second);
    };
    return runs_of(*all, tuned);
  };
  return std::make_shared<const TuningPlan>(std::move(plan));
}

std::uint64_t TuneSection::settings(std::size_t method) const {
  std::uint64_t number = 1;
  for (const VariedKey& axis : axes[method]) number = saturated_product(number, axis.values.size());
  return number;
}

std::optional<TuneSection> read_tune(const TomlNode& root, const std::vector<SweepAxis>& swept, FaultList& faults) {
  const TomlNode* tune = root.find("tune");
  if (!tune || !require_table(*tune, "tune", "a table, [tune]", faults)) return {};
  return TuneReader(root, swept, faults).read(*tune);
}

void describe_tune(Settings& root) {
  TuneSection ignored;
  Settings table =
      root.section({"tune", "Keys of [training] and of methods, each with values to try before the runs."});
  read_own_keys(table, ignored);
}

}  // namespace syncopate
