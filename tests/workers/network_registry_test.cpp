#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <string>

#include "workers/network/registry.hpp"
#include "workers/settings/settings_document.hpp"

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
TEST(NetworkRegistry, EveryModelReadsItsKeys) {
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
    EXPECT_EQ(plain.network->has_shared_links(), row.name == "parameter-server");
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
    EXPECT_EQ(later.network->has_shared_links(), row.name == "parameter-server");
  }
  const Read tree = read(two_level + "between = \"tree\"");
  EXPECT_EQ(tree.faults, "");
  EXPECT_EQ(tree.network->all_reduce(4, Bytes{1000}), std::chrono::microseconds(2 * 2 + 2 * 2000));
}

TEST(NetworkRegistry, BadAndContradictorySettingsAreFaultsAtTheirPlace) {
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
       "must be at least 2"},
      {"kind = \"two-level\"\ngroup_size = 4\n" + link + "inside = { latency_s = 0, bandwidth_bytes_per_s = 1 }",
       "must be below the number of workers, 4"},
  };
  for (const auto& [toml, expected] : bad) EXPECT_THAT(read(toml).faults, HasSubstr(expected)) << toml;
  // What follows from an unknown number of workers is no fault of its own.
  EXPECT_EQ(read(two_level, std::nullopt).faults, "");
}

}  // namespace
}  // namespace syncopate
