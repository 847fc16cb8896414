#include "experiments/sections/tune_section.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <limits>
#include <set>
#include <utility>

#include "experiments/sections/document_changes.hpp"
#include "experiments/sections/swept_values.hpp"
#include "workers/settings/key_path.hpp"
#include "workers/settings/nearest_name.hpp"
#include "workers/settings/settings_document.hpp"

namespace syncopate {
namespace {

using Path = std::vector<std::string>;

constexpr std::array own_keys = {"seeds", "measure", "where", "extend"};

bool is_own_key(const std::string& key) { return std::ranges::find(own_keys, key) != own_keys.end(); }

void read_own_keys(Settings& table, TuneSection& section) {
  for (const std::int64_t seed : table.integers({"seeds", "Of the trials: none of the experiment's seeds."}, 0,
                                                std::numeric_limits<std::int64_t>::max()))
    section.seeds.push_back(static_cast<std::uint64_t>(seed));
  section.measure =
      table.text({"measure", "What settings are judged by: a measure of `table`, but none of the test set."},
                 Stated<std::string>("", "final_validation_accuracy, or the loss where there is none"));
  if (section.measure.empty()) table.leave_out("measure");
  section.extensions = static_cast<int>(table.integer(
      {"extend", "How often a grid grows by another value where its best setting is at an edge, at most."}, 0, 100, 2));
  table.keep_as_written({"where", "Values of what varies at which methods are tuned, for all of its values."});
}

std::string text_of(const TomlNode& value) {
  const auto* text = std::get_if<std::string>(&value.value);
  return text ? *text : inline_toml(value);
}

class TuneReader {
 public:
  TuneReader(const TomlNode& root, const std::vector<SweepAxis>& swept, FaultList& faults)
      : root_(root), swept_(swept), faults_(faults) {}

  std::optional<TuneSection> read(const TomlNode& tune) {
    const std::size_t faults_before = faults_.size();
    section_.place = tune.place;
    read_settings(tune);
    read_methods();
    if (section_.methods.empty()) return {};  // a fault of its own
    if (const TomlNode* where = tune.find("where")) read_where(*where);
    collect(tune, {}, "");
    check_seeds(tune);
    if (faults_.size() > faults_before) return {};
    join();
    if (!section_.axes.empty() && std::ranges::all_of(section_.axes, &std::vector<TunedAxis>::empty)) {
      if (!left_out_) faults_.add(tune.place, "tune; must have keys with the values that they are tried with");
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
      section_.methods.push_back(name ? text_of(*name) : std::to_string(section_.methods.size()));
    }
    section_.axes.resize(section_.methods.size());
  }

  // Axes by the names of their entries.
  void read_where(const TomlNode& where) {
    if (!where.is_table())
      return faults_.add(where.place,
                         fmt::format("tune.where = {}; must be a table of what varies", inline_toml(where)));
    for (const TomlNode::Member& member : where.table()) {
      const std::string value = text_of(member.value);
      std::vector<std::string> keys, values;
      bool is_found = false;
      for (std::size_t axis = 0; axis < swept_.size(); ++axis)
        for (std::size_t entry = 0; entry < swept_[axis].entries.size(); ++entry)
          for (const SweepEntry::Name& name : swept_[axis].entries[entry].names) {
            keys.push_back(name.name.first);
            if (name.name.first != member.key) continue;
            values.push_back(name.name.second);
            if (name.name.second != value) continue;
            section_.fixed[axis] = entry;
            is_found = true;
          }
      if (is_found) continue;
      add_fault_of_where(member, value, {keys.begin(), keys.end()}, values);
    }
  }

  // `keys`: of what varies; `values`: of the member's key, none where nothing varies it.
  void add_fault_of_where(const TomlNode::Member& member, const std::string& value, const std::set<std::string>& keys,
                          const std::vector<std::string>& values) {
    if (values.empty()) {
      const NamesToChoose choice = names_to_choose(member.key, std::vector<std::string>(keys.begin(), keys.end()));
      const std::string list =
          keys.empty() ? ": the file sweeps nothing and has no variants" : ", one of " + choice.list;
      faults_.add(member.place, fmt::format("tune.where; {}\"{}\" must be what varies{}{}", choice.before, member.key,
                                            list, choice.after));
      return;
    }
    const NamesToChoose choice = names_to_choose(value, values);
    faults_.add(member.place, fmt::format("tune.where; {}\"{}\" = {} must be a value of the sweep, one of {}{}",
                                          choice.before, member.key, value, choice.list, choice.after));
  }

  void collect(const TomlNode& table, const Path& above, const std::string& prefix) {
    for (const auto& [name, place, value] : table.table()) {
      if (prefix.empty() && is_own_key(name)) continue;
      const std::string key = prefix.empty() ? name : fmt::format("{}.{}", prefix, name);
      try {
        Path path = above;
        for (std::string& part : split_key(name)) path.push_back(std::move(part));
        path = with_numbers(root_, std::move(path));
        if (value.is_table() && !is_range(value)) {
          collect(value, path, key);
          continue;
        }
        add({.key = key, .path = std::move(path), .place = place}, value);
      } catch (const KeyPathFault& fault) {
        faults_.add(place, fmt::format("tune.\"{}\"; {}", key, fault.what()));
      }
    }
  }

