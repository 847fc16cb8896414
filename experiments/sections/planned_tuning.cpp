#include "experiments/sections/planned_tuning.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "experiments/sections/measurable.hpp"
#include "experiments/sections/reading.hpp"
#include "results/rows/measures.hpp"
#include "workers/settings/nearest_name.hpp"

namespace syncopate {
namespace {

// The point at which a method is tuned for this one.
SweepPoint tuning_point(SweepPoint point, const TuneSection& tune) {
  for (const auto& [axis, entry] : tune.fixed) point[axis] = entry;
  return point;
}

std::vector<Change> changes_to(const std::vector<TunedAxis>& axes, const Setting& setting) {
  std::vector<Change> changes;
  for (std::size_t i = 0; i < axes.size(); ++i)
    changes.push_back({axes[i].path, axes[i].key, axes[i].place, setting[i]});
  return changes;
}

// Settings are judged by what is held out, and the runs, as the file says, by the test set: a trial's target is one of
// the validation split where there is one.
void aim_at_validation(TomlNode& root, std::size_t method, const SourcePlace& place) {
  const auto holds_out = [](const TomlNode* training) {
    return training && training->is_table() && training->find("validation_samples");
  };
  TomlNode* evaluation = root.find("evaluation");
  const TomlNode* methods = root.find("methods");
  const bool is_held_out = holds_out(root.find("training")) || holds_out(methods->array()[method].find("training"));
  if (!is_held_out || !evaluation || !evaluation->is_table()) return;
  if (evaluation->find("target_accuracy") || evaluation->find("target_loss"))
    evaluation->set("target_of", place, {std::string("validation"), place});
}

// The document of a trial. What is only recorded is not.
TomlNode document_of_trial(const Expansion& all, std::size_t point, std::size_t method,
                           const std::vector<TunedAxis>& axes, const Setting& setting, std::uint64_t seed,
                           const TuneSection& tune) {
  TomlNode root = all.documents[point];
  for (const Change& change : changes_to(axes, setting)) apply(root, change);
  root.erase("recording");
  if (tune.measure.find("to_target") != std::string::npos) aim_at_validation(root, method, tune.place);
  return document_of_run(std::move(root), method, seed);
}

// Every combination, the last axis varying fastest.
std::vector<Setting> settings_of(const std::vector<TunedAxis>& axes) {
  std::vector<Setting> settings = {{}};
  for (const TunedAxis& axis : axes) {
    std::vector<Setting> longer;
    for (const Setting& setting : settings)
      for (const TomlNode& value : axis.values) {
        longer.push_back(setting);
        longer.back().push_back(value);
      }
    settings = std::move(longer);
  }
  return settings;
}

// A model whose loss is a formula, such as the quadratic: nothing can be held out, and nothing is learned from a test.
bool is_formula(const ObjectivePlan& objective) { return objective.load && !objective.load_kinds; }

// Why settings cannot be judged by it; empty: they can.
std::string why_not_judged_by(const std::string& name, const Definition& trained) {
  const bool has_data = !is_formula(trained.training.objective);
  if (measure_named(name)->better == Better::neither) return "must be one of which less or more is better";
  if (has_data && name.find("test_") != std::string::npos)
    return "must be none of the test set, on which the best settings are evaluated";
  const std::string why = why_not_measured(name, trained);
  if (!why.empty()) return why;
  if (has_data && name.find("to_target") != std::string::npos && !trained.evaluation.targets_validation)
    return "goes by the validation split: must stand beside training.validation_samples";
  return "";
}

// Empty after a fault.
std::string measure_of_tuning(const TuneSection& tune, const std::vector<Definition>& methods, FaultList& faults) {
  const auto all_have = [&methods](const char* measure) {
    return std::ranges::all_of(methods, [&](const Definition& one) { return why_not_measured(measure, one).empty(); });
  };
  if (!tune.measure.empty()) {
    std::vector<std::string> known;
    for (const Measure& measure : measures()) known.emplace_back(measure.name);
    std::string why;
    if (!measure_named(tune.measure)) why = must_be_one_of(tune.measure, known);
    for (const Definition& one : methods)
      if (why.empty()) why = why_not_judged_by(tune.measure, one);
    if (why.empty()) return tune.measure;
    faults.add(tune.place, fmt::format("tune.measure = \"{}\"; {}", tune.measure, why));
    return {};
  }
  if (!all_have("final_train_loss")) {
    faults.add(tune.place, "tune.measure is missing; must be named where no model is trained, such as step_time_s");
    return {};
  }
  if (std::ranges::all_of(methods, [](const Definition& one) { return is_formula(one.training.objective); }))
    return "final_test_loss";
  if (!all_have("final_validation_loss")) {
    faults.add(tune.place,
               "tune; judges by the validation split: must stand beside training.validation_samples, or name a measure "
               "that needs none");
    return {};
  }
  return all_have("final_validation_accuracy") ? "final_validation_accuracy" : "final_validation_loss";
}

// The groups of all methods at the points at which they are tuned.
class Groups {
 public:
  // The first two outlive it.
  Groups(const Expansion& all, const TuneSection& tune, FaultList& faults) : all_(all), tune_(tune) {
    for (std::size_t point = 0; point < all.points.size(); ++point)
      if (tuning_point(all.points[point], tune) == all.points[point]) {
        numbers_[all.points[point]] = point;
        for (std::size_t method = 0; method < all.methods; ++method) add(point, method, faults);
      }
  }

