// `syncopate trace import`: traces of the PyTorch profiler and CSV files with other columns, and unreadable input.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "tests/experiments/program.hpp"
#include "workers/base/files.hpp"

namespace syncopate {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
using TraceImport = ProgramTest;

std::string event(const std::string& name, double begin_us, double duration_us,
                  const std::string& category = "user_annotation") {
  return fmt::format(
      R"({{"ph": "X", "cat": "{}", "name": "{}", "pid": 7, "tid": 7, "ts": {}, "dur": {}, "args": {{"name": "x", "dur": 9}}}})",
      category, name, begin_us, duration_us);
}

// Returns the text that a rank's profiler writes about these steps of two micro-batches each, among kernels and
// counters. `slower`: factor of all durations.
std::string profiled(int rank, double slower, const std::vector<int>& steps = {5, 6}) {
  std::string events = R"({"ph": "M", "name": "process_name", "ts": 0, "args": {"name": "python"}})";
  double now_us = 1.7e15;  // since 1970, as newer profilers write it
  for (const int step : steps) {
    const double begin_us = now_us;
    events += ",\n" + event("micro_batch", begin_us + 10, 1000 * slower);
    events += ",\n" + event("aten::mm", begin_us + 20, 300, "cpu_op");
    events += ",\n" + event("micro_batch", begin_us + 15, 9000, "gpu_user_annotation");
    events += ",\n" + event("optimizer", begin_us + 5000, 10);
    events += ",\n" + event("micro_batch", begin_us + 4000, 2000 * slower + step);
    now_us += 10'000 * slower;
    events += ",\n" + event(fmt::format("ProfilerStep#{}", step), begin_us, 10'000 * slower);
  }
  events += ",\n" + event("micro_batch", now_us + 1'000'000, 77);  // between steps
  return fmt::format(
      "{{\"schemaVersion\": 1, \"distributedInfo\": {{\"backend\": \"nccl\", \"rank\": {}}},\n"
      "\"traceEvents\": [{}], \"traceName\": \"a.json\"}}",
      rank, events);
}

// The same text in which the first event of this name has no duration.
std::string without_duration(std::string text, const std::string& name) {
  const std::size_t begin = text.find("\"name\": \"" + name + "\"");
  return text.replace(text.find("\"dur\"", begin), 5, "\"end\"");
}

std::string without_rank(std::string text) {
  const std::string key = "distributedInfo";
  return text.replace(text.find(key), key.size(), "other");
}

TEST_F(TraceImport, TakesStepsAndRangesOfProfilersOneFilePerRank) {
  write("late.json.gz", gzip(profiled(1, 2)));
  write("first.json", profiled(0, 1));
  const ProgramOutcome outcome = syncopate("trace import late.json.gz first.json --range micro_batch -o job.csv");
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_EQ(read("job.csv"),
            "worker,step,micro_batch,duration_s\n"
            "0,0,0,0.001\n0,0,1,0.002005\n0,1,0,0.001\n0,1,1,0.002006\n"
            "1,0,0,0.002\n1,0,1,0.004005\n1,1,0,0.002\n1,1,1,0.004006\n");
  EXPECT_EQ(outcome.out,
            "job.csv\n2 workers, 2 steps, 2 micro-batches per step; 0.002253 s each on average\n"
            "a worker's step takes 0.004505 s on average, the slowest worker's 0.006006 s: 1.333 times as long\n"
            "steps 5 to 6 of the input are numbered from 0\n");
}

// Two ranks of PyTorch 2.5.1 with gloo, recorded by torch.profiler on the CPU: 4 steps of 4 micro-batches with
// different numbers of samples. The expected sums were computed from the same files with Python's json module.
TEST_F(TraceImport, TakesWhatPyTorchWrote) {
  const std::string folder = SYNCOPATE_SOURCE_DIR "/tests/golden/profiler/";
  const ProgramOutcome outcome =
      syncopate("trace import " + folder + "rank1.json.gz " + folder + "rank0.json.gz --range micro_batch -o job.csv");
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("2 workers, 4 steps, 4 micro-batches per step"));
  std::istringstream rows(read("job.csv"));
  std::string row;
  std::getline(rows, row);
  std::map<char, double> sums_us;  // by worker
  std::string first, last;
  for (; std::getline(rows, row); last = row) {
    if (first.empty()) first = row;
    sums_us[row.front()] += 1e6 * std::stod(row.substr(row.rfind(',') + 1));
  }
  EXPECT_NEAR(sums_us['0'], 9655.558, 1e-3);
  EXPECT_NEAR(sums_us['1'], 12980.982, 1e-3);
  EXPECT_EQ(first, "0,0,0,0.000815697");
  EXPECT_EQ(last, "1,3,3,0.001395903");
}

TEST_F(TraceImport, WithoutARangeAStepIsOneMicroBatch) {
  write("a.json", profiled(0, 1));
  ASSERT_EQ(syncopate("trace import a.json -o job.csv").status, 0);
  EXPECT_EQ(read("job.csv"), "worker,step,micro_batch,duration_s\n0,0,0,0.01\n0,1,0,0.01\n");
}

TEST_F(TraceImport, TakesAListOfEventsAndSpansOnTheGpu) {
  write("a.json", "[" + event("ProfilerStep#0", 0, 100, "gpu_user_annotation") + "," +
                      event("work", 10, 30, "gpu_user_annotation") + "," + event("work", 1, 2) + "]");
  ASSERT_EQ(syncopate("trace import a.json --range work --gpu -o job.csv").status, 0);
  EXPECT_EQ(read("job.csv"), "worker,step,micro_batch,duration_s\n0,0,0,3e-05\n");
}

TEST_F(TraceImport, LeavesOutStepsThatNotAllRanksHave) {
  write("a.json", profiled(0, 1, {5, 6, 7}));
  write("b.json", profiled(1, 1, {6, 7, 8}));
  const ProgramOutcome outcome = syncopate("trace import a.json b.json -o job.csv");
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("2 workers, 2 steps, 1 micro-batch per step"));
  EXPECT_THAT(outcome.out, HasSubstr("2 steps are left out: not every worker has them\n"));
  EXPECT_THAT(outcome.out, HasSubstr("steps 6 to 7 of the input are numbered from 0\n"));
  EXPECT_THAT(outcome.out, Not(HasSubstr("workers 0")));
}

