// What a run comes to.
#pragma once

#include <cstdint>
#include <vector>

#include "workers/cluster/account.hpp"
#include "workers/cluster/tally.hpp"
#include "workers/units/units.hpp"

namespace syncopate {

// What a run comes to.
struct RunTotals {
  Time end{};                           // T
  std::vector<Account> accounts;        // per worker (the server is not a worker)
  std::vector<std::int64_t> kept;       // micro-batches per worker that ended up in a model
  std::vector<std::int64_t> dropped;    // micro-batches per worker, begun or finished, that did not
  std::vector<std::int64_t> staleness;  // [k]: gradients that a server kept k steps after their model
  // Communication by one ruler, whatever the network (see workers/network/network.hpp). Messages from workers to a
  // server count once they have reached it, so that what comes too late for the run does not; others when sent.
  Bytes bytes{};
  std::int64_t collectives = 0;  // all-reduces, averages (of a group too), gathers, broadcasts, barriers
  std::int64_t messages = 0;
  // Where real arithmetic is to fit into drawn durations (pace = "emulate" under MPI); else empty or 0.
  std::vector<std::int64_t> emulated;  // such micro-batches per worker
  std::vector<std::int64_t> overruns;  // those of them that took longer
  Duration overrun_excess{};           // by so much, together

  // The next worker's.
  void add(const Account& account, const Tally& tally, DecidedBy who) {
    accounts.push_back(account);
    kept.push_back(tally.kept());
    dropped.push_back(tally.dropped(who));
  }
};

}  // namespace syncopate
