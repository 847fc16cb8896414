#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <set>
#include <system_error>

#include "experiments/sections/definition.hpp"
#include "experiments/sections/variation.hpp"
#include "results/summary.hpp"
#include "workers/config/key_path.hpp"

namespace syncopate {

namespace {

namespace fs = std::filesystem;

constexpr const char* folder = "results/reference";

std::optional<fs::path> reference_folder(const std::string& file) {
  std::error_code error;
  for (fs::path above = fs::absolute(file, error).parent_path(); !above.empty(); above = above.parent_path()) {
    if (fs::is_directory(above / folder, error)) return above / folder;
    if (above == above.parent_path()) break;
  }
  return fs::is_directory(folder, error) ? std::optional<fs::path>(folder) : std::nullopt;
}

// Returns the names of the papers in the folder, which contains one file per paper.
std::vector<std::string> papers_in(const fs::path& directory) {
  std::vector<std::string> papers;
  for (const fs::directory_entry& entry : fs::directory_iterator(directory))
    if (entry.path().extension() == ".toml") papers.push_back(entry.path().stem().string());
  std::ranges::sort(papers);
  return papers;
}

// Returns the entry that `reference` names, without its unit and note, as a claim's table `paper`. If there is no such
// entry, returns nullopt and adds a fault at `written`, the value of the key `name`.
std::optional<TomlNode> referenced_paper(const std::string& reference, const std::string& experiment_file,
                                         const TomlNode& written, const std::string& name, FaultList& faults) {
  const auto fault = [&](const std::string& what) {
    faults.add(written.place, fmt::format("{} = \"{}\"; {}", name, reference, what));
    return std::nullopt;
  };
  const std::optional<fs::path> directory = reference_folder(experiment_file);
  if (!directory)
    return fault(fmt::format("found no folder {} above the experiment file or in the working directory", folder));
  const std::size_t point = reference.find('.');
  if (point == reference.npos) return fault("must name a paper and its figure, such as \"dropcompute.figure-1\"");
  const std::string paper = reference.substr(0, point), entry = reference.substr(point + 1);
  const std::vector<std::string> papers = papers_in(*directory);
  if (std::ranges::find(papers, paper) == papers.end())
    return fault(fmt::format("must begin with one of {} (the files in {}){}", fmt::join(papers, ", "),
                             directory->string(), suggestion(paper, papers)));
  const std::string file = (*directory / (paper + ".toml")).string();
  try {
    const TomlNode entries = load_toml(file);
    if (const TomlNode* const found = entries.find(entry); found && found->is_table()) {
      TomlNode paper = *found;
      for (const char* const key : {"unit", "note"}) paper.erase(key);
      return paper;
    }
    std::vector<std::string> known;
    for (const TomlNode::Member& member : entries.table()) known.push_back(member.key);
    return fault(fmt::format("{} contains no such figure{}", file, suggestion(entry, known)));
  } catch (const TomlSyntaxFault& problem) {
    faults.add(problem.place, problem.problem.empty() ? problem.what() : problem.problem);
    return std::nullopt;
  }
}

std::vector<std::string> names_of_measures() {
  std::vector<std::string> names;
  for (const Measure& measure : measures()) names.emplace_back(measure.name);
  names.insert(names.end(), {time_to_equal_loss, steps_to_equal_loss});
  return names;
}

Criterion read_criterion(Settings& table) {
  Criterion criterion;
  criterion.above =
      table.optional_number({"above", "Reproduced if the whole 95 % interval is above this."}, Range::any());
  criterion.below =
      table.optional_number({"below", "Reproduced if the whole 95 % interval is below this."}, Range::any());
  const Key within{"within", "Reproduced if the 95 % interval is within these two bounds, the lower one first."};
  const std::vector<double> bounds = table.numbers(within, Range::any(), std::vector<double>{});
  if (bounds.empty()) table.leave_out("within");
  if (bounds.size() == 2 && bounds[0] < bounds[1])
    criterion.within = Interval{bounds[0], bounds[1]};
  else if (!bounds.empty())
    table.fault("within", "must be two numbers, the lower one first");
  criterion.margin = table.optional_number(
      {"margin", "Equivalent if the 90 % interval is within this distance of no effect (0, or 1 for a ratio)."},
      Range::positive());
  return criterion;
}

std::optional<PublishedFigure> read_published(Settings& table) {
  if (!table.has({"paper", "The paper's figure, shown next to the measured one."})) return {};
  Settings paper = table.section("paper");
  PublishedFigure published;
  published.figure = paper.text({"figure", "The figure as the scoreboard shows it, such as \"18 %\"."});
  published.source = paper.text({"source", "Where it is published: a paper's section, figure or table."});
  const auto certainty =
      paper.choice<std::string>({"certainty",
                                 "Its origin: the paper's text, its code or logs, a review of it, or derived from "
                                 "these."},
                                {{"stated", "stated"}, {"code", "code"}, {"review", "review"}, {"derived", "derived"}});
  published.certainty = certainty.value_or("");
  published.value = paper.optional_number(
      {"value", "The claimed number, in the measure's unit, to plot next to the measured one."}, Range::any());
  return published;
}

void check_effect(Settings& table, const Claim& claim) {
  const bool is_of_two = claim.effect == Effect::difference || claim.effect == Effect::ratio;
  if (claim.against.empty() && is_of_two) table.fault("as", "compares two methods: set the other one with `against`");
  if (!claim.against.empty() && !is_of_two)
    table.fault("against", "must be left out if as = \"value\" or \"best\", which concern only one method");
  if (!claim.against.empty() && claim.against == claim.method)
    table.fault("against", "must be a different method than `method`");
  if (claim.effect == Effect::best) {
    const Measure* measure = measure_named(claim.measure);
    if (claim.over.empty()) table.fault("as", "\"best\" is a value of a swept key: name this key with `over`");
    if (!measure || measure->better == Better::neither)
      table.fault("measure", "must be a measure with a better direction (less or more), because as = \"best\"");
    if (claim.per_doubling || claim.over_sqrt_log)
      table.fault(claim.per_doubling ? "per_doubling" : "over_sqrt_log",
                  "applies to slopes only: must be left out if as = \"best\"");
  }
  if (claim.everywhere && !claim.over.empty())
    table.fault("everywhere", "cannot be combined with `over`, which turns all points into one number");
  if (is_equal_loss(claim.measure) && claim.against.empty())
    table.fault("measure", "is the time or steps to another method's loss: name that method with `against`");
}

void check_criterion(Settings& table, const Claim& claim) {
  const Criterion& criterion = claim.criterion;
  std::vector<std::string> given;
  if (criterion.above) given.emplace_back("above");
  if (criterion.below) given.emplace_back("below");
  if (criterion.within) given.emplace_back("within");
  if (criterion.margin) given.emplace_back("margin");
  if (!claim.order.empty()) {
    if (!given.empty())
      table.fault("order", "cannot be combined with above, below, within or margin: the claim is the order itself");
    return;
  }
  if (given.size() != 1)
    table.fault("", fmt::format("must have exactly one criterion of above, below, within and margin; found {}",
                                given.empty() ? "none" : fmt::format("{}", fmt::join(given, " and "))));
  else if (criterion.margin && (claim.effect == Effect::best || (claim.effect == Effect::value && claim.over.empty())))
    table.fault("margin", "applies to a difference: name the other method with `against`");
}

Claim read_claim(Settings& table) {
  const std::size_t faults = table.faults_so_far();
  Claim claim;
  claim.sentence = table.text({"sentence", "The claim in words, as the scoreboard shows it."});
  claim.claim_class = table.choice<ClaimClass>(
      {"class", "A paper's result, a paper's theory, a check of the set-up, or a question of one's own."},
      {{"headline", ClaimClass::headline},
       {"theory", ClaimClass::theory},
       {"check", ClaimClass::check},
       {"question", ClaimClass::question}},
      ClaimClass::question);
  claim.added_after_results = table.flag(
      {"added_after_results", "Written or changed when results of these runs were known; scoreboards mark it."}, false);
  claim.measure = table.text({"measure", "The measure, as results/summary.hpp and `table` name it."});
  const std::vector<std::string> known = names_of_measures();
  if (!claim.measure.empty() && std::ranges::find(known, claim.measure) == known.end())
    table.fault("measure", must_be_one_of(claim.measure, known));
  const Key order{"order", "Instead of method: labels of methods, each with a larger measure than the one before."};
  claim.order = table.texts(order, std::vector<std::string>{});
  if (claim.order.empty()) {
    table.leave_out("order");
    claim.method = table.text({"method", "Label of the method that the claim is about."});
    claim.against = table.text({"against", "Label of the method to compare it with, seed by seed."}, "");
    if (claim.against.empty()) table.leave_out("against");
    claim.effect = table.choice<Effect>({"as",
                                         "What is claimed: the measure, its difference or ratio to `against`, or the "
                                         "value of `over` where it is best."},
                                        {{"value", Effect::value},
                                         {"difference", Effect::difference},
                                         {"ratio", Effect::ratio},
                                         {"best", Effect::best}},
                                        claim.against.empty() ? Effect::value : Effect::difference,
                                        "difference, or value without against");
    claim.over = table.text({"over", "A swept key of numbers; the claim is the slope over it, or its best value."}, "");
    if (claim.over.empty()) table.leave_out("over");
    if (!claim.over.empty()) {
      claim.per_doubling = table.flag({"per_doubling", "The slope is per doubling of the key, not per 1."}, false);
      claim.over_sqrt_log = table.flag(
          {"over_sqrt_log", "The slope is over sqrt(2 ln key), as the largest of `key` normal values grows."}, false);
      if (!table.has("over_sqrt_log")) table.leave_out("over_sqrt_log");
      if (claim.per_doubling && claim.over_sqrt_log)
        table.fault("over_sqrt_log", "cannot be combined with per_doubling");
    }
    claim.everywhere = table.flag(
        {"everywhere", "The claim holds at every sweep point, and is reproduced if it is at all; not with over."},
        false);
  } else if (claim.order.size() < 2) {
    table.fault("order", "must list at least two methods");
  } else if (std::set<std::string>(claim.order.begin(), claim.order.end()).size() < claim.order.size()) {
    table.fault("order", "must not list a method twice");
  }
  table.keep_as_written({"where", "Swept keys with values that select sweep points: { \"cluster.workers\" = 64 }."});
  const Key reference{"reference",
                      "Instead of paper: a figure in results/reference, such as \"dropcompute.figure-1\"."};
  if (table.text(reference, "").empty()) table.leave_out("reference");
  claim.criterion = read_criterion(table);
  claim.published = read_published(table);
  if (table.faults_so_far() > faults) return claim;
  if (claim.order.empty()) check_effect(table, claim);
  check_criterion(table, claim);
  return claim;
}

std::vector<Settings> tables_of(Settings& root) {
  return root.sections({"claim", "Claims about the runs, and when they count as reproduced; `claims` judges them."});
}

// Whether the command line sets or sweeps the key.
bool is_of_command_line(const TomlNode& root, const std::string& key) {
  try {
    if (is_set_by_command_line(root, split_key(key))) return true;
  } catch (const KeyPathFault&) {
    return false;  // not a key
  }
  const TomlNode* const swept = found_at(root, {"sweep", key});
  return swept && swept->place.source == command_line_source;
}

constexpr const char* or_several = "; for all points use everywhere = true, for a slope use `over`";

// Checks the names in claims against the runs.
class Names {
 public:
  Names(const TomlNode& root, std::span<const std::string> methods, std::span<const Run> runs, const WhyNot& why_not)
      : root_(root), methods_(methods), runs_(runs), why_not_(why_not) {
    for (const Run& run : runs) {
      rows_.insert(run_label(run));
      for (const auto& [key, value] : run.sweep) swept_[key].insert(value);
    }
  }

