// Reports of a server: rows of steps.csv, counted in steps of the experiment file, and the progress that it sends with
// its models. All times are computed by hand: two workers take 2 s for a step's two micro-batches, and a message takes
// 0.5 s. So both gradients arrive every 3 s, worker 0's first.
#include "workers/server.hpp"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "tests/algorithms/simulated_run.hpp"
#include "workers/cluster/calls.hpp"

namespace syncopate {
namespace {

class ServedScript : public Algorithm {
 public:
  ServedScript(std::function<void(Worker&)> run, std::function<void(Server&)> serve, Servers servers = 1)
      : run_(std::move(run)), serve_(std::move(serve)), servers_(servers) {}
  void run(Worker& worker) const override { run_(worker); }
  Traits traits() const override { return {.servers = servers_}; }
  void serve(Server& server) const override { serve_(server); }

 private:
  std::function<void(Worker&)> run_;
  std::function<void(Server&)> serve_;
  Servers servers_;
};

using PartialOutcome = std::vector<std::pair<std::int64_t, std::int64_t>>;  // micro-batches in a model, its step

struct Served {
  SimulatedRun::Outcome outcome;
  std::vector<PartialOutcome> told;  // by worker
};

// The server takes eight gradients. It discards the third and the sixth, and takes a step along each of the other six.
// It declares how many gradients make one of its steps; two workers' gradients make a step of the experiment file.
Served serve_eight(int gradients_per_step) {
  const SimulatedRun setup{.workers = 2, .micro_batches = 2, .budget = {.steps = 100}};
  Served served{.outcome = {}, .told = std::vector<PartialOutcome>(2)};
  const auto work = [&](Worker& worker) {
    while (const auto message = worker.receive()) {
      served.told[static_cast<std::size_t>(worker.rank().value)].emplace_back(message->kept, message->step.value());
      worker.send(Rank{worker.size()},
                  Message::of_gradient(message->step, worker.compute_step_gradient(Samples::in_turn)));
    }
  };
  const auto serve = [&](Server& server) {
    server.set_gradients_per_step(gradients_per_step);
    server.send_model(Receivers::all);
    for (int i = 0; i < 8; ++i) {
      const auto message = server.receive();
      ASSERT_TRUE(message);
      EXPECT_EQ(message->from, Rank{i % 2});
      if (i % 3 == 2) {
        server.accept(*message, {.is_needed = false});
      } else {
        server.accept(*message);
        server.descend(message->gradient);
        server.publish();
      }
      server.send_model(message->from);
    }
  };
  served.outcome = setup.run(ServedScript(work, serve));
  return served;
}

void expect_row(const StepRow& row, int step, int period, double end_s, double duration_s, int kept, int dropped,
                int bytes) {
  EXPECT_EQ(row.step, Step{step});
  EXPECT_EQ(row.period, Step{period});
  EXPECT_EQ(row.end, Time{from_seconds(end_s)});
  EXPECT_EQ(row.duration, from_seconds(duration_s));
  EXPECT_EQ(row.kept, kept);
  EXPECT_EQ(row.dropped, dropped);
  EXPECT_EQ(row.bytes, Bytes{bytes});
}

// Models and gradients have 16 bytes. A row counts the bytes sent before its step. The step at 3 s needs two gradients.
// Before it, two models, both gradients and worker 0's next model are sent.
TEST(Server, RowsAreStepsOfTheExperimentFile) {
  const auto rows = serve_eight(1).outcome.rounds;
  ASSERT_EQ(rows.size(), 3u);
  expect_row(rows[0], 1, 1, 3, 3, 4, 0, 5 * 16);
  expect_row(rows[1], 2, 1, 9, 6, 4, 2, 6 * 16);
  expect_row(rows[2], 3, 1, 12, 3, 4, 2, 6 * 16);
}

TEST(Server, AStepThatIsSeveralOfTheExperimentFileIsOneRow) {
  const auto rows = serve_eight(4).outcome.rounds;
  ASSERT_EQ(rows.size(), 6u);
  expect_row(rows[0], 2, 2, 3, 3, 2, 0, 3 * 16);
  expect_row(rows[1], 4, 2, 3, 0, 2, 0, 2 * 16);
  expect_row(rows[2], 6, 2, 6, 3, 2, 2, 4 * 16);
  expect_row(rows[3], 8, 2, 9, 3, 2, 0, 2 * 16);
  expect_row(rows[4], 10, 2, 12, 3, 2, 2, 4 * 16);
  expect_row(rows[5], 12, 2, 12, 0, 2, 0, 2 * 16);
}

TEST(Server, ItsModelsSayHowMuchOfTheTrainingIsInThem) {
  for (const int gradients_per_step : {2, 1}) {
    const Served served = serve_eight(gradients_per_step);
    EXPECT_EQ(served.outcome.totals.staleness, (std::vector<std::int64_t>{3, 3}));
    ASSERT_GE(served.told[0].size(), 4u);
    ASSERT_GE(served.told[1].size(), 4u);
    EXPECT_EQ(PartialOutcome(served.told[0].begin(), served.told[0].begin() + 4),
              (PartialOutcome{{0, 0}, {2, 1}, {4, 2}, {8, 4}}));
    EXPECT_EQ(PartialOutcome(served.told[1].begin(), served.told[1].begin() + 4),
              (PartialOutcome{{0, 0}, {4, 2}, {6, 3}, {8, 4}}));
  }
}

TEST(Server, PublicationsAreInStepsOfTheExperimentFileAndCountWhatWasMovedBefore) {
  const auto publications = serve_eight(1).outcome.publications;
  ASSERT_EQ(publications.size(), 6u);
  constexpr int bytes[] = {3, 5, 9, 11, 15, 17};  // messages sent before each publication
  constexpr double at_s[] = {3, 3, 6, 9, 12, 12};
  for (int i = 0; i < 6; ++i) {
    const Publication& publication = publications[static_cast<std::size_t>(i)];
    EXPECT_EQ(publication.step, Step{(i + 1) / 2}) << i;
    EXPECT_EQ(publication.samples, 2 * (i + 1)) << i;
    EXPECT_EQ(publication.bytes, Bytes{16 * bytes[i]}) << i;
    EXPECT_EQ(publication.time, Time{from_seconds(at_s[i])}) << i;
  }
}

// Each worker sends differences of models that contain the work of three steps. A step to such a model counts as 1.5
// steps of the file. Four of them are six steps, but the budget has only five. Staleness counts the server's own steps.
TEST(Server, AStepToAModelCountsByTheWorkInIt) {
  const SimulatedRun setup{.workers = 2, .micro_batches = 2, .budget = {.steps = 5}};
  std::vector<Step> steps, stale;
  const auto work = [&](Worker& worker) {
    while (worker.receive_model()) {
      const Gradient gradient = worker.compute_step_gradient(Samples::in_turn);
      worker.send(Rank{2},
                  Message::of_difference(worker.step(), worker.model(), {worker.rank(), 6, gradient.compute_time()}));
    }
  };
  const auto serve = [&](Server& server) {
    server.send_model(Receivers::all);
    for (int i = 0; i < 4; ++i) {
      EXPECT_TRUE(server.budget_left());
      const auto message = server.receive();
      ASSERT_TRUE(message);
      stale.push_back(server.accept(*message).value());
      server.descend(message->model, message->work().micro_batches);
      steps.push_back(server.step());
      server.publish();
      if (i < 3) server.send_model(message->from);
    }
    EXPECT_FALSE(server.budget_left());
  };
  const auto outcome = setup.run(ServedScript(work, serve));
  EXPECT_EQ(steps, (std::vector<Step>{1, 3, 4, 5}));
  EXPECT_EQ(stale, (std::vector<Step>{0, 1, 1, 1}));
  EXPECT_EQ(outcome.samples, 24);
  ASSERT_EQ(outcome.rounds.size(), 4u);
  expect_row(outcome.rounds[0], 1, 1, 3, 3, 6, 0, 3 * 16);
  expect_row(outcome.rounds[1], 3, 2, 3, 0, 6, 0, 2 * 16);
  expect_row(outcome.rounds[2], 4, 1, 6, 3, 6, 0, 2 * 16);
  expect_row(outcome.rounds[3], 5, 1, 6, 0, 6, 0, 2 * 16);
}

// A worker does not get a version twice, whichever call sends it. A worker whose gradient is late gets the newest
// version at once.
TEST(Server, AModelGoesToThoseWhoWaitForItAndToNobodyTwice) {
  const SimulatedRun setup{.workers = 3, .budget = {.steps = 100}};
  std::vector<std::vector<std::string>> seen(3);  // by worker: versions and their times of arrival
  const auto work = [&](Worker& worker) {
    while (const auto message = worker.receive()) {
      seen[static_cast<std::size_t>(worker.rank().value)].push_back(
          fmt::format("{} at {} s", message->step.value(), to_seconds(worker.now())));
      const bool sends_two = worker.rank() == Rank{1} && message->step == Step{0};
      for (int i = 0; i < (sends_two ? 2 : 1); ++i)
        worker.send(Rank{worker.size()},
                    Message::of_gradient(message->step, worker.compute_step_gradient(Samples::in_turn)));
    }
  };
  const auto serve = [&](Server& server) {
    const auto take = [&](int from) {
      const auto message = server.receive();
      ASSERT_TRUE(message);
      EXPECT_EQ(message->from, Rank{from});
      server.accept(*message);
    };
    server.send_model(Rank{1});
    server.send_model(Receivers::waiting);
    server.send_model(Receivers::waiting);  // all workers already have version 0
    take(1), take(0), take(2);              // all at 2 s, as all workers got version 0 at the same time
    server.send_model(Receivers::waiting);  // all have version 0 and wait for version 1
    server.descend({});
    server.send_model(Receivers::waiting);
    take(1);                                // at 3 s, worker 1's second gradient of version 0; it has been
    server.send_model(Receivers::waiting);  // sent version 1, and waits for version 2
    server.descend({});
    server.send_model(Receivers::waiting);
    take(0), take(1), take(2);  // at 4 s, gradients of version 1, which are late for 0 and 2
    server.send_model(Receivers::waiting);
    server.send_model(Receivers::waiting);
    EXPECT_EQ(server.now(), Time{from_seconds(4)});
    server.receive(Time{from_seconds(4.75)});
  };
  const auto outcome = setup.run(ServedScript(work, serve));
  for (const std::size_t worker : {0, 2})
    EXPECT_EQ(seen[worker], (std::vector<std::string>{"0 at 0.5 s", "1 at 2.5 s", "2 at 4.5 s"})) << worker;
  EXPECT_EQ(seen[1], (std::vector<std::string>{"0 at 0.5 s", "1 at 2.5 s", "2 at 3.5 s"}));
}

TEST(Server, EachWorkerThatLeavesIsToldOfOnceAlsoWhereSeveralLeaveTogether) {
  const SimulatedRun setup{.workers = 5, .budget = {.steps = 100}};
  std::vector<std::string> told;
  const auto work = [&](Worker& worker) {  // 1 and 3 leave after 1 s, 0 and 4 after 2 s, 2 after 3 s
    for (int i = 0; i < (worker.rank().value % 2 == 1 ? 1 : worker.rank() == Rank{2} ? 3 : 2); ++i)
      worker.compute_gradient();
  };
  const auto serve = [&](Server& server) {
    const auto on_leave = [&](Rank worker) {
      told.push_back(fmt::format("{} at {} s", worker.value, to_seconds(server.now())));
    };
    for (int i = 0; i < 2; ++i) EXPECT_FALSE(server.receive());  // two workers have left before the loop below
    EXPECT_FALSE(server.receive_until_all_left(on_leave));
  };
  setup.run(ServedScript(work, serve));
  EXPECT_EQ(told, (std::vector<std::string>{"1 at 1 s", "3 at 1 s", "0 at 2 s", "4 at 2 s", "2 at 3 s"}));
}

// The global server ends at once. If the region's server went on, the workers would keep it busy with messages.
TEST(Server, OfARegionServesNobodyOnceItHasHeardThatTheGlobalServerHasEnded) {
  const auto work = [](Worker& worker) {
    for (int i = 0; i < 20; ++i) {
      worker.send(Rank{worker.size() + 1}, Message::note(Step{i}, {1.0}));
      if (!worker.receive()) return;
    }
    ADD_FAILURE() << "all was answered";
  };
  const auto serve = [](Server& server) {
    if (server.rank() == server.server()) return;
    while (!server.has_left(server.server())) EXPECT_FALSE(server.receive());  // its end is reported once
    while (const auto message = server.receive_until_all_left()) server.send_model(message->from);
  };
  const SimulatedRun setup{.workers = 2, .budget = {.steps = 100}};
  setup.run(ServedScript(work, serve, Servers::of_regions(1)));
}

std::vector<int> of(Ranks ranks) {
  std::vector<int> values;
  for (const Rank rank : ranks) values.push_back(rank.value);
  return values;
}

TEST(Servers, OneOrSlicesServeAllWorkers) {
  for (const int count : {1, 3}) {
    const Servers servers = count;
    EXPECT_EQ(servers, count);
    EXPECT_EQ(servers.hold_slices(), count > 1);
    for (int server = 4; server < 4 + count; ++server) {
      EXPECT_EQ(of(servers.served_by(Rank{server}, 4)), (std::vector{0, 1, 2, 3}));
      EXPECT_EQ(servers.server_of(Rank{server}, 4), Rank{server}) << "it has no other";
    }
    for (int worker = 0; worker < 4; ++worker) EXPECT_EQ(servers.server_of(Rank{worker}, 4), Rank{4});
  }
  EXPECT_EQ(Servers(1).name_of(Rank{4}, 4), "the server");
  EXPECT_EQ(Servers(3).name_of(Rank{6}, 4), "server 2");
}

TEST(Servers, OfRegionsServeTheirOwnWorkersAndAreServedByTheGlobalOne) {
  const Servers servers = Servers::of_regions(3);
  EXPECT_EQ(servers, 4);
  EXPECT_FALSE(servers.hold_slices());
  EXPECT_EQ(of(servers.served_by(Rank{12}, 12)), (std::vector{13, 14, 15}));
  for (int region = 0; region < 3; ++region) {
    const Rank server{13 + region};
    EXPECT_EQ(of(servers.served_by(server, 12)),
              (std::vector{4 * region, 4 * region + 1, 4 * region + 2, 4 * region + 3}));
    for (const Rank worker : servers.served_by(server, 12)) EXPECT_EQ(servers.server_of(worker, 12), server);
    EXPECT_EQ(servers.server_of(server, 12), Rank{12});
  }
  EXPECT_EQ(servers.server_of(Rank{12}, 12), Rank{12}) << "the global one has no other";
  EXPECT_EQ(servers.name_of(Rank{12}, 12), "the global server");
  EXPECT_EQ(servers.name_of(Rank{14}, 12), "the server of region 1");
}

}  // namespace
}  // namespace syncopate