  void add(TunedAxis axis, const TomlNode& value) {
    const bool is_of_method = axis.path.front() == "methods" && axis.path.size() > 2;
    if (!is_of_method && !(axis.path.front() == "training" && axis.path.size() > 1))
      throw KeyPathFault("must be a key of [training] or of a method: methods.LABEL.key");
    std::size_t method = 0;
    if (is_of_method) {
      method = element_index(*root_.find("methods"), axis.path[1]);
      axis.path[1] = std::to_string(method);
      if (axis.path[2] == "label" || axis.path[2] == "algorithm")
        throw KeyPathFault("must not be tuned: it says which method it is");
    }
    const auto values = read_swept_values(value, "tune", axis.key, faults_);
    if (!values) return;
    if (is_set_by_command_line(root_, axis.path)) {
      left_out_ = true;
      return;
    }
    axis.values = values->values;
    axis.labels = values->labels;
    axis.goes_by_steps = value.is_table() && value.find("step");
    if (is_of_method)
      own_.emplace_back(method, std::move(axis));
    else
      common_.push_back(std::move(axis));
  }

  // Whether something that varies sets the key; then the command line's sweep takes it, or it is a fault.
  bool is_swept(const TunedAxis& axis, const Path& path) {
    for (const SweepAxis& varies : swept_)
      for (const SweepEntry& entry : varies.entries)
        for (const Change& change : entry.changes) {
          if (!begins_with(path, change.path) && !begins_with(change.path, path)) continue;
          if (change.place.source == command_line_source) return true;
          faults_.add(axis.place, fmt::format("tune.\"{}\"; must not be tuned: \"{}\" varies, which sets it", axis.key,
                                              entry.names.front().name.first == "variant" ? "variant" : change.key));
          return true;
        }
    return false;
  }

  // Of each method: what all are tuned by, and its own keys.
  void join() {
    const auto add_unless_swept = [&](std::size_t method, TunedAxis axis, const Path& written) {
      if (is_swept(axis, written) || is_swept(axis, axis.path))
        left_out_ = true;
      else
        section_.axes[method].push_back(std::move(axis));
    };
    for (std::size_t method = 0; method < section_.axes.size(); ++method) {
      for (const TunedAxis& axis : common_) {
        TunedAxis of_method = axis;
        of_method.path.insert(of_method.path.begin(), {"methods", std::to_string(method)});
        const bool has_own = std::ranges::any_of(own_, [&](const auto& own) {
          const Path& path = own.second.path;
          return own.first == method && (begins_with(path, of_method.path) || begins_with(of_method.path, path));
        });
        if (!has_own) add_unless_swept(method, std::move(of_method), axis.path);
      }
      for (const auto& [of, axis] : own_)
        if (of == method) add_unless_swept(method, axis, axis.path);
    }
  }

  void check_seeds(const TomlNode& tune) {
    const TomlNode *own = tune.find("seeds"), *seeds = root_.find("seeds");
    if (!own || !own->is_array()) return;  // a fault of its own
    std::set<std::uint64_t> others, seen;
    if (!seeds) others = {1};
    if (seeds && seeds->is_array())
      for (const TomlNode& seed : seeds->array())
        if (const auto* number = std::get_if<std::int64_t>(&seed.value))
          others.insert(static_cast<std::uint64_t>(*number));
    if (own->array().empty()) faults_.add(own->place, "tune.seeds = []; must have at least one seed");
    for (const std::uint64_t seed : section_.seeds)
      if (others.contains(seed) || !seen.insert(seed).second)
        faults_.add(
            own->place,
            fmt::format("tune.seeds = {}; {}", inline_toml(*own),
                        others.contains(seed) ? fmt::format("must be none of the experiment's seeds, such as {}", seed)
                                              : fmt::format("must hold {} once", seed)));
  }

  void check_numbers(const TomlNode& tune) {
    std::string text;
    bool differ = false;
    for (std::size_t method = 0; method < section_.axes.size(); ++method) {
      text +=
          fmt::format("{}\"{}\" has {}", text.empty() ? "" : ", ", section_.methods[method], section_.settings(method));
      differ |= section_.settings(method) != section_.settings(0);
    }
    if (differ) faults_.add(tune.place, fmt::format("tune; must try all methods with as many settings: {}", text));
  }

  const TomlNode& root_;
  const std::vector<SweepAxis>& swept_;
  FaultList& faults_;
  TuneSection section_;
  std::vector<TunedAxis> common_;
  std::vector<std::pair<std::size_t, TunedAxis>> own_;  // by method
  bool left_out_ = false;                               // the command line has something instead
};

}  // namespace

std::uint64_t TuneSection::settings(std::size_t method) const {
  std::uint64_t number = 1;
  for (const TunedAxis& axis : axes[method]) number = saturated_product(number, axis.values.size());
  return number;
}

std::optional<TuneSection> read_tune(const TomlNode& root, const std::vector<SweepAxis>& swept, FaultList& faults) {
  const TomlNode* tune = root.find("tune");
  if (!tune) return {};
  if (!tune->is_table()) {
    faults.add(tune->place, fmt::format("tune = {}; must be a table, [tune]", inline_toml(*tune)));
    return {};
  }
  return TuneReader(root, swept, faults).read(*tune);
}

void describe_tune(Settings& root) {
  TuneSection ignored;
  Settings table = root.section(
      {"tune", "Keys of [training] and of methods, each with the values that it is tried with before the runs."});
  read_own_keys(table, ignored);
}

}  // namespace syncopate