  // Reports faults to `table`, from which the claim was read.
  void check(const Claim& claim, Settings& table) const {
    const std::size_t faults = table.faults_so_far();
    for (const std::string& method : claim.order) check_method(method, claim, table, "order");
    if (!claim.method.empty()) check_method(claim.method, claim, table, "method");
    if (!claim.against.empty() && !rows_.contains(claim.against)) check_method(claim.against, claim, table, "against");
    if (!claim.over.empty())
      if (const std::string why = why_not(claim.over, {}); !why.empty()) table.fault("over", why);
    for (const auto& [key, value] : claim.where)
      if (const std::string why = why_not(key, value); !why.empty()) table.section("where").fault("", why);
    if (table.faults_so_far() == faults) check_points(claim, table);
  }

 private:
  void check_method(const std::string& method, const Claim& claim, Settings& table, const char* key) const {
    if (std::ranges::find(methods_, method) == methods_.end()) {
      const NamesToChoose choice = names_to_choose(method, methods_);
      table.fault(key, fmt::format("{}\"{}\" must be a method of the file, one of {}{}", choice.before, method,
                                   choice.list, choice.after));
    } else if (const std::string why = why_not_(claim.measure, method); !why.empty()) {
      table.fault("measure", fmt::format("\"{}\" does not have this measure: it {}", method, why));
    }
  }

