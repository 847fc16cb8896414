#include "workers/cluster/accounting.hpp"

#include <bit>
#include <string_view>

namespace syncopate {

// In methods with servers a worker's compute time is lost unless a server has kept its micro-batches. This includes
// the pauses between them.
Account Book::account_at(Time end, Duration down_beyond, DecidedBy who) const {
  Account account = account_;
  account.lose(who == DecidedBy::servers ? account[Activity::compute] - tally_.kept_time : tally_.lost_time(who));
  account[Activity::down] -= down_beyond;
  const Duration beyond = now_ - unbooked_ - end;
  if (beyond <= Duration{}) {
    account[Activity::wait] -= beyond;
    return account;
  }
  const Duration worked = beyond - down_beyond;
  const Duration lost = std::min(worked, account[Activity::discarded]);
  account[Activity::discarded] -= lost;
  account[Activity::compute] -= worked - lost;
  return account;
}

// Removes the time beyond `end` from the activities that the spans show, or without spans in the order below.
Duration Book::take_back(Time end) {
  if (const auto removed = spans_ ? spans_->remove_beyond(self_, end) : std::nullopt) {
    for (std::size_t i = 0; i < activities; ++i) account_.time[i] -= removed->account.time[i];
    return removed->micro_batches;
  }
  const Duration computed = account_[Activity::compute];
  Duration beyond = now_ - end;
  for (const Activity activity :
       {Activity::wait, Activity::communicate, Activity::compute, Activity::discarded, Activity::down}) {
    const Duration taken = std::min(beyond, account_[activity]);
    account_[activity] -= taken;
    beyond -= taken;
  }
  return computed - account_[Activity::compute];
}

Tally& Tally::operator+=(const Tally& other) {
  using Numbers = std::array<std::int64_t, 7>;
  auto sum = std::bit_cast<Numbers>(*this);
  const auto more = std::bit_cast<Numbers>(other);
  for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += more[i];
  return *this = std::bit_cast<Tally>(sum);
}

SpanRecorder::SpanRecorder(int workers, int servers, const Limits& limits)
    : workers_(workers), servers_(servers), limits_(limits), tracks_(workers + servers) {
  const std::int64_t of_workers = servers > 0 ? limits.spans / 2 : limits.spans;
  for (const Rank rank : Ranks(workers + servers)) {
    const bool is_worker = rank.value < workers;
    const std::int64_t share = is_worker ? of_workers / workers : (limits.spans - of_workers) / servers;
    tracks_[rank].most_spans = std::max<std::int64_t>(share, 1);
  }
}

void SpanRecorder::add(Rank rank, Activity activity, Time end, const SpanLabel& label) {
  Track& track = tracks_[rank];
  const Time begin = track.at;
  if (end <= begin) return;
  track.at = end;
  const bool is_micro_batch = label.micro_batch >= 0;
  const bool goes_on = is_micro_batch && label.step == track.step;
  if (is_micro_batch) track.step = label.step;
  const bool is_full =
      static_cast<std::int64_t>(track.spans.size()) >= track.most_spans || begin.time_since_epoch() >= limits_.time;
  // A step is recorded completely or not at all, so that keep() and lose() find all micro-batches of its gradient.
  if (!track.stopped && is_full && !goes_on) stop(rank);
  if (track.stopped) {
    if (!is_micro_batch || activity != Activity::compute || track.open.empty()) return;
    const Duration all = (track.unrecorded.empty() ? Duration{} : track.unrecorded.back()) + (end - begin);
    if (servers_ == 0) track.unrecorded.clear();
    track.unrecorded.push_back(all);
    return;
  }
  track.stopped_at = end;
  if (!is_micro_batch && !track.spans.empty()) {
    Span& last = track.spans.back();
    if (last.activity == activity && last.what == std::string_view(label.what) && last.step == track.step &&
        last.micro_batch < 0) {
      last.end = end;
      return;
    }
  }
  const bool completed = is_micro_batch && activity == Activity::compute;
  if (completed) track.open.push_back(track.spans.size());
  track.spans.push_back({activity, begin, end, label.what, track.step, label.micro_batch, completed});
}

void SpanRecorder::add_use(Rank server, bool is_in, const LinkUse& transfer) {
  if (transfer.end <= transfer.begin || server.value >= workers_ + servers_) return;
  if (link_ways_.empty()) link_ways_.resize(2 * static_cast<std::size_t>(servers_));
  LinkWay& way = link_ways_[2 * static_cast<std::size_t>(server.value - workers_) + (is_in ? 0 : 1)];
  if (way.stopped) return;
  way.stopped =
      std::ssize(way.transfers) >= tracks_[server].most_spans || transfer.begin.time_since_epoch() >= limits_.time;
  if (way.stopped)
    way.stopped_at = transfer.begin;
  else
    way.transfers.push_back(transfer);
}

void SpanRecorder::move_in(Rank rank, const std::vector<Span>& spans) {
  Track& track = tracks_[rank];
  track.spans = spans;
  for (std::size_t i = 0; i < spans.size(); ++i)
    if (spans[i].completed && spans[i].activity == Activity::compute) track.open.push_back(i);
  if (!spans.empty()) {
    track.at = track.stopped_at = spans.back().end;
    track.step = spans.back().step;
  }
}

void SpanRecorder::decide(const Fate& fate) {
  Duration computed = fate.computed;
  if (computed <= Duration{}) return;
  if (collected_) return collected_->push_back(fate);
  Track& track = tracks_[fate.worker];
  if (track.open.empty()) return;
  // Without servers a fate concerns a worker's last micro-batches, so the unrecorded ones come first.
  if (servers_ == 0 && !track.unrecorded.empty()) computed -= track.unrecorded.back();
  if (computed <= Duration{}) return;
  auto run = find_run(track, computed, true);
  if (!run) run = find_run(track, computed, false);
  if (!run && track.stopped && servers_ > 0) run = find_begun_run(track, computed);
  if (run)
    decide_run(track, *run, fate.is);
  else if (!track.stopped || servers_ == 0)
    decide_amount(track, computed, fate.is);
}

// Finds adjacent undecided micro-batches that together take exactly `total`: with servers the earliest, otherwise the
// latest.
std::optional<SpanRecorder::Run> SpanRecorder::find_run(const Track& track, Duration total, bool of_one_step) const {
  const std::size_t count = track.open.size();
  const auto span = [&](std::size_t i) -> const Span& { return track.spans[track.open[i]]; };
  for (std::size_t i = 0; i < count; ++i) {
    const bool forward = servers_ > 0;
    const std::size_t start = forward ? i : count - 1 - i;
    Duration sum{};
    for (std::size_t n = 0; sum < total && n < count - i; ++n) {
      const std::size_t at = forward ? start + n : start - n;
      if (of_one_step && span(at).step != span(start).step) break;
      sum += span(at).duration();
      if (sum == total) return Run{std::min(start, at), n + 1};
    }
  }
  return std::nullopt;
}

// Finds the recorded part of a run of micro-batches that takes exactly `total` and ends among the unrecorded ones.
std::optional<SpanRecorder::Run> SpanRecorder::find_begun_run(const Track& track, Duration total) {
  for (std::size_t first = track.open.size(); first > 0;) {
    total -= track.spans[track.open[--first]].duration();
    if (std::ranges::binary_search(track.unrecorded, total)) return Run{first, track.open.size() - first};
  }
  return std::nullopt;
}

void SpanRecorder::decide_run(Track& track, const Run& run, Activity fate) {
  const auto first = track.open.begin() + static_cast<std::ptrdiff_t>(run.first);
  const auto last = first + static_cast<std::ptrdiff_t>(run.count);
  for (auto at = first; at != last; ++at) track.spans[*at].activity = fate;
  track.open.erase(first, last);
}

// Decides an amount that no micro-batches add up to, and divides the last one. A method may book a part of a gradient.
void SpanRecorder::decide_amount(Track& track, Duration amount, Activity fate) const {
  const bool forward = servers_ > 0;
  while (amount > Duration{} && !track.open.empty()) {
    const std::size_t place = forward ? 0 : track.open.size() - 1;
    const std::size_t at = track.open[place];
    if (track.spans[at].duration() > amount) {
      Span first = track.spans[at];
      const Time middle = forward ? first.begin + amount : first.end - amount;
      first.end = middle;
      track.spans[at].begin = middle;
      track.spans.insert(track.spans.begin() + static_cast<std::ptrdiff_t>(at), first);
      for (std::size_t i = forward ? 0 : track.open.size(); i < track.open.size(); ++i) ++track.open[i];
      track.spans[forward ? at : at + 1].activity = fate;
      return;
    }
    amount -= track.spans[at].duration();
    decide_run(track, {place, 1}, fate);
  }
}

std::optional<SpanRecorder::Removed> SpanRecorder::remove_beyond(Rank rank, Time end) {
  Track& track = tracks_[rank];
  if (track.stopped) return std::nullopt;
  Removed removed;
  while (!track.spans.empty() && track.spans.back().end > end) {
    Span& last = track.spans.back();
    const Duration beyond = last.end - std::max(last.begin, end);
    removed.account[last.completed ? Activity::compute : last.activity] += beyond;
    if (last.completed) removed.micro_batches += beyond;
    last.end -= beyond;
    if (last.end > last.begin) break;
    track.spans.pop_back();
    if (!track.open.empty() && track.open.back() == track.spans.size()) track.open.pop_back();
  }
  track.at = std::min(track.at, end);
  return removed;
}

Timeline SpanRecorder::finish(Time end) {
  Timeline timeline{.tracks = {}, .workers = workers_, .end = end, .until = end, .capped = false};
  const auto cap = [&timeline](Time at) {
    timeline.capped |= at < timeline.until;
    timeline.until = std::min(timeline.until, at);
  };
  for (const Track& track : tracks_)
    if (track.stopped) cap(track.stopped_at);
  for (const LinkWay& way : link_ways_)
    if (way.stopped) cap(way.stopped_at);
  cap(Time{limits_.time});
  for (const Rank rank : Ranks(tracks_.size())) {
    Track& track = tracks_[rank];
    // Micro-batches that no server has kept count as discarded.
    for (const std::size_t at : std::exchange(track.open, {}))
      if (servers_ > 0) track.spans[at].activity = Activity::discarded;
    add(rank, Activity::wait, end, {"end of the run"});
    track.stopped = false;
    remove_beyond(rank, timeline.until);
    timeline.tracks.push_back(std::move(track.spans));
  }
  // Transfers are cut where the tracks end.
  for (LinkWay& way : link_ways_)
    while (!way.transfers.empty() && way.transfers.back().end > timeline.until) {
      LinkUse& last = way.transfers.back();
      last.end = timeline.until;
      if (last.end > last.begin) break;
      way.transfers.pop_back();
    }
  for (std::size_t way = 0; way < link_ways_.size(); way += 2)
    timeline.links.push_back({std::move(link_ways_[way].transfers), std::move(link_ways_[way + 1].transfers)});
  return timeline;
}

}  // namespace syncopate