TEST_F(TraceImport, CountsEventsOfProfilersWithoutDuration) {
  write("a.json", profiled(0, 1, {5, 6, 7}));
  write("b.json", without_duration(profiled(1, 1, {5, 6, 7}), "ProfilerStep#6"));
  const ProgramOutcome of_steps = syncopate("trace import a.json b.json -o job.csv");
  ASSERT_EQ(of_steps.status, 0) << of_steps.err;
  EXPECT_THAT(of_steps.out,
              AllOf(HasSubstr("2 workers, 2 steps"), HasSubstr("1 step is left out: not every worker has it\n"),
                    HasSubstr("\nb.json: 1 event without ts or dur is left out, first \"ProfilerStep#6\"\n")));
  write("c.json", without_duration(without_duration(profiled(1, 1, {5, 6, 7}), "micro_batch"), "ProfilerStep#7"));
  const ProgramOutcome of_ranges = syncopate("trace import a.json c.json --range micro_batch -o job.csv");
  ASSERT_EQ(of_ranges.status, 0) << of_ranges.err;
  EXPECT_THAT(of_ranges.out,
              AllOf(HasSubstr("1 of 8 micro-batches has no duration"),
                    HasSubstr("c.json: 2 events without ts or dur are left out, first \"micro_batch\"\n")));
  write("d.json", without_duration(profiled(1, 1, {5, 6, 7}), "micro_batch"));
  EXPECT_THAT(syncopate("trace import a.json d.json -o job.csv").out, Not(HasSubstr("without ts")))
      << "the range is not asked for";
}