  // Returns why the file does not sweep the key or, with a `value`, that value; empty if it does. Adds a hint for users
  // whose command line sweeps other values: they may not need the file's claims.
  std::string why_not(const std::string& key, const std::optional<std::string>& value) const {
    const std::string why = why_not_swept(swept_, key, value);
    const bool is_changed = !why.empty() && is_of_command_line(root_, key);
    return is_changed ? why + "; add ~claim to the command to leave out the claims" : why;
  }

  // Checks that a claim without `everywhere` and `over` does not select several sweep points of a method.
  void check_points(const Claim& claim, Settings& table) const {
    if (claim.everywhere || !claim.over.empty()) return;
    for (const std::string& method : claim.order.empty() ? std::vector{claim.method} : claim.order) {
      std::set<KeyValues> points;
      for (const Run& run : runs_) {
        const bool is_meant = run.method == method && std::ranges::none_of(run.sweep, [&](const auto& swept) {
                                const auto wanted = claim.where.find(swept.first);
                                return wanted != claim.where.end() && wanted->second != swept.second;
                              });
        if (is_meant) points.insert(run.sweep);
      }
      if (points.size() > 1)
        table.fault("", fmt::format("selects {} points of \"{}\": select one with `where`{}", points.size(), method,
                                    claim.order.empty() ? or_several : ""));
    }
  }

