#define XXH_INLINE_ALL
#include "experiments/execution/rank_agreement.hpp"

#include <fmt/format.h>
#include <mpi.h>
#include <xxhash.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <numeric>
#include <set>

#include "experiments/execution/mpi_exchange.hpp"
#include "results/formats/host.hpp"
#include "results/formats/json.hpp"
#include "workers/cluster/rank_ranges.hpp"

namespace syncopate {
namespace {

using Ranks = std::vector<int>;

constexpr std::size_t most_lines = 10;  // of faults or keys that differ

// "rank 3 (host b)", "ranks 0-2 (hosts a, b, ... and 7 more)".
std::string name_of(const Ranks& ranks, const std::vector<RankSaid>& said) {
  constexpr std::size_t most_hosts = 4;
  std::set<std::string> hosts;
  for (const int rank : ranks) hosts.insert(said[static_cast<std::size_t>(rank)].host);
  std::string text =
      fmt::format("rank{} {} (host{} ", ranks.size() > 1 ? "s" : "", rank_ranges(ranks), hosts.size() > 1 ? "s" : "");
  std::size_t named = 0;
  for (const std::string& host : hosts) {
    if (named == most_hosts) break;
    text += (named++ > 0 ? ", " : "") + host;
  }
  if (hosts.size() > named) text += fmt::format(", ... and {} more", hosts.size() - named);
  return text + ")";
}

// The ranks by what `of` says of each, in the order of the first of them.
template <typename Of>
std::vector<std::pair<std::string, Ranks>> grouped(const std::vector<RankSaid>& said, Of of) {
  std::vector<std::pair<std::string, Ranks>> groups;
  std::map<std::string, std::size_t> place;
  for (std::size_t rank = 0; rank < said.size(); ++rank) {
    const std::string text = of(said[rank].statement);
    const auto [found, is_new] = place.try_emplace(text, groups.size());
    if (is_new) groups.emplace_back(text, Ranks{});
    groups[found->second].second.push_back(static_cast<int>(rank));
  }
  return groups;
}

std::string indented(const std::string& text) {
  std::string result = "  ";
  for (const char character : text) result += character == '\n' ? "\n  " : std::string(1, character);
  return result;
}

std::string explain_faults(const std::vector<RankSaid>& said) {
  auto groups = grouped(said, [](const RankStatement& statement) { return statement.fault; });
  if (groups.size() == 1) return groups.front().first;  // as without other ranks
  std::string text, rest;
  std::size_t shown = 0;
  for (const auto& [fault, ranks] : groups) {
    if (fault.empty()) {
      rest = fmt::format("; {} found no fault", name_of(ranks, said));
    } else if (shown++ < most_lines) {
      text += fmt::format("{}:\n{}\n", name_of(ranks, said), indented(fault));
    }
  }
  if (shown > most_lines) text += fmt::format("... and {} other faults of other ranks\n", shown - most_lines);
  return text + "nothing was run" + rest;
}

// "key: this on rank 0 (host a), that on ranks 1-3 (host b)"; empty where all say the same.
template <typename Of>
std::string line_of(const std::string& key, const std::vector<RankSaid>& said, Of of) {
  const auto groups = grouped(said, of);
  if (groups.size() == 1) return {};
  std::string line;
  for (const auto& [value, ranks] : groups)
    line += fmt::format("{}{} on {}", line.empty() ? key + ": " : ", ", value, name_of(ranks, said));
  return line;
}

std::uint64_t hash_of(const RankStatement& statement) {
  return XXH3_64bits(statement.identity.data(), statement.identity.size());
}
std::string digest_of(const RankStatement& statement) { return fmt::format("{:016x}", hash_of(statement)); }

std::string value_in(const RankStatement& statement, const std::string& key) {
  const auto found = std::ranges::find(statement.plan, key, &std::pair<std::string, std::string>::first);
  return found == statement.plan.end() ? "not set" : found->second;
}

// One line per key whose values differ. A rank may have come less far than others and so know fewer keys: those that
// all know come first, and the others count only if they must.
std::vector<std::string> explain_keys(const std::vector<RankSaid>& said) {
  std::vector<std::string> keys, lines_of_all, lines_of_some;
  std::map<std::string, std::size_t> ranks_with;
  for (const RankSaid& rank : said)
    for (const auto& [key, value] : rank.statement.plan)
      if (ranks_with[key]++ == 0) keys.push_back(key);
  for (const std::string& key : keys) {
    const std::string line =
        line_of(key, said, [&](const RankStatement& statement) { return value_in(statement, key); });
    if (!line.empty()) (ranks_with[key] == said.size() ? lines_of_all : lines_of_some).push_back(line);
  }
  return lines_of_all.empty() ? lines_of_some : lines_of_all;
}

std::string explain_difference(const std::vector<RankSaid>& said) {
  std::vector<std::string> lines = explain_keys(said);
  if (lines.empty()) lines.push_back(line_of("digest of the chosen runs and the files they use", said, digest_of));
  std::string text = "the ranks of this launch would not run the same:";
  for (std::size_t i = 0; i < std::min(lines.size(), most_lines); ++i) text += "\n  " + lines[i];
  if (lines.size() > most_lines) text += fmt::format("\n  ... and {} other keys", lines.size() - most_lines);
  return text + "\nnothing was run";
}

std::string to_text(const RankSaid& said) {
  Json plan = Json::array();
  for (const auto& [key, value] : said.statement.plan) plan.push_back({key, value});
  const Json json = {
      {"host", said.host}, {"fault", said.statement.fault}, {"identity", said.statement.identity}, {"plan", plan}};
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

RankSaid from_text(const std::string& text) {
  const Json json = Json::parse(text);
  RankSaid said{.host = json.at("host"),
                .statement = {.fault = json.at("fault"), .identity = json.at("identity"), .plan = {}}};
  for (const Json& entry : json.at("plan")) said.statement.plan.emplace_back(entry.at(0), entry.at(1));
  return said;
}

bool all_agree(const MpiSession& session, const RankStatement& own) {
  const std::array<std::uint64_t, 2> short_form{own.fault.empty() ? 0U : 1U, hash_of(own)};
  const std::vector<std::array<std::uint64_t, 2>> all = gather_everywhere(session, short_form);
  return std::ranges::all_of(all, [&](const auto& other) { return other[0] == 0 && other[1] == all.front()[1]; });
}

}  // namespace

std::string explain_disagreement(const std::vector<RankSaid>& ranks) {
  const auto has_fault = [](const RankSaid& said) { return !said.statement.fault.empty(); };
  const auto differs = [&](const RankSaid& said) {
    return said.statement.identity != ranks.front().statement.identity;
  };
  if (std::ranges::any_of(ranks, has_fault)) return explain_faults(ranks);
  return std::ranges::any_of(ranks, differs) ? explain_difference(ranks) : "";
}

void agree(const MpiSession& session, const RankStatement& own) {
  if (!session.active()) {
    if (!own.fault.empty()) throw CannotRun(own.fault);
    return;
  }
  if (all_agree(session, own)) return;
  std::vector<RankSaid> said;
  for (const std::string& text : texts_on_rank_0(session, to_text({host_name(), own}))) said.push_back(from_text(text));
  throw CannotRun(said.empty() ? "the ranks of this launch do not agree; rank 0 says why" : explain_disagreement(said));
}

}  // namespace syncopate
