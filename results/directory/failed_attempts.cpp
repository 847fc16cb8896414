#include "results/directory/failed_attempts.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <system_error>
#include <utility>

#include "results/directory/replaced_file.hpp"
#include "results/formats/digested_json.hpp"
#include "results/formats/json.hpp"
#include "workers/files/own_file.hpp"

namespace syncopate {
namespace fs = std::filesystem;
namespace {

constexpr const char* ending = ".json";

}  // namespace

AttemptRecords::AttemptRecords(fs::path directory, std::string call, int retries)
    : directory_(std::move(directory)), call_(std::move(call)), retries_(retries) {
  std::error_code error;
  for (fs::directory_iterator entry(directory_, error), end; !error && entry != end; entry.increment(error)) {
    const fs::path& path = entry->path();
    if (path.extension() != ending || path.filename().string().front() == '.') continue;
    const std::string what = path.stem().string();
    auto attempts = last(what);
    if (attempts && attempts->call != call_) earlier_.emplace(what, *std::move(attempts));
  }
}

fs::path AttemptRecords::file(const std::string& what) const { return directory_ / (what + ending); }

// What cannot be read counts as none: the run is tried.
std::optional<FailedAttempts> AttemptRecords::last(const std::string& what) const {
  try {
    const auto text = read_file(file(what));
    if (!text) return {};
    const Json json = Json::parse(*text);
    if (!is_as_written(*text, json, "reason")) return {};
    return FailedAttempts{.call = json.at("call"),
                          .failures = json.at("failures"),
                          .lost = json.at("lost"),
                          .is_final = json.at("is_final"),
                          .reason = json.at("reason")};
  } catch (const std::exception&) {
    return {};
  }
}

void AttemptRecords::write(const std::string& what, const FailedAttempts& attempts) const {
  const Json json = {{"call", attempts.call},
                     {"failures", attempts.failures},
                     {"lost", attempts.lost},
                     {"is_final", attempts.is_final},
                     {"reason", attempts.reason}};
  replace_file(file(what), with_digest(json));
}

std::optional<FailedAttempts> AttemptRecords::of(const std::string& what) const {
  auto attempts = last(what);
  const auto earlier = earlier_.find(what);
  if (attempts && earlier != earlier_.end() && *attempts == earlier->second) return {};
  return attempts;
}

bool AttemptRecords::are_used_up(const std::optional<FailedAttempts>& attempts) const {
  return attempts && (attempts->is_final || attempts->failures > retries_ || attempts->lost > std::max(1, retries_));
}

void AttemptRecords::add_failure(const std::string& what, const std::string& reason, bool is_final) const {
  FailedAttempts attempts = of(what).value_or(FailedAttempts{.call = call_});
  ++attempts.failures;
  attempts.is_final = is_final;
  attempts.reason = reason;
  write(what, attempts);
}

void AttemptRecords::add_lost(const std::string& what, const std::string& owner) const {
  FailedAttempts attempts = of(what).value_or(FailedAttempts{.call = call_});
  ++attempts.lost;
  attempts.reason = fmt::format("{} of its processes {} lost (killed, or crashed), the last one: {}", attempts.lost,
                                attempts.lost == 1 ? "was" : "were", owner);
  write(what, attempts);
}

void AttemptRecords::remove(const std::string& what) const {
  std::error_code ignored;
  fs::remove(file(what), ignored);
}

}  // namespace syncopate
