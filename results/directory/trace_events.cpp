#include "results/directory/trace_events.hpp"

#include <fmt/format.h>

#include <array>
#include <cmath>
#include <iterator>
#include <limits>

#include "results/formats/exact_seconds.hpp"
#include "results/formats/json.hpp"

namespace syncopate {
namespace {

constexpr int process = 1;  // viewers take process and thread 0 for the idle ones

// Names from the colour scheme of chrome://tracing; the other viewers choose a colour by an event's name, which is
// the activity for this reason.
constexpr std::array<const char*, activities> colours = {"thread_state_running", "terrible", "grey",
                                                         "thread_state_runnable", "black"};

// A double whose nanoseconds are right whether a reader rounds or, as some do, truncates them.
double microseconds(Time time) {
  const auto exact_ns = static_cast<double>(time.time_since_epoch().count());
  double us = exact_ns / 1e3;
  while (us * 1e3 < exact_ns) us = std::nextafter(us, std::numeric_limits<double>::infinity());
  return us;
}

// So that begin + duration, added as doubles, is not beyond the begin of the next event.
double microseconds(Time from, Time to) {
  const double begin = microseconds(from), end = microseconds(to);
  double us = static_cast<double>((to - from).count()) / 1e3;
  while (begin + us > end) us = std::nextafter(us, 0);
  return us;
}

// Some readers want a time of every event, also of these.
std::string naming(const char* what, int thread, const Json& arguments) {
  const Json event{{"name", what}, {"ph", "M"}, {"pid", process}, {"tid", thread}, {"ts", 0}, {"args", arguments}};
  return event.dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::string participant(const Timeline& timeline, std::size_t rank) {
  const auto workers = static_cast<std::size_t>(timeline.workers);
  if (rank < workers) return fmt::format("worker {}", rank);
  return timeline.tracks.size() == workers + 1 ? "server" : fmt::format("server {}", rank - workers);
}

void append(std::string& text, const Span& span, int thread) {
  const auto activity = static_cast<std::size_t>(span.activity);
  fmt::format_to(std::back_inserter(text),
                 R"(,
{{"name":"{0}","cat":"{0}","cname":"{1}","ph":"X","pid":{2},"tid":{3},"ts":{4},"dur":{5},"args":{{"what":"{6}")",
                 activity_names[activity], colours[activity], process, thread, microseconds(span.begin),
                 microseconds(span.begin, span.end), span.what);
  if (span.step >= Step{0}) fmt::format_to(std::back_inserter(text), R"(,"step":{})", span.step.value());
  if (span.micro_batch >= 0) fmt::format_to(std::back_inserter(text), R"(,"micro_batch":{})", span.micro_batch);
  if (span.completed && span.activity == Activity::discarded) text += R"(,"completed":true)";
  text += "}}";
}

// What a server's link carries is an event of the participants' communication.
void append(std::string& text, const Timeline& timeline, const std::vector<LinkUse>& transfers, bool is_in,
            int thread) {
  constexpr auto activity = static_cast<std::size_t>(Activity::communicate);
  for (const LinkUse& transfer : transfers) {
    const std::string what = transfer.other
                                 ? fmt::format("{} {}", is_in ? "from" : "to",
                                               participant(timeline, static_cast<std::size_t>(transfer.other->value)))
                                 : "collective";
    fmt::format_to(std::back_inserter(text),
                   R"(,
{{"name":"{0}","cat":"link","cname":"{1}","ph":"X","pid":{2},"tid":{3},"ts":{4},"dur":{5},"args":{{"what":"{6}"}}}})",
                   activity_names[activity], colours[activity], process, thread, microseconds(transfer.begin),
                   microseconds(transfer.begin, transfer.end), what);
  }
}

Json other_data(const Timeline& timeline, const TraceTitle& title) {
  Json data;
  data["experiment"] = title.experiment;
  data["method"] = title.method;
  data["seed"] = title.seed;
  data["hash"] = title.hash;
  data["cluster"] = title.cluster;
  data["workers"] = timeline.workers;
  data["servers"] = timeline.tracks.size() - static_cast<std::size_t>(timeline.workers);
  data["end_s"] = exact_seconds(timeline.end);
  data["until_s"] = exact_seconds(timeline.until);
  data["capped"] = timeline.capped;
  return data;
}

}  // namespace

std::string trace_events(const Timeline& timeline, const TraceTitle& title) {
  std::string text = R"({"displayTimeUnit":"ms","otherData":)";
  text += other_data(timeline, title).dump(-1, ' ', false, Json::error_handler_t::replace);
  text += ",\"traceEvents\":[\n";
  const std::string name = fmt::format("{}: {}, seed {}", title.experiment, title.method, title.seed);
  text += naming("process_name", 0, {{"name", name}});
  // A thread for each participant; after a server's come those of its link.
  const auto workers = static_cast<std::size_t>(timeline.workers);
  const auto thread_of = [&](std::size_t rank) {
    return static_cast<int>(rank + 1 + (rank > workers && !timeline.links.empty() ? 2 * (rank - workers) : 0));
  };
  const auto name_thread = [&](int thread, const std::string& of) {
    text += ",\n" + naming("thread_name", thread, {{"name", of}});
    text += ",\n" + naming("thread_sort_index", thread, {{"sort_index", thread}});
  };
  for (std::size_t rank = 0; rank < timeline.tracks.size(); ++rank) {
    name_thread(thread_of(rank), participant(timeline, rank));
    if (rank < workers || timeline.links.empty()) continue;
    name_thread(thread_of(rank) + 1, participant(timeline, rank) + ", in");
    name_thread(thread_of(rank) + 2, participant(timeline, rank) + ", out");
  }
  for (std::size_t rank = 0; rank < timeline.tracks.size(); ++rank) {
    for (const Span& span : timeline.tracks[rank]) append(text, span, thread_of(rank));
    if (rank < workers || timeline.links.empty()) continue;
    append(text, timeline, timeline.links[rank - workers].in, true, thread_of(rank) + 1);
    append(text, timeline, timeline.links[rank - workers].out, false, thread_of(rank) + 2);
  }
  return text + "\n]}\n";
}

}  // namespace syncopate