TEST_F(TraceImport, SaysIfRanksFollowTheOrderOfTheFiles) {
  write("a.json", profiled(0, 1));
  write("b.json", profiled(1, 2));
  write("c.json", without_rank(profiled(0, 3)));
  write("d.json", without_rank(profiled(0, 4)));
  const auto note = [&](const std::string& files) {
    const ProgramOutcome outcome = syncopate("trace import " + files + " -o job.csv");
    EXPECT_EQ(outcome.status, 0) << outcome.err;
    const std::string before = "times as long\n";
    const std::size_t begin = outcome.out.find(before) + before.size();
    return outcome.out.substr(begin, outcome.out.find("steps 5", begin) - begin);
  };
  EXPECT_EQ(note("a.json b.json"), "");
  EXPECT_EQ(note("c.json"), "") << "a single file has no order";
  EXPECT_EQ(note("d.json c.json"),
            "2 files have no rank (distributedInfo), first d.json: ranks follow the order of the files\n");
  EXPECT_EQ(read("job.csv"), "worker,step,micro_batch,duration_s\n0,0,0,0.04\n0,1,0,0.04\n1,0,0,0.03\n1,1,0,0.03\n");
  EXPECT_EQ(note("a.json c.json"),
            "1 file has no rank (distributedInfo), first c.json: ranks follow the order of the files\n");
}

TEST_F(TraceImport, KeepsItsInput) {
  const std::string rows = "worker,step,duration_s\n0,0,1\n1,0,1\n";
  write("times.csv", rows);
  const ProgramOutcome onto = syncopate("trace import times.csv -o ./times.csv");
  EXPECT_EQ(onto.status, 2);
  EXPECT_THAT(onto.err, HasSubstr("./times.csv: is an input; name another file for the output"));
  EXPECT_EQ(read("times.csv"), rows);
  write("a.json", profiled(0, 1));
  const ProgramOutcome twice = syncopate("trace import a.json ./a.json -o job.csv");
  EXPECT_EQ(twice.status, 2);
  EXPECT_THAT(twice.err, HasSubstr("./a.json: is the same file as a.json"));
  write("still.csv", "worker,step,duration_s\n0,0,0\n1,0,0\n");
  EXPECT_THAT(syncopate("trace import still.csv -o job.csv").err, HasSubstr("still.csv: all durations are 0"));
}

TEST_F(TraceImport, ItsRecordingIsReplayed) {
  write("a.json", profiled(0, 1));
  write("b.json", profiled(1, 2));
  ASSERT_EQ(syncopate("trace import a.json b.json --range micro_batch -o job.csv.gz").status, 0);
  write("job.toml", R"(cluster = { workers = 2, micro_batches = 2, trace = { file = "job.csv.gz", end = "stop" } }
training = { model = "none", parameters = 1000 }
network.kind = "free"
budget.steps = 2
[[methods]]
algorithm = "sync-sgd"
)");
  const ProgramOutcome outcome = syncopate("run job.toml");
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("0.00600"));  // mean of the slower rank's two steps
}

TEST_F(TraceImport, TakesCsvFilesWithOtherColumnsAndUnits) {
  write("times.csv", "rank,iteration,loss,step_time\n8,100,0.5,12\n3,100,0.5,10\n3,200,0.4,11\n8,200,0.4,13.5\n");
  const ProgramOutcome outcome =
      syncopate("trace import times.csv --worker rank --step iteration --duration ms:step_time -o run.csv");
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_EQ(read("run.csv"),
            "worker,step,micro_batch,duration_s\n0,0,0,0.01\n0,1,0,0.011\n1,0,0,0.012\n1,1,0,0.0135\n");
}

TEST_F(TraceImport, NumbersNamedWorkersInAlphabeticalOrder) {
  for (const char* const rows : {"gpu-b,7,2\ngpu-a,7,1\n\"12\",7,3\n", "12,7,3\ngpu-b,7,2\ngpu-a,7,1\n"}) {
    write("times.csv", std::string("host,step,duration_s\n") + rows);
    const ProgramOutcome outcome = syncopate("trace import times.csv --worker host -o run.csv");
    ASSERT_EQ(outcome.status, 0) << outcome.err;
    EXPECT_EQ(read("run.csv"), "worker,step,micro_batch,duration_s\n0,0,0,3\n1,0,0,1\n2,0,0,2\n");
    EXPECT_THAT(outcome.out,
                HasSubstr("\nworkers are numbered by name, in alphabetical order: 0 = 12, 1 = gpu-a, 2 = gpu-b\n"));
  }
  write("many.csv", "worker,step,duration_s\nf,0,1\ne,0,1\nd,0,1\nc,0,1\nb,0,1\na,0,1\n");
  EXPECT_THAT(syncopate("trace import many.csv -o run.csv").out,
              HasSubstr(": 0 = a, 1 = b, 2 = c, 3 = d and 2 more\n"));
}

