// Collectives as transfers between ranks, round by round, and what these take and move: what formulas of networks are
// compared with.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

#include "workers/time/network.hpp"

namespace syncopate {

// Transfers that take place at the same time, round by round: from, to, and how many Nths of the payload.
struct Transfer {
  int from, to;
  double parts;
};
using Schedule = std::vector<std::vector<Transfer>>;

// Who has heard of whom is followed along, so that a schedule that forgets somebody is seen.
inline Schedule gathering_on_tree(int members, bool sums) {
  Schedule schedule;
  std::vector<double> has(static_cast<std::size_t>(members), 1);
  for (int distance = 1; distance < members; distance *= 2) {
    auto& round = schedule.emplace_back();
    for (int rank = distance; rank < members; rank += 2 * distance) {
      auto& parts = has[static_cast<std::size_t>(rank)];
      round.push_back({rank, rank - distance, sums ? members : parts});
      has[static_cast<std::size_t>(rank - distance)] += parts;
      parts = 0;
    }
  }
  EXPECT_EQ(has.front(), members);  // the root has all
  return schedule;
}

inline Schedule broadcast_on_tree(int members) {
  Schedule schedule = gathering_on_tree(members, true);
  std::reverse(schedule.begin(), schedule.end());
  for (auto& round : schedule)
    for (Transfer& transfer : round) std::swap(transfer.from, transfer.to);
  return schedule;
}

inline Schedule ring(int members, int passes) {
  Schedule schedule(static_cast<std::size_t>(passes * (members - 1)));
  for (auto& round : schedule)
    for (int rank = 0; rank < members; ++rank) round.push_back({rank, (rank + 1) % members, 1});
  return schedule;
}

// Each to each other one, round by round to the next place.
inline Schedule all_to_all_on_ring(int members) {
  Schedule schedule;
  for (int distance = 1; distance < members; ++distance) {
    auto& round = schedule.emplace_back();
    for (int rank = 0; rank < members; ++rank) round.push_back({rank, (rank + distance) % members, 1});
  }
  return schedule;
}

// Every part is followed on its way, digit by digit of how far it has to go.
inline Schedule all_to_all_by_digits(int members) {
  struct OnItsWay {
    int at, to, far;
  };
  std::vector<OnItsWay> parts;
  for (int from = 0; from < members; ++from)
    for (int to = 0; to < members; ++to) parts.push_back({from, to, (to - from + members) % members});
  Schedule schedule;
  for (int digit = 1; digit < members; digit *= 2) {
    auto& round = schedule.emplace_back();
    for (int rank = 0; rank < members; ++rank) round.push_back({rank, (rank + digit) % members, 0});
    for (OnItsWay& part : parts) {
      if (!(part.far & digit)) continue;
      ++round[static_cast<std::size_t>(part.at)].parts;
      part.at = (part.at + digit) % members;
    }
  }
  for (const OnItsWay& part : parts) EXPECT_EQ(part.at, part.to);
  return schedule;
}

inline double seconds(const Schedule& schedule, const Link& link, int members, double payload) {
  double time = 0;
  for (const auto& round : schedule) {
    double slowest = 0;
    for (const Transfer& transfer : round)
      slowest = std::max(slowest, link.latency_s + transfer.parts / members * payload / link.bandwidth_bytes_per_s);
    time += slowest;
  }
  return time;
}

inline double bytes_moved(const Schedule& schedule, int members, double payload) {
  double bytes = 0;
  for (const auto& round : schedule)
    for (const Transfer& transfer : round) bytes += transfer.parts / members * payload;
  return bytes;
}

inline Schedule operator+(Schedule a, const Schedule& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

}  // namespace syncopate
