#include "tests/benchmarks/simgrid_actors.hpp"

#include <chrono>
#include <numeric>
#include <simgrid/s4u.hpp>
#include <string>
#include <vector>

namespace syncopate {
namespace {

namespace s4u = simgrid::s4u;

struct Post {
  s4u::Mailbox* server;
  std::vector<s4u::Mailbox*> workers;
  std::vector<int> ranks;  // targets of message pointers
};

void serve(Post& post, std::int64_t gradients) {
  const auto send_model = [&](int to) {
    post.workers[static_cast<std::size_t>(to)]->put_init(&post.ranks[static_cast<std::size_t>(to)], 1)->detach();
  };
  for (const int worker : post.ranks) send_model(worker);
  for (std::int64_t done = 0; done < gradients; ++done) send_model(*post.server->get<int>());
}

void work(Post& post, int rank, const ComputeTime& compute_time) {
  for (Step step;; ++step) {
    post.workers[static_cast<std::size_t>(rank)]->get<int>();
    Duration duration;
    compute_time.durations(Rank{rank}, step, 0, {&duration, 1});
    s4u::this_actor::sleep_for(to_seconds(duration));
    post.server->put_init(&post.ranks[static_cast<std::size_t>(rank)], 1)->detach();
  }
}

}  // namespace

double run_on_simgrid(int workers, std::int64_t gradients, const ComputeTime& compute_time, double message_s) {
  std::string name = "simgrid";
  std::vector<char*> arguments = {name.data(), nullptr};
  int count = 1;
  s4u::Engine engine(&count, arguments.data());
  // The cheapest of SimGrid's network models: every message takes the same time, and no link is shared.
  s4u::Engine::set_config("network/model:Constant");
  s4u::Engine::set_config("network/latency-factor:" + std::to_string(message_s));
  auto* const zone = s4u::create_empty_zone("cluster");
  std::vector<s4u::Host*> hosts;
  for (int i = 0; i <= workers; ++i) hosts.push_back(zone->create_host("host" + std::to_string(i), 1e9)->seal());
  zone->seal();
  Post post{.server = s4u::Mailbox::by_name("server"), .workers = {}, .ranks = {}};
  post.ranks.resize(static_cast<std::size_t>(workers));
  std::iota(post.ranks.begin(), post.ranks.end(), 0);
  for (const int rank : post.ranks) {
    post.workers.push_back(s4u::Mailbox::by_name("worker" + std::to_string(rank)));
    s4u::Actor::create("worker", hosts[static_cast<std::size_t>(rank)], [&, rank] {
      work(post, rank, compute_time);
    })->daemonize();  // the end of the server ends the run
  }
  s4u::Actor::create("server", hosts.back(), [&] { serve(post, gradients); });
  const auto start = std::chrono::steady_clock::now();
  engine.run();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace syncopate