  const TomlNode& root_;
  std::span<const std::string> methods_;
  std::span<const Run> runs_;
  const WhyNot& why_not_;
  std::set<std::string> rows_;  // labels of the rows in result tables: one per method and sweep point
  SweptNames swept_;
};

// Reports repeated claims. Sentences must be unique, because a scoreboard identifies a claim by its sentence alone.
void check_none_twice(std::span<const Claim> claims, std::span<Settings> tables) {
  for (std::size_t i = 0; i < claims.size(); ++i)
    for (std::size_t before = 0; before < i; ++before) {
      const bool is_same = claims[i].sentence == claims[before].sentence;
      Claim reworded = claims[before];
      reworded.sentence = claims[i].sentence;
      reworded.published = claims[i].published;
      reworded.claim_class = claims[i].claim_class;
      reworded.added_after_results = claims[i].added_after_results;
      if (!is_same && claims[i] != reworded) continue;
      const char* const why =
          is_same ? "must differ from the sentence of the claim" : "makes the same claim in other words as the claim";
      tables[i].fault("sentence", fmt::format("{} at {}", why, tables[before].place("sentence").text()));
      break;
    }
}

}  // namespace

void apply_references(TomlNode& root, const std::string& file, FaultList& faults) {
  TomlNode* const claims = root.find("claim");
  if (!claims || !claims->is_array()) return;
  for (std::size_t i = 0; i < claims->array().size(); ++i) {
    TomlNode& claim = claims->array()[i];
    if (!claim.is_table()) continue;
    const TomlNode* const written = claim.find("reference");
    const auto* const text = written ? std::get_if<std::string>(&written->value) : nullptr;
    if (!text) continue;
    const std::string name = fmt::format("claim.{}.reference", i);
    if (claim.find("paper")) {
      faults.add(written->place, fmt::format("{}; cannot be combined with `paper`, which has the same purpose", name));
      continue;
    }
    if (auto paper = referenced_paper(*text, file, *written, name, faults)) {
      const SourcePlace place = written->place;
      claim.erase("reference");
      claim.set("paper", place, *std::move(paper));
    }
  }
}

std::vector<Claim> read_claims(const TomlNode& root, std::span<const std::string> methods, std::span<const Run> runs,
                               const WhyNot& why_not, FaultList& faults) {
  const TomlNode* written = root.find("claim");
  if (!written) return {};
  SettingsDocument document({TomlNode::Table{{"claim", written->place, *written}}, {}});
  Settings alone = document.root();
  std::vector<Settings> tables = tables_of(alone);
  std::vector<Claim> claims;
  for (Settings& table : tables) claims.push_back(read_claim(table));
  document.check();
  const Names names(root, methods, runs, why_not);
  for (std::size_t i = 0; i < claims.size(); ++i) {
    const TomlNode* where = written->array()[i].find("where");
    if (where && !where->is_table()) {
      tables[i].fault("where", "must be a table of swept keys");
      continue;
    }
    if (where)
      for (const TomlNode::Member& member : where->table()) claims[i].where[member.key] = plain_text(member.value);
    if (!runs.empty()) names.check(claims[i], tables[i]);
  }
  if (document.faults().empty()) check_none_twice(claims, tables);
  faults.add(document.faults());
  return claims;
}

void describe_claims(Settings& root) {
  for (Settings& table : tables_of(root)) read_claim(table);
}

}  // namespace syncopate
