// The communication of each method in closed form, for N = 6 workers of equal speed and S = 12 steps of M = 2
// micro-batches. A model or gradient has P = 16 bytes (four values); an all-reduce sends A = 2 (N - 1) P bytes. The
// counts do not depend on communication times.
#include <gtest/gtest.h>

#include <memory>
#include <set>
#include <string>
#include <vector>

#include "tests/algorithms/exact_accounts.hpp"
#include "tests/algorithms/method_settings.hpp"
#include "tests/algorithms/simulated_run.hpp"
#include "workers/time/network.hpp"

namespace syncopate {
namespace {

constexpr std::int64_t N = 6, S = 12, M = 2, P = 16;
constexpr std::int64_t A = 2 * (N - 1) * P;
constexpr std::int64_t K = N * S;                 // gradients, if each one is a step of the server
constexpr std::int64_t M_and_G = 2 * K + N - 1;   // K gradients and N + K - 1 models; the last gradient is not answered
constexpr std::int64_t ends = (N - 1) * (P + 8);  // gossip's end: N - 1 models with their weights go to worker 0

struct Method {
  std::string name;
  std::string keys;
  std::int64_t collectives;
  std::int64_t messages;
  std::int64_t bytes;
  bool is_timed = false;  // the count depends on the order in which messages arrive
  bool needs_a_model = false;
};

const std::vector<Method> methods = {
    {"sync-sgd", "", S, 0, S* A},
    // Bytes of a packet: 8 for one of the four values with its index; 4 for one value; 8 for a word of signs and a
    // mean, also for votes; 8 for a norm and a word.
    {"sync-sgd", "compression = { name = \"top-k\", ratio = 0.25 }", S, 0, S*(N - 1) * N * 8},
    {"sync-sgd", "compression = { name = \"random-k\", ratio = 0.25 }", S, 0, S * 2 * (N - 1) * 4},
    {"sync-sgd", "compression = { name = \"sign\" }", S, 0, S*(N - 1) * N * 8},
    {"sync-sgd", "compression = { name = \"majority\" }", S, 0, S*(N - 1) * N * 8},
    {"sync-sgd", "compression = { name = \"majority\", zeros = \"abstain\" }", S, 0, S*(N - 1) * N * 2 * 8},
    {"sync-sgd", "compression = { name = \"qsgd\" }", S, 0, S*(N - 1) * N * 8},
    {"sync-sgd", "compression = { name = \"int8\" }", S, 0, S*(N - 1) * N*(1024 + 4)},
    {"sync-sgd", "compression = { name = \"fp4\" }", S, 0, S*(N - 1) * N * 8},
    {"sync-sgd", "compression = { name = \"bins\", scope = \"model\" }", S, 0, S*(N - 1) * N*(16 + 4)},
    // ScaleCom sends an index and then its value. In two phases four of the six owners have a chunk of one value, which
    // takes 8 bytes: a word of signs and a scale, or two means.
    {"sync-sgd", "compression = { name = \"scalecom\", ratio = 0.25 }", 2 * S, 0, S*(N - 1) * 4 + S * 2 * (N - 1) * 4},
    {"sync-sgd", "compression = { name = \"one-bit\", scope = \"model\" }", S, 0, S*(N - 1) * N * 12},
    {"sync-sgd", "compression = { name = \"sign\", exchange = \"two-phase\" }", 2 * S, 0, S * 2 * (N - 1) * N * 8},
    {"sync-sgd", "compression = { name = \"qsgd\", exchange = \"two-phase\" }", 2 * S, 0, S * 2 * (N - 1) * N * 8},
    // The packets have 4, 3 and then 1 of the four values.
    {"sync-sgd", "compression = { name = \"top-k\", ratio = 0.25, warmup_ratios = [1.0, 0.75], warmup_steps = 4 }", S,
     0, (2 * 4 + 2 * 3 + (S - 4)) * (N - 1) * N * 8},
    {"random-drop", "drop_rate = 0.5\ncompression = { name = \"top-k\", ratio = 0.25, dropped = \"fold\" }", S, 0,
     S*(N - 1) * N * 8},
    // After the freeze, packets are 8 bytes: a scale and a word of signs. Each of four owners' chunks has packets in
    // two phases, or all four values together have one packet.
    {"one-bit-adam", "freeze_step = 5", 5 + 2 * (S - 5), 0, 5 * A + (S - 5) * 2 * (N - 1) * N * 8},
    {"one-bit-adam", "freeze_step = 5\ncompression = { exchange = \"gather\" }", S, 0,
     5 * A + (S - 5) * (N - 1) * N * 8},
    {"one-bit-adam", "freeze_step = 5\ncompression = { name = \"none\" }", S, 0, S* A},
    {"dropcompute", "threshold_s = 1.5", S, 0, S* A},
    {"dropcompute", "threshold_s = 1.5\nnormalisation = \"computed\"\ncompression = { name = \"top-k\", ratio = 0.25 }",
     S, 0, S*(N - 1) * N*(8 + 4)},
    {"dropcompute", "threshold_s = 1.5\nnormalisation = \"computed\"", S, 0, S * 2 * (N - 1) * (P + 4)},  // + a count
    // After two steps of warm-up, all workers gather three steps' micro-batch times and one mean step time.
    {"dropcompute", "threshold = { rule = \"automatic\", warmup_steps = 2, calibration_steps = 3 }", S + 1, 0,
     S* A + (N - 1) * N*(3 * M + 1) * 8},
    {"random-drop", "drop_rate = 0.5", S, 0, S* A},
    {"random-drop", "drop_rate = 0.5\nstatistics = \"all\"", S, 0, S * 2 * (N - 1) * (P + 4)},  // + a count
    {"stale-sgd", "staleness = 3", S, 0, S* A},
    {"acco", "", 2 * S, 0, 2 * S * 2 * (N - 1) * (P + 4)},  // + a count
    {"delayed-update", "", S, 0, S * 2 * (N - 1) * (P + 4)},
    {"backup-workers", "backups = 0", 0, 2 * N* S, 2 * N* S* P},
    // Late gradients also arrive and are answered. Those of the last step are not, because the server has ended.
    {"backup-workers", "backups = 2", 0, 2 * N* S - 2, (2 * N * S - 2) * P, true},
    // With two servers each message has half of a vector. At the end both send slices to worker 0.
    {"backup-workers", "backups = 0\nservers = 2", 0, 2 * (2 * N * S) + 2, 2 * N* S* P + P},
    {"backup-tokens", "backups = 0\ninitial_tokens = 0", 0, 2 * N* S, 2 * N* S* P},
    // N initial tokens let each worker compute one more gradient at the first model. These gradients are dropped.
    {"backup-tokens", "backups = 0", 0, 2 * N*(S + 1), 2 * N*(S + 1) * P},
    {"backup-all-reduce", "backups = 2", S, 0, S* A},
    {"backup-timeout", "timeout_s = 1000", 0, 2 * N* S, 2 * N* S* P},
    {"dynamic-backup", "fewest = 6", 0, 2 * N* S, 2 * N* S* P, false, true},
    {"k-sync", "gradients = 6", 0, 2 * N* S, 2 * N* S* P},
    {"k-batch-sync", "gradients = 6", 0, 2 * N* S, 2 * N* S* P},
    // Each of the S / 2 updates takes 12 gradients, two of each worker. Before each update, models go to all workers.
    {"k-batch-sync", "gradients = 12", 0, N* S / 2 + N* S, (N * S / 2 + N * S) * P, true},
    {"malenia", "", 0, 2 * N* S, 2 * N* S* P},
    {"mindflayer", "rule = \"clipping-rennala\"\ntrials = 6\nlimit_s = 1000", 0, 2 * N* S, 2 * N* S* P},
    {"mindflayer", "limit_s = 1000\narrival_probability = 1.0", 0, 2 * N* S, 2 * N* S* P},
    // A round has 4 messages per worker: a model, a note about the worker's steps, a note about the round's end, and a
    // difference.
    {"stsyn", "quorum = 6\nlocal_steps = 4", 0, S / 4 * 4 * N, S / 4 * 2 * N* P},
    {"stsyn", "quorum = 6\nlocal_steps = 4\ncompression = { name = \"top-k\", ratio = 0.25 }", 0, S / 4 * 4 * N,
     S / 4 * N*(P + 8)},
    {"eager-sgd", "activation = \"solo\"", S, 0, S* A},
    {"eager-sgd", "activation = \"majority\"", S, 0, S* A},
    {"eager-sgd", "activation = \"majority\"\naverage_every = 4", S + S / 4, 0, (S + S / 4) * A},
    {"async-sgd", "", 0, M_and_G, M_and_G* P},
    // A gradient's packet has 8 bytes: a value with its index (top-k), half a word and a scale (fp4), or two values
    // (random-k). With two servers, a packet has one of a slice's two values with its index.
    {"async-sgd", "compression = { name = \"top-k\", ratio = 0.25 }", 0, M_and_G, K * 8 + (M_and_G - K) * P},
    {"async-sgd", "compression = { name = \"fp4\" }", 0, M_and_G, K * 8 + (M_and_G - K) * P},
    {"k-async", "gradients = 6\ncompression = { name = \"random-k\", ratio = 0.5 }", 0, 2 * K, K * 8 + K* P},
    {"backup-workers", "backups = 0\nservers = 2\ncompression = { name = \"top-k\", ratio = 0.25 }", 0,
     2 * (2 * N * S) + 2, 2 * N* S * 8 + N* S* P + P},
    // Each model has a number of 8 bytes, which says how many packets came before it; no packet was rejected.
    {"k-sync", "gradients = 6\ncompression = { name = \"sign\", rejected = \"return\" }", 0, 2 * N* S,
     N* S*(8 + P + 8)},
    {"async-local-sgd", "local_steps = 4\nupdate = { name = \"plain\", rate = 0.2 }\ncompression = { name = \"int8\" }",
     0, 2 * K / 4 + N - 1, K / 4 * (1024 + 4) + (K / 4 + N - 1) * P},
    {"softsync", "splitting = 3", 0, M_and_G, M_and_G* P},
    {"k-async", "gradients = 6", 0, 2 * K, 2 * K* P},
    {"k-batch-async", "gradients = 2", 0, M_and_G, M_and_G* P},
    {"ringmaster", "delay_threshold = 100", 0, M_and_G, M_and_G* P},
    {"rescaled-sgd", "", 0, M_and_G, M_and_G* P},
    {"ormo", "momentum = 0.5", 0, M_and_G, M_and_G* P},
    {"heloco", "local_steps = 4", 0, 2 * K / 4 + N - 1, (2 * K / 4 + N - 1) * P},
    // A cycle of N updates takes one gradient of each worker, and after the first update one more of all others.
    {"ringleader", "", 0, 2 * S*(2 * N - 1) + N - 1, (2 * S * (2 * N - 1) + N - 1) * P},
    // With slack 0, N - 1 workers wait for the end of each round. The workers of the last round get no model any more.
    {"throttle", "divisor = 3", 0, M_and_G, M_and_G* P},
    {"stale-synchronous", "slack = 0", 0, 2 * K, 2 * K* P},
    {"stale-synchronous", "slack = 3", 0, M_and_G, M_and_G* P},
    {"bounded-delay", "maximum_delay = 3", 0, 2 * K, 2 * K* P},
    {"sliding-window", "maximum_delay = 0", 0, 2 * K, 2 * K* P},  // one gradient is in progress at a time
    {"sliding-window", "maximum_delay = 5", 0, M_and_G, M_and_G* P},
    // A difference is sent for every 4 local steps. With steps by speed, each message has a number of 8 bytes more.
    {"async-local-sgd", "local_steps = 4\nupdate = { name = \"plain\", rate = 0.2 }", 0, 2 * K / 4 + N - 1,
     (2 * K / 4 + N - 1) * P},
    {"async-local-sgd", "local_steps = 4\nupdate = { name = \"buffered\", size = 3 }\nsteps_by_speed = \"up\"", 0,
     2 * K / 4 + N - 1, (2 * K / 4 + N - 1) * (P + 8)},
    // All workers are in the window of each round, and no worker is answered at the end.
    {"async-local-sgd", "local_steps = 4\nupdate = { name = \"plain\", rate = 0.2 }\ngrace_s = 100", 0, 2 * K / 4,
     2 * K / 4 * P},
    // With one worker per region each difference makes an update of the global model, and each update except the last
    // is answered. With two regions of three workers, an update is made for three differences of a region.
    {"halos",
     "regions = 6\nlocal_steps = 4\nlocal_update = { name = \"plain\" }\nglobal_update = { name = \"plain\" }\n"
     "merge_every = 1\nmixing = 0.5",
     0, 4 * K / 4 + N - 1, (4 * K / 4 + N - 1) * P},
    {"halos",
     "regions = 2\nlocal_steps = 4\nlocal_update = { name = \"plain\" }\nglobal_update = { name = \"plain\" }\n"
     "merge_every = 3\nmixing = 0.5",
     0, 2 * K / 4 + N + 2 * K / 12 - 1, (2 * K / 4 + N + 2 * K / 12 - 1) * P},
    {"halos",
     "regions = 2\nlocal_steps = 4\nlocal_update = { name = \"plain\" }\nglobal_update = { name = \"plain\" }\n"
     "merge_every = 3\nmixing = 0.5\ncompression = { name = \"top-k\", ratio = 0.25 }",
     0, 2 * K / 4 + N + 2 * K / 12 - 1, K / 4 * 8 + (K / 4 + N + 2 * K / 12 - 1) * P},
    {"local-sgd", "period = { rule = \"constant\", steps = 4 }", S / 4, 0, S / 4 * A},
    {"local-sgd", "period = { rule = \"constant\", steps = 5 }", 3, 0, 3 * A},  // ceil(12 / 5) rounds
    {"diloco", "period = { rule = \"constant\", steps = 4 }", S / 4, 0, S / 4 * A},
    {"fedprox", "period = { rule = \"constant\", steps = 4 }", S / 4, 0, S / 4 * A},
    // Before each average two numbers are gathered.
    {"fednova", "period = { rule = \"constant\", steps = 4 }", 2 * S / 4, 0, S / 4 * (A + (N - 1) * N * 2 * 8)},
    // Control variates and models are averaged.
    {"scaffold", "period = { rule = \"constant\", steps = 4 }", 2 * S / 4, 0, 2 * S / 4 * A},
    {"scaffold", "control = \"gradient\"\nperiod = { rule = \"constant\", steps = 4 }", 2 * S / 4, 0, 2 * S / 4 * A},
    // A loss is gathered after each average except the last; the first gathering has two numbers.
    {"adacomm", "initial_period = 4\nminimum = 4\nmaximum = 4", S / 4 + S / 4 - 1, 0,
     S / 4 * A + S / 4 * (N - 1) * N * 8, false, true},
    {"adacomm", "initial_period = 4\ninterval_steps = 100", S / 4, 0, S / 4 * A, false, true},
    {"des-loc", "period = 4", S / 4, 0, S / 4 * A},  // without moments, as SGD has none here
    {"outer-local-sgd", "period = { rule = \"constant\", steps = 4 }\nouter = { name = \"slowmo\", momentum = 0.5 }",
     S / 4, 0, S / 4 * A},
    // A difference's packet: a value with its index (8 bytes); a value (4); a word of signs and a mean (8); 256 means
    // and a word (1028); a scale and a word (8). Averages that come one round late have the same packets.
    {"local-sgd", "period = { rule = \"constant\", steps = 4 }\ncompression = { name = \"top-k\", ratio = 0.25 }",
     S / 4, 0, S / 4 * (N - 1) * N * 8},
    {"outer-local-sgd",
     "period = { rule = \"constant\", steps = 4 }\nouter = { name = \"plain\" }\ncompression = { name = \"int8\" }",
     S / 4, 0, S / 4 * (N - 1) * N*(1024 + 4)},
    // Four of the six owners have a chunk of one value, which takes 8 bytes: a scale and a word.
    {"local-sgd",
     "period = { rule = \"constant\", steps = 4 }\ncompression = { name = \"fp4\", exchange = \"two-phase\" }",
     2 * (S / 4), 0, S / 4 * 2 * (N - 1) * N * 8},
    {"cocod-sgd", "period = { rule = \"constant\", steps = 5 }\ncompression = { name = \"fp4\" }", 3, 0,
     3 * (N - 1) * N * 8},
    {"overlap-local-sgd",
     "mixing = 0.5\nperiod = { rule = \"constant\", steps = 4 }\ncompression = { name = \"sign\" }", S / 4, 0,
     S / 4 * (N - 1) * N * 8},
    {"co2", "period = { rule = \"constant\", steps = 4 }\ncompression = { name = \"random-k\", ratio = 0.25 }", S / 4,
     0, S / 4 * 2 * (N - 1) * 4},
    {"overlapped-diloco",
     "period = { rule = \"constant\", steps = 4 }\nouter = { name = \"plain\" }\ncompression = { name = \"qsgd\" }",
     S / 4, 0, S / 4 * (N - 1) * N * 8},
    {"palsgd", "period = { rule = \"constant\", steps = 4 }\nouter = { name = \"diloco\", rate = 0.7, momentum = 0.9 }",
     S / 4, 0, S / 4 * A},
    {"palsgd",
     "period = { rule = \"constant\", steps = 4 }\nouter = { name = \"diloco\", rate = 0.7, momentum = 0.9 }\n"
     "compression = { name = \"sign\" }",
     S / 4, 0, S / 4 * (N - 1) * N * 8},
    {"adacomm", "initial_period = 4\ninterval_steps = 100\ncompression = { name = \"random-k\", ratio = 0.25 }", S / 4,
     0, S / 4 * 2 * (N - 1) * 4, false, true},
    // Before each average every worker gathers a norm (there is one module, because there is no model). If weights or
    // rounds depend on steps, four more numbers are gathered. Rounds of 8 s end after four steps.
    {"edit", "period = { rule = \"constant\", steps = 4 }\nouter = { name = \"plain\" }", 2 * S / 4, 0,
     S / 4 * (A + (N - 1) * N * 8)},
    {"edit", "step_share = 0.5\nperiod = { rule = \"constant\", steps = 4 }\nouter = { name = \"plain\" }", 2 * S / 4,
     0, S / 4 * (A + (N - 1) * N * 5 * 8)},
    {"edit", "sync_seconds = 8\nouter = { name = \"plain\" }", 2 * S / 4, 0, S / 4 * (A + (N - 1) * N * 5 * 8)},
    // After 4 s the workers together have 12 steps, below the minimum of 20, so they meet twice per round: 24 steps.
    {"edit", "sync_seconds = 4\nminimum_steps = 20\nouter = { name = \"plain\" }", 3 * S / 4, 0,
     S / 4 * (A + 2 * (N - 1) * N * 5 * 8)},
    // In each round every worker answers. After each round except the last, the fragment goes to all workers. Each of
    // these messages has three numbers, 24 bytes.
    {"decoupled-diloco", "minimum_steps = 4\nouter = { name = \"plain\" }", 0, (2 * S / 4 - 1) * N,
     (2 * S / 4 - 1) * N*(P + 24)},
    {"decoupled-diloco", "merge = \"mean\"\nanchor = \"base\"\nouter = { name = \"plain\" }", 0, (2 * S - 1) * N,
     (2 * S - 1) * N*(P + 24)},
    {"decoupled-diloco",
     "merge = \"mean\"\nanchor = \"base\"\nouter = { name = \"plain\" }\ncompression = { name = \"int8\" }", 0,
     (2 * S - 1) * N, S* N*(1024 + 4 + 24) + (S - 1) * N*(P + 24)},
    {"decoupled-diloco", "fragments = 2\nouter = { name = \"plain\" }", 0, (2 * S - 1) * N,
     (2 * S - 1) * N*(P / 2 + 24)},
    // The number of averages is the same if they come one round late.
    {"cocod-sgd", "period = { rule = \"constant\", steps = 4 }", S / 4, 0, S / 4 * A},
    {"cocod-sgd", "period = { rule = \"constant\", steps = 5 }", 3, 0, 3 * A},
    {"overlap-local-sgd", "mixing = 0.5\nperiod = { rule = \"constant\", steps = 4 }", S / 4, 0, S / 4 * A},
    {"co2", "period = { rule = \"constant\", steps = 4 }", S / 4, 0, S / 4 * A},
    {"overlapped-diloco", "period = { rule = \"constant\", steps = 4 }\nouter = { name = \"plain\" }", S / 4, 0,
     S / 4 * A},
    {"overlapped-diloco",
     "update = \"delayed\"\nperiod = { rule = \"constant\", steps = 5 }\nouter = { name = \"plain\" }", 3, 0, 3 * A},
    // Each of three rounds averages every fragment. The fragments together are as large as the whole model.
    {"streaming-diloco",
     "fragments = 4\ndelay = 2\nperiod = { rule = \"constant\", steps = 5 }\nouter = { name = \"plain\" }", 3 * 4, 0,
     3 * A},
    {"streaming-diloco", "fragments = 3\nperiod = { rule = \"constant\", steps = 4 }\nouter = { name = \"plain\" }",
     S / 4 * 3, 0, S / 4 * A},
    // A fragment's packet has 8 bytes: a value with its index; signs of one or two values, and a scale.
    {"streaming-diloco",
     "fragments = 2\nperiod = { rule = \"constant\", steps = 4 }\nouter = { name = \"plain\" }\n"
     "compression = { name = \"top-k\", ratio = 0.25 }",
     S / 4 * 2, 0, S / 4 * 2 * (N - 1) * N * 8},
    {"streaming-diloco",
     "fragments = 3\ndelay = 1\nperiod = { rule = \"constant\", steps = 4 }\nouter = { name = \"plain\" }\n"
     "compression = { name = \"fp4\" }",
     S / 4 * 3, 0, S / 4 * 3 * (N - 1) * N * 8},
    // Groups of 4 and 2 workers average every 2 steps, and all workers every 6 steps. So in 6 steps each group averages
    // twice, and all workers average once. The two groups' averages together send 2 (3 + 1) P bytes.
    {"hierarchical-sgd", "group_size = 4\ngroup_period = 2\nperiod = { rule = \"constant\", steps = 6 }",
     S / 6 * (2 * 2 + 1), 0, S / 6 * (2 * 2 * (3 + 1) * P + A)},
    // Groups of 4 and 2 workers sum gradients from step 4 on. All workers average models after steps 4, 7 and 10, and
    // at the end.
    {"post-local-sgd", "start = 4\nperiod = 3\ngroup_size = 4", 4 + 2 * (S - 4) + 4, 0,
     4 * A + (S - 4) * 2 * (3 + 1) * P + 4 * A},
    // Each worker trains alone. Groups of three average after the steps of index 4, 8 and 10, and all workers after
    // that of index 6 and at the end.
    {"post-local-sgd", "start = 4\nperiod = 6\ngroup_size = 1\nlevels = [{ group_size = 3, period = 2 }]",
     4 + 2 * 3 + 2, 0, 4 * A + 3 * 2 * (2 + 2) * P + 2 * A},
    {"rounds", "period = { rule = \"constant\", steps = 4 }", S / 4, 0, S / 4 * A},
    {"rounds",
     "period = { rule = \"constant\", steps = 6 }\ngroups = { size = 4, period = 2 }\nouter = { name = \"plain\" }",
     S / 6 * (2 * 2 + 1), 0, S / 6 * (2 * 2 * (3 + 1) * P + A)},
    {"rounds",
     "period = { rule = \"constant\", steps = 4 }\nsteps = { kind = \"pull\" }\nlate = { next = \"own-steps\" }", S / 4,
     0, S / 4 * A},
    {"rounds", "period = { rule = \"constant\", steps = 4 }\nfragments = 2\ndelay = 1\nouter = { name = \"plain\" }",
     S / 4 * 2, 0, S / 4 * A},
    {"branch-train-merge", "seed_steps = 5", 5 + 1, 0, (5 + 1) * A},
    // All other workers send their models to worker 0, and a barrier ends the run.
    {"branch-train-merge", "seed_steps = 5\nmerge = \"ensemble\"", 5 + 1, N - 1, 5 * A + (N - 1) * P},
    // Each check gathers two numbers from each worker; with threshold 0 each check leads to an average.
    {"dynamic-averaging", "checks = \"gathered\"\nthreshold = 0\ncheck_every = 3", 2 * S / 3, 0,
     S / 3 * ((N - 1) * N * 2 * 8 + A), false, true},
    {"dynamic-averaging", "checks = \"gathered\"\nthreshold = 1e9\ncheck_every = 3", S / 3 + 1, 0,
     S / 3 * (N - 1) * N * 2 * 8 + A, false, true},
    // Workers check alone, so only the last models are sent.
    {"dynamic-averaging", "threshold = 1e9\ncheck_every = 3", 0, N, N* P, false, true},
    {"dropcompute-local-sgd", "threshold_s = 3\nperiod = { rule = \"constant\", steps = 4 }", S / 4, 0, S / 4 * A},
    {"elastic-averaging", "beta = 0.9\nperiod = 4", S / 4 + 1, 0, S / 4 * A},  // averages and a barrier
    // An exchange has three messages: a request without values, the centre, the difference.
    {"elastic-averaging", "exchange = \"asynchronous\"\nbeta = 0.9\nperiod = 4", 0, 3 * N* S / 4, 2 * N* S / 4 * P},
    {"elastic-averaging",
     "exchange = \"asynchronous\"\nbeta = 0.9\nperiod = 4\ncompression = { name = \"top-k\", ratio = 0.25 }", 0,
     3 * N* S / 4, N* S / 4 * (P + 8)},
    {"gradient-coding", "code = \"fractional\"\nstragglers = 0", 0, 2 * N* S, 2 * N* S* P},
    {"gradient-coding", "code = \"ignore-stragglers\"\nstragglers = 2", 0, 2 * N* S - 2, (2 * N * S - 2) * P, true},
    // In every step the second message of one group is late; the last step's is not sent any more.
    {"gradient-coding", "code = \"fractional\"\nstragglers = 1", 0, 2 * N* S - 1, (2 * N * S - 1) * P, true},
    {"gradient-coding", "code = \"cyclic\"\nstragglers = 1", 0, 2 * N* S - 1, N* S* P + (N * S - 1) * 2 * P, true},
    {"gradient-coding", "code = \"stochastic\"\ncopies = 2\nstragglers = 0\nplacement = \"balanced\"", 0, 2 * N* S,
     2 * N* S* P},
    {"decentralized-sgd", "", 0, 2 * N* S + N - 1, 2 * N* S* P + ends},
    {"stochastic-gradient-push", "", 0, N* S + N - 1, N* S*(P + 8) + ends},
    {"stochastic-gradient-push", "overlap_steps = 3", 0, N* S / 3 + N - 1, N* S / 3 * (P + 8) + ends},
    // Odd ranks send a request in each step, and are answered before their next step. At the end worker 0 tells each
    // odd rank, in a message without values, that it takes part in no more exchanges.
    {"ad-psgd", "overlap_steps = 0", 0, N* S + N - 1 + N / 2, N* S* P + ends},
    // In each round each worker sends its partner an outer model and its own model.
    {"noloco", "local_steps = 4", 0, 2 * N* S / 4 + N - 1, 2 * N* S / 4 * P + ends},
    // After each step except the last, each worker sends a model, and receives a mean with a number. At the end
    // it sends its last model.
    {"wagma-sgd", "group_size = 3", 0, N*(2 * S - 1), N*((S - 1) * (2 * P + 8) + P)},
    {"wagma-sgd", "group_size = 2\nglobal_every = 2\norder = \"average-first\"", 0, N*(2 * S - 1),
     N*((S - 1) * (2 * P + 8) + P)},
};

RunTotals totals_of(const Method& method, const std::shared_ptr<const NetworkModel>& network, const std::string& text) {
  const auto reading = read_method(text, {.workers = N, .micro_batches = M, .total_steps = Step{S}});
  EXPECT_EQ(reading.faults, "");
  if (!reading.algorithm || !reading.faults.empty()) return {};
  SimulatedRun setup{.workers = N, .micro_batches = M, .network = network, .budget = {.steps = S}};
  if (!method.needs_a_model) setup.objective = nullptr;
  const auto outcome = setup.run(*reading.algorithm);
  expect_exact_accounts(outcome);
  return outcome.totals;
}

TEST(Communication, OfEveryMethodIsThatOfAClosedFormUnderEveryNetwork) {
  const std::vector<std::shared_ptr<const NetworkModel>> networks = {
      make_fixed_network(0.5), make_ring_network(1e-3, 1e4),
      make_two_level_network({1e-4, 1e6}, CollectiveShape::tree,
                             {.workers = N, .group_size = 4, .uplink = {1e-3, 1e4}}),
      make_parameter_server_network(N, {1e-3, 1e4})};
  for (const Method& method : methods) {
    const std::string text = "algorithm = \"" + method.name + "\"\n" + method.keys;
    for (const auto& network : networks) {
      const RunTotals totals = totals_of(method, network, text);
      EXPECT_EQ(totals.collectives, method.collectives) << text;
      EXPECT_EQ(totals.messages, method.messages) << text;
      EXPECT_EQ(totals.bytes.value(), method.bytes) << text;
      if (method.is_timed) break;
    }
  }
}

TEST(Communication, TheTableIsOfAllMethods) {
  std::set<std::string_view> rows, of_table;
  for (const AlgorithmRow& row : algorithms()) rows.insert(row.name);
  for (const Method& method : methods) of_table.insert(method.name);
  EXPECT_EQ(of_table, rows);
}

}  // namespace
}  // namespace syncopate
