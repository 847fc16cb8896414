// Checks whether the cores of this machine are free, for tests whose bounds require free cores. Such tests run alone
// (RUN_SERIAL), and are skipped with a reason if the machine is not quiet before, during and after the test.
#pragma once

#include <sched.h>
#include <time.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <string>
#include <thread>
#include <vector>

namespace syncopate {

inline int cores_here() {
  cpu_set_t set;
  return sched_getaffinity(0, sizeof(set), &set) == 0 ? CPU_COUNT(&set) : 1;
}

// Starts one busy thread per core, and returns the smallest share of a core that one of them gets.
inline double share_of_the_cores(std::chrono::milliseconds spin = std::chrono::milliseconds(60)) {
  std::vector<double> shares(static_cast<std::size_t>(cores_here()));
  std::vector<std::thread> threads;
  for (double& share : shares)
    threads.emplace_back([&share, spin] {
      const auto processor_s = [] {
        timespec used{};
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used);
        return static_cast<double>(used.tv_sec) + 1e-9 * static_cast<double>(used.tv_nsec);
      };
      const auto begin = std::chrono::steady_clock::now();
      const double used_before_s = processor_s();
      while (std::chrono::steady_clock::now() < begin + spin) continue;
      const std::chrono::duration<double> passed = std::chrono::steady_clock::now() - begin;
      share = (processor_s() - used_before_s) / passed.count();
    });
  for (std::thread& thread : threads) thread.join();
  return *std::min_element(shares.begin(), shares.end());
}

// Watches the machine from construction on: a thread sleeps repeatedly, and measures how late it wakes.
class QuietWatch {
 public:
  QuietWatch()
      : share_before_(share_of_the_cores()), sleeper_([this] {
          const auto asked = std::chrono::milliseconds(2);
          for (; !stop_; ++sleeps_) {
            const auto begin = std::chrono::steady_clock::now();
            std::this_thread::sleep_for(asked);
            const std::chrono::duration<double> late = std::chrono::steady_clock::now() - begin - asked;
            late_s_ += late.count();
            latest_s_ = std::max(latest_s_, late.count());
          }
        }) {}
  ~QuietWatch() {
    stop_ = true;
    if (sleeper_.joinable()) sleeper_.join();
  }

  // Ends the watch. Returns nothing if the machine was quiet, otherwise the message of the skipped test.
  std::string disturbance() {
    stop_ = true;
    if (sleeper_.joinable()) sleeper_.join();
    constexpr double least_share = 0.9, most_late_s = 5e-4, most_latest_s = 0.02;
    const double share = std::min(share_before_, share_of_the_cores());
    const double late_s = sleeps_ > 0 ? late_s_ / sleeps_ : 0;
    if (share >= least_share && late_s <= most_late_s && latest_s_ <= most_latest_s) return "";
    char text[160];
    std::snprintf(text, sizeof(text),
                  "machine is not quiet: a thread gets %.0f %% of a core; sleeps end %.2f ms late, at worst %.1f ms",
                  100 * share, 1e3 * late_s, 1e3 * latest_s_);
    return text;
  }

 private:
  double share_before_;
  std::atomic<bool> stop_ = false;
  double late_s_ = 0, latest_s_ = 0;
  int sleeps_ = 0;
  std::thread sleeper_;  // the last member, because the thread uses the members above
};

}  // namespace syncopate