TEST_F(TraceImport, CountsMicroBatchesWithoutDuration) {
  write("times.csv", "worker,step,part,duration_s\n0,0,0,1\n0,0,1,1\n1,0,0,1\n");
  const ProgramOutcome outcome = syncopate("trace import times.csv --micro-batch part -o run.csv");
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("1 of 4 micro-batches has no duration; a run that needs one fails\n"));
}

// Micro-batches take 1 s on worker 0 and 2 s on worker 1. Worker 1 lacks one in step 1.
TEST_F(TraceImport, ComparesWorkersInStepsThatLackNoMicroBatch) {
  const std::string first = "worker,step,micro_batch,duration_s\n0,0,0,1\n0,0,1,1\n1,0,0,2\n1,0,1,2\n";
  write("times.csv", first + "0,1,0,1\n0,1,1,1\n1,1,0,2\n0,2,0,1\n0,2,1,1\n1,2,0,2\n1,2,1,2\n");
  EXPECT_THAT(
      syncopate("trace import times.csv -o run.csv").out,
      HasSubstr("\nin 2 of 3 steps every worker has all its micro-batches; in these steps a worker's step takes 3 s on "
                "average, the slowest worker's 4 s: 1.333 times as long\n"));
  write("holes.csv", "worker,step,micro_batch,duration_s\n0,0,0,1\n1,0,0,1\n1,0,1,1\n0,1,0,1\n0,1,1,1\n1,1,1,1\n");
  EXPECT_THAT(syncopate("trace import holes.csv -o run.csv").out,
              AllOf(HasSubstr("\nno step has all micro-batches of every worker, so steps are not compared\n"),
                    Not(HasSubstr("times as long"))));
}

// Micro-batches take 1 s.
TEST_F(TraceImport, SaysWhichWorkersDifferInMicroBatchesPerStep) {
  const auto summary = [&](const std::vector<int>& micro_batches) {
    std::string rows = "worker,step,micro_batch,duration_s\n";
    for (int step = 0; step < 3; ++step)
      for (std::size_t worker = 0; worker < micro_batches.size(); ++worker)
        for (int number = 0; number < micro_batches[worker]; ++number)
          rows += fmt::format("{},{},{},1\n", worker, step, number);
    write("times.csv", rows);
    return syncopate("trace import times.csv -o run.csv").out;
  };
  EXPECT_THAT(summary({2, 3}),
              AllOf(HasSubstr("\na worker's step takes 2.5 s on average, the slowest worker's 3 s: 1.200 times"),
                    HasSubstr("\n3 of 18 micro-batches have no duration; a run that needs one fails\n"),
                    HasSubstr("\nworkers differ in micro-batches per step: 2 (worker 0), 3 (worker 1)\n")));
  EXPECT_THAT(summary({3, 2, 3, 3}), HasSubstr("per step: 2 (worker 1), 3 (worker 0 and 2 more)\n"));
  EXPECT_THAT(summary({3, 3}), Not(HasSubstr("differ")));
}

