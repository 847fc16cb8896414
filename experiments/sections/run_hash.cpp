#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>
#include <string_view>

#include "experiments/sections/experiment.hpp"
#include "experiments/sections/variation.hpp"
#include "results/run.hpp"
#include "workers/base/files.hpp"

namespace syncopate {

namespace {

// A key that was added after the first release. The hash ignores it if its value means what the program did before.
struct LaterKey {
  std::string_view key;
  std::string_view value_before;                        // the value, as TOML, that means the behaviour before
  std::array<std::string_view, 2> algorithms_before{};  // methods that already had a key of this name
};
constexpr LaterKey later_keys[] = {
    {"bias_correction", "true"},       // in Adam and AdamW
    {"contention", "true"},            // in networks; runs that the key alters have a new version
    {"rounds", "\"overlapped\""},      // in CO2
    {"rule", "\"clipping-rennala\""},  // in MindFlayer
    {"weights", "\"equal\"", {"dropcompute-local-sgd", "stsyn"}},  // in methods that average models
};

// Erases keys that do not affect results. The contents of files affect results, so `file_hash`, `directory_hash` and
// `start_hash` stay and the paths go. A solved number affects results, so it stays and its target goes.
void erase_what_decides_nothing(TomlNode& node) {
  if (node.is_array())
    for (TomlNode& element : node.array()) erase_what_decides_nothing(element);
  if (!node.is_table()) return;
  for (const char* place : {"file", "directory", "start"})
    if (node.find(fmt::format("{}_hash", place))) node.erase(place);
  node.erase(solved_for);
  for (const LaterKey& later : later_keys) {
    const TomlNode* const value = node.find(later.key);
    const std::string_view algorithm = text_in(node.find("algorithm"));
    const bool had_it = !algorithm.empty() && std::ranges::count(later.algorithms_before, algorithm) > 0;
    if (value && inline_toml(*value) == later.value_before && !had_it) node.erase(later.key);
  }
  for (TomlNode::Member& member : node.table()) erase_what_decides_nothing(member.value);
}

// A program change that altered the results of some runs. If the exact set of these runs is hard to determine, `alters`
// may return true for too many runs, which are then repeated without need. A change is not listed if it affects only
// displayed values, such as the learning rate in a file's first row, or only diverged runs.
struct ResultsChange {
  int version;
  bool (*alters)(const TomlNode& resolved);
};

// Returns the run's only method; null in a document without methods.
const TomlNode* method_of(const TomlNode& resolved) { return found_at(resolved, {"methods", "0"}); }

// Returns the value of a key in [methods.training] or, if it is absent there, in [training]; null if it is in neither.
const TomlNode* training_key(const TomlNode& resolved, const std::string& key) {
  const TomlNode* const own = found_at(resolved, {"methods", "0", "training", key});
  return own ? own : found_at(resolved, {"training", key});
}

bool has_a_model(const TomlNode& resolved) { return text_in(training_key(resolved, "model")) != "none"; }

// The change: workers clip the gradients that they send. Before, the server clipped each step's gradient after it had
// weighted and averaged the workers' gradients.
bool clips_what_workers_send(const TomlNode& resolved) {
  static constexpr std::string_view servers_of_gradients[] = {
      "backup-workers", "backup-tokens", "backup-timeout", "dynamic-backup",    "k-sync",        "k-batch-sync",
      "mindflayer",     "async-sgd",     "softsync",       "k-async",           "k-batch-async", "ringmaster",
      "throttle",       "bounded-delay", "sliding-window", "stale-synchronous",
  };
  const TomlNode* const method = method_of(resolved);
  return method && has_a_model(resolved) && number_in(training_key(resolved, "clip_norm")) > 0 &&
         std::ranges::find(servers_of_gradients, text_in(method->find("algorithm"))) != std::end(servers_of_gradients);
}

// The change: the weight of a stale or repeated gradient scales the learning rate. Before, it scaled the gradient.
bool weighs_updates(const TomlNode& resolved) {
  const TomlNode* const method = method_of(resolved);
  if (!method || !has_a_model(resolved)) return false;
  if (text_in(method->find("algorithm")) == "throttle") {
    const double divisor = number_in(method->find("divisor")).value_or(0);
    const bool weighs_all_alike = divisor == 1 && text_in(method->find("repeats")) != "alone";
    return !weighs_all_alike && !std::isinf(divisor);  // an infinite divisor drops repeats
  }
  const std::string_view rule = text_in(method->find("staleness_weight"));
  return !rule.empty() && rule != "none";
}

// Whether the key has this text as its value in any table within the node.
bool says(const TomlNode& node, std::string_view key, std::string_view word) {
  if (node.is_array())
    return std::ranges::any_of(node.array(), [&](const TomlNode& each) { return says(each, key, word); });
  if (!node.is_table()) return false;
  return text_in(node.find(key)) == word || std::ranges::any_of(node.table(), [&](const TomlNode::Member& member) {
           return says(member.value, key, word);
         });
}

// The change: each moment has its own step count for bias correction. Before, one count served both moments. It went on
// after one of them had been reset or lost with a worker's state. Averaging moments over workers left each worker's
// count.
bool corrects_bias_otherwise(const TomlNode& resolved) {
  const auto names = {"adam", "adamw", "lamb", "lans", "rmsprop"};
  if (std::ranges::none_of(names, [&](const char* name) { return says(resolved, "name", name); })) return false;
  const bool one_is_reset = says(resolved, "first_moment", "reset") != says(resolved, "second_moment", "reset");
  // All workers of DES-LOC count the same steps.
  const bool is_averaged = says(resolved, "first_moment", "average") || says(resolved, "second_moment", "average");
  return one_is_reset || is_averaged || says(resolved, "state", "lost");
}

// The change: messages share links; before, each message had its links to itself. In addition, on all networks an idle
// worker now counts as communicating until its message has arrived; before, it counted as waiting.
bool sends_messages(const TomlNode& resolved) {
  static constexpr std::string_view collectives_alone[] = {
      "sync-sgd",
      "dropcompute",
      "random-drop",
      "stale-sgd",
      "acco",
      "delayed-update",
      "one-bit-adam",
      "backup-all-reduce",
      "eager-sgd",
      "local-sgd",
      "adacomm",
      "des-loc",
      "outer-local-sgd",
      "diloco",
      "palsgd",
      "fedprox",
      "fednova",
      "scaffold",
      "post-local-sgd",
      "edit",
      "co2",
      "cocod-sgd",
      "overlap-local-sgd",
      "overlapped-diloco",
      "streaming-diloco",
      "dropcompute-local-sgd",
      "branch-train-merge",
  };
  const TomlNode* const network = resolved.find("network");
  const TomlNode* const method = method_of(resolved);
  if (!network || !method) return false;
  const std::string_view kind = text_in(network->find("kind")), algorithm = text_in(method->find("algorithm"));
  if (kind == "free") return false;
  // On a star, jitter now multiplies the times to and from the hub separately, and each is rounded to nanoseconds.
  if (kind == "parameter-server" && number_in(network->find("jitter")) > 0) return true;
  // The averages of this method's groups share links, the uplinks, only on networks with groups (racks).
  if (algorithm == "hierarchical-sgd") return kind == "two-level";
  // These variants of two methods have no server.
  if (algorithm == "elastic-averaging" && text_in(method->find("exchange")) == "synchronous") return false;
  if (algorithm == "dynamic-averaging" && text_in(method->find("checks")) == "gathered") return false;
  return std::ranges::find(collectives_alone, algorithm) == std::end(collectives_alone);
}

// The change: workers and servers start their slices with different partners. Before, all started with the first one.
bool sends_slices(const TomlNode& resolved) {
  const TomlNode* const method = method_of(resolved);
  return method && number_in(method->find("servers")) > 1;
}

// The change: Muon and Dion orthogonalise the last hidden matrix of models whose head is the matrix of their
// embeddings. Before, they took this matrix for the head.
bool steps_along_the_last_hidden_matrix(const TomlNode& resolved) {
  const TomlNode* const optimizer = training_key(resolved, "optimizer");
  const std::string_view name = optimizer ? text_in(optimizer->find("name")) : "";
  const std::string_view model = text_in(training_key(resolved, "model"));
  return (name == "muon" || name == "dion") && (model == "gpt" || model == "text-transformer");
}

// Newest last. A version is raised once per release, so several changes may share it.
constexpr ResultsChange results_changes[] = {
    {6, clips_what_workers_send},
    {6, weighs_updates},
    {6, corrects_bias_otherwise},
    // Before this change, buffers.npy contained the statistics from before their recalibration.
    {6, [](const TomlNode& resolved) { return says(resolved, "buffers", "recalibrate"); }},
    // Before this change, parameters without gradients moved by the scale of the other parameters.
    {6, [](const TomlNode& resolved) { return says(resolved, "algorithm", "one-bit-adam"); }},
    {7, sends_messages},
    {7, sends_slices},
    // Since this change, attention over long texts sums in single precision.
    {7,
     [](const TomlNode& resolved) {
       return text_in(training_key(resolved, "precision")) == "bfloat16" &&
              text_in(training_key(resolved, "model")) == "gpt";
     }},
    {8, steps_along_the_last_hidden_matrix},
};

}  // namespace

std::string configuration_hash(TomlNode resolved) {
  const int version = results_version_of(resolved);
  erase_what_decides_nothing(resolved);
  resolved.erase("description");
  resolved.erase("recording");
  resolved.erase("checkpoint");
  return content_hash(fmt::format("{}\nresults_version = {}\n", write_toml(resolved), version));
}

std::string digest_of_hashes(std::vector<std::string> hashes) {
  std::ranges::sort(hashes);
  hashes.erase(std::unique(hashes.begin(), hashes.end()), hashes.end());  // clang 14 cannot compile ranges::unique
  return content_hash(fmt::format("{}", fmt::join(hashes, "\n")));
}

int results_version_of(const TomlNode& resolved) {
  int version = first_selective_results_version;
  for (const ResultsChange& change : results_changes)
    if (change.alters(resolved)) version = std::max(version, change.version);
  return version;
}

}  // namespace syncopate
