// What a rank would run, as a text: equal exactly where ranks may run together.
#include <gtest/gtest.h>

#include <string>

#include "experiments/execution/ranks.hpp"
#include "experiments/sections/experiment.hpp"

namespace syncopate {
namespace {

Experiment experiment() {
  Experiment experiment;
  experiment.resolved_toml = "name = \"e\"\n";
  experiment.runs.emplace_back().hash = "0123456789abcdef";
  return experiment;
}

std::string identity(const Experiment& experiment, bool on_mpi = true, bool rerun = false) {
  return statement_of({.command = "run", .experiment = &experiment, .on_mpi = on_mpi, .rerun = rerun}).identity;
}

// What is recorded is no part of a run's hash, but ranks must send each other the same.
TEST(RankStatement, IsAnotherOneWithAnythingThatRanksMustDoAlike) {
  const Experiment same = experiment();
  EXPECT_EQ(identity(same), identity(experiment()));
  const auto expect_differs = [&](auto change) {
    Experiment other = experiment();
    change(other.runs.front());
    EXPECT_NE(identity(same), identity(other));
    EXPECT_EQ(identity(same, false), identity(other, false)) << "on clusters of their own";
  };
  expect_differs([](syncopate::Run& run) { run.hash = "1123456789abcdef"; });
  expect_differs([](syncopate::Run& run) { run.recording.trace = true; });
  expect_differs([](syncopate::Run& run) { run.recording.trace_seconds = 2; });
  expect_differs([](syncopate::Run& run) { run.recording.trace_events = 7; });
  expect_differs(
      [](syncopate::Run& run) { run.recording.durations = false; });  // under MPI they are recorded unless told
  expect_differs([](syncopate::Run& run) { run.recording.parameters = true; });
  expect_differs([](syncopate::Run& run) { run.recording.arrivals = true; });
  expect_differs([](syncopate::Run& run) { run.recording.samples = true; });
  expect_differs([](syncopate::Run& run) { run.cluster.to_be_measured = true; });
  EXPECT_NE(identity(same), identity(same, false));
  EXPECT_NE(identity(same), identity(same, true, true));
  Experiment longer = experiment();
  longer.runs.push_back(longer.runs.front());
  EXPECT_NE(identity(same), identity(longer));
}

}  // namespace
}  // namespace syncopate