TEST_F(TraceImport, FaultsNameTheirPlaceAndWriteNothing) {
  const auto fault = [&](const std::string& arguments) {
    const ProgramOutcome outcome = syncopate("trace import " + arguments + " -o out.csv");
    EXPECT_EQ(outcome.status, 2) << arguments;
    EXPECT_FALSE(std::filesystem::exists(directory / "out.csv"));
    return outcome.err;
  };
  write("bad.csv", "worker,step,duration_s\n0,0,1\n0,1,-1\n0,0,3\n1,0,\n");
  EXPECT_THAT(fault("bad.csv"), AllOf(HasSubstr("bad.csv:3: duration_s = -1; must be at least 0"),
                                      HasSubstr("bad.csv:4: repeats worker 0, step 0, micro-batch 0 of line 2"),
                                      HasSubstr("bad.csv:5:")));
  EXPECT_THAT(fault("bad.csv --worker rank"), HasSubstr("the column rank is missing"));
  EXPECT_THAT(fault("bad.csv --duration h:duration_s"), HasSubstr("the unit must be one of s, ms, us, ns"));
  write("names.csv", "worker,step,duration_s\na,0,1\n,0,1\na,0,2\nb,x,2\n");
  EXPECT_THAT(fault("names.csv"), AllOf(HasSubstr("names.csv:3: worker = nothing; must be a number or a name"),
                                        HasSubstr("names.csv:4: repeats worker a, step 0, micro-batch 0 of line 2"),
                                        HasSubstr("names.csv:5: step = x; must be a finite number")));
  write("numbers.csv", "worker,step,duration_s\n0.5,0,1\n,0,1\n");
  EXPECT_THAT(fault("numbers.csv"), AllOf(HasSubstr("numbers.csv:2: worker = 0.5; must be an integer from 0 to"),
                                          HasSubstr("numbers.csv:3: worker = nothing; must be an integer from 0 to")));
  write("mistyped.csv", "worker,step,duration_s\n0,0,1\n1,0,1\nl,1,1\n");
  EXPECT_THAT(fault("mistyped.csv"),
              HasSubstr("the workers have no step in common\nworkers are numbered by name, in alphabetical order: "
                        "0 = 0, 1 = 1, 2 = l\n"));
  write("worse.csv", "worker,step,duration_s\n");
  EXPECT_THAT(fault("bad.csv worse.csv"), HasSubstr("must be one CSV file"));
  EXPECT_THAT(fault("absent.json"), HasSubstr("absent.json: there is no such file"));
  write("a.json", profiled(0, 1));
  write("same.json", profiled(0, 1));
  EXPECT_THAT(fault("a.json same.json"), HasSubstr("same.json: has rank 0, like a.json; must be one file per rank"));
  EXPECT_THAT(fault("a.json bad.csv"), HasSubstr("some are JSON and some are not"));
  EXPECT_THAT(fault("a.json --range optimiser"), HasSubstr("has no range \"optimiser\"; did you mean \"optimizer\"?"));
  write("apart.json", profiled(1, 1, {8, 9}));
  EXPECT_THAT(fault("a.json apart.json"), HasSubstr("the workers have no step in common"));
  write("none.json", "{\"traceEvents\": [" + event("work", 0, 1) + "]}");
  EXPECT_THAT(fault("none.json"), HasSubstr("none.json: has no ProfilerStep#n; the training loop must call"));
  write("untimed.json", "[" + without_duration(event("ProfilerStep#1", 0, 1), "ProfilerStep#1") + "]");
  EXPECT_THAT(fault("untimed.json"), HasSubstr("untimed.json: has no ProfilerStep#n; the training loop must call "
                                               "profiler.step(); 1 event without ts or dur is left out, first "
                                               "\"ProfilerStep#1\""));
  write("late.json", without_duration(profiled(1, 1, {6, 8}), "ProfilerStep#6"));
  EXPECT_THAT(fault("a.json late.json"), HasSubstr("the workers have no step in common\nlate.json: 1 event without"));
  write("twice.json", "[" + event("ProfilerStep#1", 0, 1) + "," + event("ProfilerStep#1", 5, 1) + "]");
  EXPECT_THAT(fault("twice.json"), HasSubstr("twice.json: has ProfilerStep#1 twice"));
  write("back.json", "[" + event("ProfilerStep#1", 7, -5) + "]");
  EXPECT_THAT(fault("back.json"),
              HasSubstr("back.json: the event \"ProfilerStep#1\" at ts = 7 has dur = -5; must be at least 0"));
  write("cut.json", profiled(0, 1).substr(0, 500));
  EXPECT_THAT(fault("cut.json"), HasSubstr("cut.json: is no JSON at byte"));
  write("cut.json.gz", gzip(profiled(0, 1)).substr(0, 200));
  EXPECT_THAT(fault("cut.json.gz"), HasSubstr("cut.json.gz: "));
}

}  // namespace
}  // namespace syncopate
