// What is recorded beside a run's rows, as text: the timeline of a run made by hand, and durations of micro-batches.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "results/run_directory.hpp"

namespace syncopate {
namespace {

using nlohmann::json;
using std::chrono::milliseconds;

Time at(int ms) { return Time{milliseconds(ms)}; }

// Two workers and a server; the run went on for a second after the timeline.
Timeline timeline() {
  Timeline timeline;
  timeline.workers = 2;
  timeline.end = at(1500);
  timeline.until = at(500);
  timeline.capped = true;
  timeline.tracks = {{{.activity = Activity::compute,
                       .begin = at(0),
                       .end = at(200),
                       .what = "micro-batch",
                       .step = 4,
                       .micro_batch = 1,
                       .completed = true},
                      {.activity = Activity::discarded,
                       .begin = at(200),
                       .end = at(300),
                       .what = "micro-batch",
                       .step = 5,
                       .micro_batch = 0,
                       .completed = true},
                      {.activity = Activity::discarded, .begin = at(300), .end = at(500), .what = "micro-batch"}},
                     {{.activity = Activity::down, .begin = at(0), .end = at(500), .what = "outage"}},
                     {{.activity = Activity::wait, .begin = at(0), .end = at(500), .what = "receive"}}};
  return timeline;
}

const TraceTitle title{.experiment = "e", .method = "m", .seed = 3, .hash = "0123", .cluster = "mpi"};

TEST(TraceEvents, EveryValueStandsUnderItsOwnName) {
  const json trace = json::parse(trace_events(timeline(), title));
  EXPECT_EQ(trace["otherData"], json::parse(R"({"experiment": "e", "method": "m", "seed": 3, "hash": "0123",
    "cluster": "mpi", "workers": 2, "servers": 1, "end_s": 1.5, "until_s": 0.5, "capped": true})"));
  json complete = json::array();
  std::vector<std::string> names;
  for (const json& event : trace["traceEvents"]) {
    if (event["ph"] == "X") complete.push_back(event);
    if (event["ph"] == "M" && event["name"] != "thread_sort_index") names.push_back(event["args"]["name"]);
  }
  EXPECT_THAT(names, testing::ElementsAre("e: m, seed 3", "worker 0", "worker 1", "server"));
  for (json& event : complete) event.erase("cname");
  EXPECT_EQ(complete, json::parse(R"([
    {"name": "compute", "cat": "compute", "ph": "X", "pid": 1, "tid": 1, "ts": 0.0, "dur": 200000.0,
     "args": {"what": "micro-batch", "step": 4, "micro_batch": 1}},
    {"name": "discarded", "cat": "discarded", "ph": "X", "pid": 1, "tid": 1, "ts": 200000.0, "dur": 100000.0,
     "args": {"what": "micro-batch", "step": 5, "micro_batch": 0, "completed": true}},
    {"name": "discarded", "cat": "discarded", "ph": "X", "pid": 1, "tid": 1, "ts": 300000.0, "dur": 200000.0,
     "args": {"what": "micro-batch"}},
    {"name": "down", "cat": "down", "ph": "X", "pid": 1, "tid": 2, "ts": 0.0, "dur": 500000.0,
     "args": {"what": "outage"}},
    {"name": "wait", "cat": "wait", "ph": "X", "pid": 1, "tid": 3, "ts": 0.0, "dur": 500000.0,
     "args": {"what": "receive"}}])"));
}

// Each server's link has two threads after the server's own.
TEST(TraceEvents, ServersLinksHaveThreadsOfTheirOwn) {
  Timeline linked = timeline();
  linked.tracks.push_back(linked.tracks.back());  // two servers
  linked.links = {
      {.in = {{at(0), at(20), Rank{1}}, {at(30), at(50), std::nullopt}}, .out = {{at(50), at(70), Rank{0}}}},
      {.in = {}, .out = {{at(1), at(2), Rank{1}}}}};
  const json trace = json::parse(trace_events(linked, title));
  EXPECT_EQ(trace["otherData"]["servers"], 2);
  std::vector<std::pair<int, std::string>> names;
  json of_links = json::array();
  for (json event : trace["traceEvents"]) {
    if (event["name"] == "thread_name") names.emplace_back(event["tid"], event["args"]["name"]);
    event.erase("cname");
    if (event["ph"] == "X" && event["cat"] == "link") of_links.push_back(event);
  }
  using Named = std::pair<int, std::string>;
  EXPECT_THAT(names, testing::ElementsAre(Named{1, "worker 0"}, Named{2, "worker 1"}, Named{3, "server 0"},
                                          Named{4, "server 0, in"}, Named{5, "server 0, out"}, Named{6, "server 1"},
                                          Named{7, "server 1, in"}, Named{8, "server 1, out"}));
  const auto event = [](int thread, double begin_us, double us, const char* what) {
    return json{{"name", "communicate"}, {"cat", "link"},  {"ph", "X"}, {"pid", 1},
                {"tid", thread},         {"ts", begin_us}, {"dur", us}, {"args", {{"what", what}}}};
  };
  EXPECT_EQ(of_links, json::array({event(4, 0, 20e3, "from worker 1"), event(4, 30e3, 20e3, "collective"),
                                   event(5, 50e3, 20e3, "to worker 0"), event(8, 1e3, 1e3, "to worker 1")}));
}

TEST(TraceEvents, OfSeveralServersEachHasItsNumber) {
  Timeline with_two = timeline();
  with_two.tracks.push_back(with_two.tracks.back());
  const std::string text = trace_events(with_two, title);
  for (const char* name : {"\"worker 1\"", "\"server 0\"", "\"server 1\""}) EXPECT_THAT(text, testing::HasSubstr(name));
}

TEST(DurationsCsv, AreInTheOrderOfWorkersStepsAndMicroBatches) {
  const auto time = [](int worker, int step, int index, std::int64_t ns, std::int64_t added_ns) {
    return MicroBatchTime{Rank{worker}, Step{step}, index, Duration{ns}, Duration{added_ns}};
  };
  EXPECT_EQ(durations_csv({time(1, 0, 0, 5, 0), time(0, 1, 0, 1'000'000'007, 20'000'000), time(0, 0, 1, 3, 2),
                           time(0, 0, 0, 12'345'678'901, 999'999'999)}),
            "worker,step,micro_batch,duration_s,added_s\n"
            "0,0,0,12.345678901,0.999999999\n"
            "0,0,1,0.000000003,0.000000002\n"
            "0,1,0,1.000000007,0.020000000\n"
            "1,0,0,0.000000005,0.000000000\n");
}

}  // namespace
}  // namespace syncopate
