#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>

#include "workers/config/settings.hpp"
#include "workers/time/network.hpp"

namespace syncopate {
namespace {

using testing::HasSubstr;

struct Read {
  std::unique_ptr<NetworkModel> network;
  std::string faults;
};

Read read(const std::string& toml, std::optional<int> workers = 4) {
  SettingsDocument document(parse_toml(toml, "network.toml"));
  Settings settings = document.root();
  auto network = make_network(settings, {.workers = workers, .seed = 1});
  EXPECT_NE(network, nullptr) << toml;
  return {std::move(network), document.check().report()};
}

const std::string link = "latency_s = 1e-3\nbandwidth_bytes_per_s = 1e6\n";
const std::string two_level =
    "kind = \"two-level\"\ngroup_size = 2\n" + link + "inside = { latency_s = 1e-6, bandwidth_bytes_per_s = 1e9 }\n";

// Time of an all-reduce of 1000 bytes among 4 workers, in microseconds.
TEST(NetworkSection, EveryModelReadsItsKeys) {
  const std::map<std::string_view, std::pair<std::string, int>> examples = {
      {"free", {"kind = \"free\"", 0}},
      {"fixed", {"kind = \"fixed\"\nlatency_s = 0.9", 900'000}},
      {"ring", {"kind = \"ring\"\n" + link, 6 * 1000 + 1500}},
      {"tree", {"kind = \"tree\"\n" + link, 4 * 2000}},
      {"two-level", {two_level, 2 * 2 + 2 * 1000 + 1000}},
      {"parameter-server", {"kind = \"parameter-server\"\n" + link, 2 * 1000 + 8 * 1000}},
  };
  ASSERT_EQ(examples.size(), networks().size());
  for (const NetworkRow& row : networks()) {
    EXPECT_FALSE(row.sentence.empty());
    const auto& [toml, microseconds] = examples.at(row.name);
    const Read plain = read(toml);
    EXPECT_EQ(plain.faults, "") << toml;
    EXPECT_EQ(plain.network->all_reduce(4, Bytes{1000}), std::chrono::microseconds(microseconds)) << toml;
    EXPECT_FALSE(plain.network->varies());
    const bool has_links = row.name != "free" && row.name != "fixed";
    EXPECT_EQ(plain.network->has_shared_links(), has_links);
    if (row.name == "free") continue;
    const Read jittery = read("jitter = 0.5\n" + toml);
    EXPECT_EQ(jittery.faults, "") << toml;
    EXPECT_TRUE(jittery.network->varies());
    EXPECT_EQ(jittery.network->all_reduce(4, Bytes{1000}), std::chrono::nanoseconds(1500 * microseconds)) << toml;
    if (row.name == "fixed") continue;
    const Read later = read("serial_s = 2\njitter = 0.5\n" + toml);
    EXPECT_EQ(later.faults, "") << toml;
    EXPECT_EQ(later.network->all_reduce(4, Bytes{1000}), std::chrono::nanoseconds(1500 * microseconds + 2'000'000'000));
    EXPECT_TRUE(later.network->varies()) << toml;
    EXPECT_FALSE(read("serial_s = 2\n" + toml).network->varies()) << toml;
    EXPECT_TRUE(later.network->has_shared_links());
    if (row.name == "parameter-server") continue;
    const Read before = read(toml + "\ncontention = false");
    EXPECT_EQ(before.faults, "") << toml;
    EXPECT_FALSE(before.network->has_shared_links());
    EXPECT_TRUE(before.network->has_unshared_links());
    EXPECT_EQ(before.network->all_reduce(4, Bytes{1000}), plain.network->all_reduce(4, Bytes{1000}));
  }
  const Read tree = read(two_level + "between = \"tree\"");
  EXPECT_EQ(tree.faults, "");
  EXPECT_EQ(tree.network->all_reduce(4, Bytes{1000}), std::chrono::microseconds(2 * 2 + 2 * 2000));
}

Duration message(const NetworkModel& network, int from, int to) {
  return network.message({.from = Rank{from}, .to = Rank{to}, .payload = Bytes{1000}});
}

// Milliseconds, of 1000 bytes; rank 4 is the server.
TEST(NetworkSection, SingleLinksAreUnlikeTheOthers) {
  using std::chrono::milliseconds;
  const std::string ring = "kind = \"ring\"\n" + link;
  const Read server = read(ring + "server = { bandwidth_bytes_per_s = 1e7 }");
  EXPECT_EQ(server.faults, "");
  EXPECT_EQ(message(*server.network, 0, 4), milliseconds(1 + 1));  // the worker's link is the slower one
  const Read slow_server = read(ring + "server = { latency_s = 3e-3, bandwidth_bytes_per_s = 2e5 }");
  EXPECT_EQ(message(*slow_server.network, 0, 4), milliseconds(3 + 5));
  EXPECT_EQ(message(*slow_server.network, 0, 1), milliseconds(1 + 1));
  const Read slow = read(ring +
                         "[[links]]\nworkers = [1, 3]\nbandwidth_bytes_per_s = 1e5\n"
                         "[[links]]\nworkers = [2]\nlatency_s = 7e-3");
  EXPECT_EQ(slow.faults, "");
  EXPECT_EQ(message(*slow.network, 0, 4), milliseconds(1 + 1));
  EXPECT_EQ(message(*slow.network, 3, 4), milliseconds(1 + 10));
  EXPECT_EQ(message(*slow.network, 4, 2), milliseconds(7 + 1));
  EXPECT_EQ(slow.network->all_reduce(4, Bytes{1000}), milliseconds(6 * 7 + 15));  // at the slowest, in both
  EXPECT_EQ(slow.network->all_reduce(2, Bytes{1000}), milliseconds(2 * 1 + 10));
  // Racks of two; a server stands outside of them, with a link like a worker's.
  const Read racks = read(ring + "racks = { group_size = 2, latency_s = 2e-3, bandwidth_bytes_per_s = 1e5 }");
  EXPECT_EQ(racks.faults, "");
  EXPECT_EQ(message(*racks.network, 0, 1), milliseconds(1 + 1));
  EXPECT_EQ(message(*racks.network, 1, 2), milliseconds(2 + 10));
  EXPECT_EQ(message(*racks.network, 1, 4), milliseconds(2 + 10));
  const Read wide = read(ring + "racks = { group_size = 2, latency_s = 1e-3, bandwidth_bytes_per_s = 1e7 }");
  EXPECT_EQ(message(*wide.network, 1, 4), milliseconds(1 + 1)) << "no wider than a worker's";
  // Each of a rack's two members has a vector for each of two outside, halves of what it sends to all four.
  const auto all_to_all = [](const NetworkModel& network) {
    return network.collective({.operation = Operation::all_to_all, .members = 4, .payload = Bytes{1000}});
  };
  EXPECT_EQ(all_to_all(*racks.network), milliseconds(3 * 2 + 10));
  EXPECT_EQ(all_to_all(*wide.network), std::chrono::microseconds(3 * 1000 + 750)) << "by the workers' own links";
  EXPECT_EQ(racks.network->all_reduce(2, Bytes{1000}), milliseconds(2 * 1 + 1));
  EXPECT_EQ(racks.network->all_reduce(4, Bytes{1000}), milliseconds(6 * 2 + 15));
}

// A wrong type, and a key that is misspelt, are one fault each.
TEST(NetworkSection, AFaultIsSaidOnce) {
  const auto lines = [](const std::string& toml) {
    const std::string faults = read("kind = \"ring\"\n" + link + toml).faults;
    return std::count(faults.begin(), faults.end(), '\n') + (faults.empty() || faults.ends_with('\n') ? 0 : 1);
  };
  EXPECT_EQ(lines("server = 3"), 1);
  EXPECT_EQ(lines("[[links]]\nworkers = [1]\nbandwith_bytes_per_s = 5"), 1);
}

TEST(NetworkSection, OverlapIsRead) {
  const std::string ring = "kind = \"ring\"\n" + link;
  EXPECT_FALSE(read(ring).network->overlap());
  const Read some = read(ring + "overlap = { buckets = 8 }");
  EXPECT_EQ(some.faults, "");
  ASSERT_TRUE(some.network->overlap());
  EXPECT_EQ(some.network->overlap()->buckets, 8);
  EXPECT_EQ(some.network->overlap()->backward_share, 0.66);
}

TEST(NetworkSection, BadAndContradictorySettingsAreFaultsAtTheirPlace) {
  const std::vector<std::pair<std::string, std::string>> bad = {
      {"kind = \"ring\"\nlatency_s = -1\nbandwidth_bytes_per_s = 0", "network.toml:2:"},
      {"kind = \"ring\"\nlatency_s = -1\nbandwidth_bytes_per_s = 0", "network.toml:3:"},
      {"kind = \"fixed\"", "latency_s is missing"},
      {"kind = \"fixed\"\nlatency_s = 1\nbandwidth_bytes_per_s = 5", "the cost does not depend on the size"},
      {"kind = \"fixed\"\nlatency_s = 1\nserial_s = 5", "it is latency_s"},
      {"kind = \"fixed\"\nlatency_s = 1\njitter = -0.1", "jitter"},
      {"kind = \"fixed\"\nlatency_s = 1\njitter = inf", "jitter"},
      {"kind = \"free\"\nlatency_s = 1", "latency_s = 1; must be left out: with kind = \"free\""},
      {"kind = \"free\"\njitter = 1", "must be left out"},
      {"kind = \"rign\"", "ring"},
      {"latency_s = 1", "kind"},
      {"kind = \"tree\"\ngroup_size = 2\n" + link, "group_size"},
      {"kind = \"tree\"\nserial_s = -1\n" + link, "serial_s"},
      {"kind = \"parameter-server\"\nlatency_s = 1", "bandwidth_bytes_per_s is missing"},
      {"kind = \"two-level\"\ngroup_size = 2\n" + link, "inside.latency_s is missing"},
      {two_level + "between = \"star\"", "between"},
      {"kind = \"two-level\"\ngroup_size = 0\n" + link + "inside = { latency_s = 0, bandwidth_bytes_per_s = 1 }",
       "group_size"},
      {"kind = \"two-level\"\ngroup_size = 1\n" + link + "inside = { latency_s = 0, bandwidth_bytes_per_s = 1 }",
       "must be an integer from 2"},
      {"kind = \"ring\"\n" + link + "links = []", "network.toml:4:9: links = []; must have at least one entry"},
      {"kind = \"ring\"\n" + link + "[[links]]\nworkers = [4]\nlatency_s = 0", "network.toml:5:"},
      {"kind = \"ring\"\n" + link + "[[links]]\nworkers = [4]\nlatency_s = 0",
       "links.0.workers = 4; each element must be an integer from 0 to 3"},
      {"kind = \"ring\"\n" + link +
           "[[links]]\nworkers = [1]\nlatency_s = 0\n[[links]]\nworkers = [2, 1]\nlatency_s = 1",
       "network.toml:8:"},
      {"kind = \"ring\"\n" + link +
           "[[links]]\nworkers = [1]\nlatency_s = 0\n[[links]]\nworkers = [2, 1]\nlatency_s = 1",
       "must not name worker 1 again"},
      {"kind = \"ring\"\n" + link + "[[links]]\nworkers = []\nlatency_s = 0", "at least one worker"},
      {"kind = \"ring\"\n" + link + "[[links]]\nworkers = [1]", "latency_s or a bandwidth_bytes_per_s of their own"},
      {"kind = \"ring\"\n" + link + "server = {}", "must have a latency_s or a bandwidth_bytes_per_s"},
      {"kind = \"ring\"\n" + link + "server = { bandwidth_bytes_per_s = 0 }", "bandwidth_bytes_per_s"},
      {"kind = \"ring\"\n" + link + "racks = { latency_s = 1, bandwidth_bytes_per_s = 1 }", "group_size is missing"},
      {"kind = \"ring\"\n" + link + "racks = { group_size = 2, latency_s = 1 }", "bandwidth_bytes_per_s is missing"},
      {"kind = \"ring\"\n" + link + "racks = { group_size = 4, latency_s = 1, bandwidth_bytes_per_s = 1 }",
       "must be below the number of workers, 4"},
      {"kind = \"ring\"\n" + link + "overlap = { buckets = 0 }", "buckets"},
      {"kind = \"ring\"\n" + link + "overlap = { buckets = 2, backward_share = 1.5 }", "backward_share"},
      {"kind = \"parameter-server\"\n" + link + "server = { latency_s = 1 }", "are the server's"},
      {"kind = \"parameter-server\"\n" + link + "contention = false", "the server's link is shared"},
      {"kind = \"fixed\"\nlatency_s = 1\ncontention = true", "nothing occupies a link"},
      {"kind = \"free\"\nserver = { latency_s = 1 }", "communication takes no time"},
      {two_level + "racks = { group_size = 2, latency_s = 1, bandwidth_bytes_per_s = 1 }", "groups have uplinks"},
      {"kind = \"two-level\"\ngroup_size = 4\n" + link + "inside = { latency_s = 0, bandwidth_bytes_per_s = 1 }",
       "must be below the number of workers, 4"},
  };
  for (const auto& [toml, expected] : bad) EXPECT_THAT(read(toml).faults, HasSubstr(expected)) << toml;
  // What follows from an unknown number of workers is no fault of its own.
  EXPECT_EQ(read(two_level, std::nullopt).faults, "");
}

}  // namespace
}  // namespace syncopate