  std::vector<TuningGroup> groups{};
  std::vector<std::size_t> points{};  // of each
  std::vector<Definition> trained{};

  std::size_t of(std::size_t point, std::size_t method) const {
    return found_.at({numbers_.at(tuning_point(all_.points[point], tune_)), method});
  }

 private:
  std::vector<PointName> name_of(std::size_t point, std::size_t method) const {
    std::vector<PointName> names;
    for (std::size_t axis = 0; axis < all_.axes.size(); ++axis) {
      if (tune_.fixed.contains(axis)) continue;
      for (PointName& name : describe_point({all_.axes[axis]}, {all_.points[point][axis]}, method))
        names.push_back(std::move(name));
    }
    return names;
  }

  // Of a setting's first trial; nothing after faults, which are added.
  std::optional<std::string> course(std::size_t point, std::size_t method, const Setting& setting, FaultList& faults) {
    const Reading one =
        read_document(document_of_trial(all_, point, method, tune_.axes[method], setting, tune_.seeds.front(), tune_),
                      all_.file, all_.options);
    faults.add(one.faults);
    if (!one.faults.empty()) return {};
    if (groups.size() < all_.methods && trained.size() <= groups.size())
      trained.push_back(one.definition.of(one.definition.methods.front()));
    return fmt::format("{} {}", method, course_of(one));
  }

  // A method that has the trials of an earlier point, since what varies does not concern it, has its group.
  void add(std::size_t point, std::size_t method, FaultList& faults) {
    const std::vector<Setting> settings = settings_of(tune_.axes[method]);
    const std::optional<std::string> first = course(point, method, settings.front(), faults);
    if (const auto known = first ? courses_.find(*first) : courses_.end(); known != courses_.end()) {
      found_[{point, method}] = known->second;
      std::vector<PointName> name = name_of(point, method);
      return keep_what_is_equal(groups[known->second].point, name);
    }
    std::set<std::string> courses;
    if (first) {
      courses.insert(*first);
      courses_[*first] = groups.size();
    }
    for (std::size_t i = 1; i < settings.size(); ++i) {
      const std::optional<std::string> next = course(point, method, settings[i], faults);
      if (next && !courses.insert(*next).second)
        faults.add(tune_.place, fmt::format("tune; settings of \"{}\" make the same run: must hold no value twice",
                                            tune_.methods[method]));
    }
    found_[{point, method}] = groups.size();
    groups.push_back({.method_index = method,
                      .method = tune_.methods[method],
                      .point = name_of(point, method),
                      .axes = tune_.axes[method]});
    points.push_back(point);
  }

  const Expansion& all_;
  const TuneSection& tune_;
  std::map<std::pair<std::size_t, std::size_t>, std::size_t> found_;  // by tuning point and method
  std::map<SweepPoint, std::size_t> numbers_;                         // of tuning points
  std::map<std::string, std::size_t> courses_;                        // of groups' first trials
};

}  // namespace

std::uint64_t number_of_trials(const TuneSection& tune, const std::vector<SweepAxis>& axes) {
  std::uint64_t trials = saturated_product(tune.seeds.size(), tune.methods.size());
  for (std::size_t axis = 0; axis < axes.size(); ++axis)
    if (!tune.fixed.contains(axis)) trials = saturated_product(trials, axes[axis].entries.size());
  return saturated_product(trials, tune.settings(0));
}

std::shared_ptr<const TuningPlan> plan_tuning(const std::shared_ptr<const Expansion>& all, const TuneSection& tune,
                                              std::span<const Run> runs, std::span<const std::size_t> points,
                                              FaultList& faults) {
  FaultList found;
  auto kept = std::make_shared<const TuneSection>(tune);
  const auto groups = std::make_shared<Groups>(*all, *kept, found);
  TuningPlan plan{.seeds = tune.seeds,
                  .measure = found.empty() ? measure_of_tuning(tune, groups->trained, found) : "",
                  .extensions = tune.extensions};
  faults.add(found);
  if (!found.empty()) return nullptr;
  for (const auto& [axis, entry] : tune.fixed)
    for (const SweepEntry::Name& name : all->axes[axis].entries[entry].names) plan.where.push_back(name.name);
  plan.groups = groups->groups;
  for (std::size_t i = 0; i < runs.size(); ++i)
    plan.group_of_run.emplace(runs[i].hash, groups->of(points[i], runs[i].method_index));
  plan.trial = [all, kept, groups](std::size_t group, const Setting& setting, std::uint64_t seed) {
    const TuningGroup& of = groups->groups[group];
    Run run = plan_run(document_of_trial(*all, groups->points[group], of.method_index, of.axes, setting, seed, *kept),
                       all->file, all->options);
    run.is_trial = true;
    run.method_index = of.method_index;
    run.sweep = of.point;
    for (std::size_t i = 0; i < setting.size(); ++i)
      run.sweep.emplace_back(of.axes[i].key, label_of(of.axes[i], setting[i]));
    return run;
  };
  plan.runs = [all, kept, groups](const std::map<std::size_t, Setting>& settings) {
    const auto tuned = [&](std::size_t point, std::size_t method) -> std::optional<std::vector<Change>> {
      const std::size_t group = groups->of(point, method);
      const auto setting = settings.find(group);
      if (setting == settings.end()) return {};
      return changes_to(groups->groups[group].axes, setting->second);
    };
    return runs_of(*all, tuned).runs;
  };
  return std::make_shared<const TuningPlan>(std::move(plan));
}

}  // namespace syncopate
