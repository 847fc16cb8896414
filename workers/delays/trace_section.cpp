#include "workers/delays/trace_section.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <numeric>
#include <optional>
#include <utility>

#include "workers/delays/data_file.hpp"
#include "workers/delays/limits.hpp"

namespace syncopate {
namespace {

std::optional<int> as_rank(const std::string& key, int workers) {
  int rank = 0;
  const auto [end, problem] = std::from_chars(key.data(), key.data() + key.size(), rank);
  const bool is_rank = problem == std::errc() && end == key.data() + key.size() && std::to_string(rank) == key;
  return is_rank && rank >= 0 && rank < workers ? std::optional(rank) : std::nullopt;
}

constexpr std::int64_t most_block_steps = 1'000'000'000;

TraceStretch read_stretch(Settings& table, std::optional<Step> recorded) {
  TraceStretch stretch;
  Settings keys = table.section(
      {"stretch", "For more workers than the recording has: each draws its steps from it, in blocks of steps."});
  stretch.block_steps = keys.integer(
      {"block_steps", "How many recorded steps stay together.", "steps"}, 1,
      recorded ? Stated<std::int64_t>(recorded->value()) : Stated<std::int64_t>(most_block_steps, "those recorded"));
  stretch.redraw_worker = keys.flag(
      {"redraw_worker", "Whether every block may be of another recorded worker; else a worker follows one."}, false);
  stretch.together = keys.flag(
      {"together", "Whether all workers take the same recorded steps at a time, each of a worker of its."}, false);
  return stretch;
}

void check_micro_batches(Settings& table, const Trace& trace, int micro_batches) {
  if (micro_batches > trace.micro_batches())
    table.fault("file", fmt::format("the steps of the trace have {} micro-batches; cluster.micro_batches, {}, must be "
                                    "at most that",
                                    trace.micro_batches(), micro_batches));
}

}  // namespace

std::shared_ptr<const Trace> read_trace(Settings& table, TraceReplay& replay, std::vector<TraceLimit>& limits) {
  auto trace = read_data_file<Trace>(table);
  if (table.has("stretch")) {
    const std::size_t faults = table.faults_so_far();
    replay.stretch = read_stretch(table, trace ? std::optional(trace->steps()) : std::nullopt);
    replay.end = TraceEnd::wrap;
    if (table.has("end"))
      table.fault("end", "must not be given together with stretch: blocks are drawn as long as the run goes on");
    if (!trace || table.faults_so_far() > faults) return nullptr;
    limits.push_back({table, trace->file(), most_workers, trace->steps(), replay.end, trace->micro_batches()});
    return trace;
  }
  const auto written = table.choice<TraceEnd>(
      {"end", "Where the recording has no more steps: a fault, the end of the run, or its first step again."},
      {{"error", TraceEnd::error}, {"stop", TraceEnd::stop}, {"wrap", TraceEnd::wrap}});
  replay.end = written.value_or(TraceEnd::error);
  if (trace && written)
    limits.push_back({table, trace->file(), trace->workers(), trace->steps(), replay.end, trace->micro_batches()});
  return trace;
}

std::shared_ptr<const DelayProcess> read_base_trace(Settings& table, int workers, int micro_batches,
                                                    std::vector<TraceLimit>& limits) {
  TraceReplay replay;
  const auto trace = read_trace(table, replay, limits);
  if (replay.stretch) {
    if (table.has("like"))
      table.fault("like", "must not be given together with stretch, which draws whom each worker follows");
    if (!trace || workers == 0) return nullptr;
    check_micro_batches(table, *trace, micro_batches);
    replay.stretch->is_base = true;
    return trace_delay(trace, std::move(replay));
  }
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
                                    "like = {{ \"{}\" = 0 }}, or draw all from them, stretch = {{ block_steps = 50 }}",
                                    *without, workers, trace->workers(), *without));
    return nullptr;
  }
  check_micro_batches(table, *trace, micro_batches);
  return trace_delay(trace, std::move(replay));
}

}  // namespace syncopate
