#include "workers/delays/trace_section.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <numeric>
#include <optional>
#include <utility>

#include "workers/delays/data_file.hpp"

namespace syncopate {
namespace {

std::optional<int> as_rank(const std::string& key, int workers) {
  int rank = 0;
  const auto [end, problem] = std::from_chars(key.data(), key.data() + key.size(), rank);
  const bool is_rank = problem == std::errc() && end == key.data() + key.size() && std::to_string(rank) == key;
  return is_rank && rank >= 0 && rank < workers ? std::optional(rank) : std::nullopt;
}

}  // namespace

std::shared_ptr<const Trace> read_trace(Settings& table, TraceEnd& end, std::vector<TraceLimit>& limits) {
  auto trace = read_data_file<Trace>(table);
  const auto written = table.choice<TraceEnd>(
      {"end", "Where the recording has no more steps: a fault, the end of the run, or its first step again."},
      {{"error", TraceEnd::error}, {"stop", TraceEnd::stop}, {"wrap", TraceEnd::wrap}});
  end = written.value_or(TraceEnd::error);
  if (trace && written)
    limits.push_back({table, trace->file(), trace->workers(), trace->steps(), end, trace->micro_batches()});
  return trace;
}

std::shared_ptr<const DelayProcess> read_base_trace(Settings& table, int workers, int micro_batches,
                                                    std::vector<TraceLimit>& limits) {
  TraceReplay replay;
  const auto trace = read_trace(table, replay.end, limits);
  Settings like = table.section({"like", "Workers with others' rows: { \"3\" = 0 } has worker 3 follow worker 0's."});
  const std::vector<std::string> keys = like.keys();
  if (!trace || workers == 0) {
    for (const std::string& key : keys) static_cast<void>(like.has(key));
    return nullptr;
  }
  replay.rows_of.resize(static_cast<std::size_t>(workers));
  std::iota(replay.rows_of.begin(), replay.rows_of.end(), 0);
  for (const std::string& key : keys) {
    const auto follower = as_rank(key, workers);
    const auto rows = like.integer(key, 0, trace->workers() - 1);
    if (follower) replay.rows_of[static_cast<std::size_t>(*follower)] = static_cast<int>(rows);
    if (!follower) like.fault(key, fmt::format("the key must be a worker, from 0 to {}", workers - 1));
  }
  const auto without = std::ranges::find_if(replay.rows_of, [&](int rows) { return rows >= trace->workers(); });
  if (without != replay.rows_of.end()) {
    table.fault("file", fmt::format("worker {} of {} has no rows: the trace has {} workers; let it follow another, "
                                    "like = {{ \"{}\" = 0 }}",
                                    *without, workers, trace->workers(), *without));
    return nullptr;
  }
  if (micro_batches > trace->micro_batches())
    table.fault("file", fmt::format("the steps of the trace have {} micro-batches; cluster.micro_batches, {}, must be "
                                    "at most that",
                                    trace->micro_batches(), micro_batches));
  return trace_delay(trace, std::move(replay));
}

}  // namespace syncopate
