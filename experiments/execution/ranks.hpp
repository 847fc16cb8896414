// Before anything runs, the ranks of one launch tell each other whether they can run, and what. Where one cannot, or
// would run something else than the others, none runs, and rank 0 says which rank it is, on which host, and why.
//
// Ranks may come here from different places (one still reads its file, another has failed in its command line), so
// this is the only thing that they do together before they agree.
#pragma once

#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace syncopate {

class MpiSession;

struct RankStatement {
  std::string fault;                                      // why this rank cannot run; empty: it can
  std::string identity;                                   // of what it would run: equal texts run together
  std::vector<std::pair<std::string, std::string>> plan;  // the same, by key and value: explains what differs
};

// Nothing runs: exit status 2, on all ranks. what() is complete on rank 0, which alone should print it.
struct CannotRun : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// Collective over the session; without a launcher, this process is the only rank. Returns on all ranks or throws
// CannotRun on all.
void agree(const MpiSession& session, const RankStatement& own);

// What every rank says, by rank. Empty if they agree.
struct RankSaid {
  std::string host;
  RankStatement statement;
};
std::string explain_disagreement(const std::vector<RankSaid>& ranks);

}  // namespace syncopate
