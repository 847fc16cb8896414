// Every key of [cluster], [network], [[delays]] and [[outages]] does something. On virtual time alone.
#include "tests/experiments/key_walk.hpp"

namespace syncopate {
namespace {

using Hash = IdleKey::Hash;

constexpr const char* time_only = R"(
seeds = [3]
[cluster]
workers = 4
micro_batch_s = 0.01
micro_batches = 2
[network]
kind = "fixed"
latency_s = 0.001
[training]
model = "none"
parameters = 1000
[budget]
steps = 12
[[methods]]
algorithm = "sync-sgd"
)";

// Durations of four workers in five steps of two micro-batches.
std::string recorded_run(int stride) {
  std::string rows = "worker,step,micro_batch,duration_s\n";
  for (int worker = 0; worker < 4; ++worker)
    for (int step = 0; step < 5; ++step)
      for (int m = 0; m < 2; ++m)
        rows += fmt::format("{},{},{},0.0{}\n", worker, step, m, 11 + (stride * worker + 5 * step + 3 * m) % 17);
  return rows;
}

const std::vector<KeyCase> clusters = {
    {{},
     {"cluster.workers=3", "cluster.micro_batch_s=0.02", "cluster.micro_batches=3", "cluster.trailing_s=0.002",
      "cluster.pace='emulate'", "cluster.micro_batch_measured=true"}},
    {{"cluster.worker_factors=[1,1,2,1]"}, {"cluster.worker_factors=[1,1,3,1]"}},
    {{"cluster.slow_workers={count=1,factor=2}", "delays=[{kind='exponential',mean=0.01}]"},
     {"cluster.slow_workers.count=2", "cluster.slow_workers.factor=3"}},
    {{"cluster.leave=[{workers=[2],after_steps=2}]", "methods=[{algorithm='async-sgd'}]",
      "cluster.worker_factors=[1,2,3,4]"},
     {"cluster.leave=[{workers=[1],after_steps=2}]", "cluster.leave=[{workers=[2],after_steps=3}]",
      "cluster.leave.0.workers=[3]", "cluster.leave.0.after_steps=1"}},
    {{"cluster={workers=4,micro_batches=2,trace={file='$/run.csv',end='wrap'}}"},
     {"cluster.trace.file='$/other.csv'", "cluster.trace.end='stop'", "cluster.trace.like={'3'=0}",
      "cluster.trace.like.3=1"}},
    {{"cluster={workers=4,micro_batches=2,trace={file='$/run.csv',end='error'}}", "budget.steps=4"},
     {"cluster.trace.like.2=0"}},
    {{"training={model='none',parameters=1000,dataset='npy',micro_batch_size=4,batching='padded'}",
      "datasets.npy={directory='$/texts',padding=0}",
      "cluster.micro_batch_s={base_s=0.01,per_token_s=1e-4,per_padded_token_s=1e-4,per_squared_length_s=1e-5}"},
     {"cluster.micro_batch_s.base_s=0.02", "cluster.micro_batch_s.per_token_s=2e-4",
      "cluster.micro_batch_s.per_padded_token_s=3e-4", "cluster.micro_batch_s.per_squared_length_s=2e-5"}},
    {{"cluster={workers=6,micro_batches=2,trace={file='$/run.csv',stretch={block_steps=3}}}"},
     {"cluster.trace.stretch.block_steps=2", "cluster.trace.stretch.redraw_worker=true",
      "cluster.trace.stretch.together=true"}},
};

// A ring of two servers, for all-reduces, and messages.
constexpr const char* two_servers =
    "network={kind='two-level',latency_s=0.01,bandwidth_bytes_per_s=1e6,group_size=2,"
    "inside={latency_s=0.001,bandwidth_bytes_per_s=1e7}}";

// Links that are unlike the others, met by messages; and exchanges during the backward pass.
constexpr const char* messages = "methods=[{algorithm='async-sgd'}]";
std::string with_links(const std::string& network, bool has_server = true) {
  return "network={" + network + ",links=[{workers=[1],latency_s=0.003,bandwidth_bytes_per_s=4e5}]" +
         (has_server ? ",server={latency_s=0.004,bandwidth_bytes_per_s=8e5}}" : "}");
}
std::string with_overlap(const std::string& network) {
  return "network={" + network + ",overlap={buckets=2,backward_share=0.5}}";
}
constexpr const char *ring = "kind='ring',latency_s=0.001,bandwidth_bytes_per_s=1e6",
                     *tree = "kind='tree',latency_s=0.001,bandwidth_bytes_per_s=1e6",
                     *star = "kind='parameter-server',latency_s=0.001,bandwidth_bytes_per_s=1e6",
                     *two_level =
                         "kind='two-level',latency_s=0.01,bandwidth_bytes_per_s=1e6,group_size=2,"
                         "inside={latency_s=0.001,bandwidth_bytes_per_s=1e7}",
                     *racks = ",racks={group_size=2,latency_s=0.005,bandwidth_bytes_per_s=3e5}";
const std::vector<std::string> of_links = {"network.links.0.workers=[2]", "network.links.0.latency_s=0.03",
                                           "network.links.0.bandwidth_bytes_per_s=1e5"},
                               of_server = {"network.server.latency_s=0.02", "network.server.bandwidth_bytes_per_s=1e5",
                                            "network.contention=false"},
                               of_racks = {"network.racks.group_size=3", "network.racks.latency_s=0.03",
                                           "network.racks.bandwidth_bytes_per_s=1e5"},
                               of_overlap = {"network.overlap.buckets=3", "network.overlap.backward_share=0.9"};

const std::vector<KeyCase> links = {
    {{with_links(ring), messages}, of_links},
    {{with_links(ring), messages}, of_server},
    {{with_links(std::string(ring) + racks), messages}, of_racks},
    {{with_overlap(ring)}, of_overlap},
    {{with_links(tree), messages}, of_links},
    {{with_links(tree), messages}, of_server},
    {{with_links(std::string(tree) + racks), messages}, of_racks},
    {{with_overlap(tree)}, of_overlap},
    {{with_links(two_level), messages}, of_links},
    {{with_links(two_level), messages}, of_server},
    {{with_overlap(two_level)}, of_overlap},
    {{with_links(star, false), messages}, of_links},
    {{with_overlap(star)}, of_overlap},
};

const std::vector<KeyCase> networks_of_each_kind = {
    {{"network={kind='fixed',latency_s=0.001,jitter=0.5}"},
     {"network.latency_s=0.002", "network.jitter=1", "network={kind='free'}"}},
    {{"network={kind='ring',latency_s=0.001,bandwidth_bytes_per_s=1e6}"},
     {"network.latency_s=0.002", "network.bandwidth_bytes_per_s=2e6", "network.jitter=1", "network.serial_s=0.1",
      "network.kind='tree'"}},
    {{"network={kind='tree',latency_s=0.001,bandwidth_bytes_per_s=1e6}"},
     {"network.latency_s=0.002", "network.bandwidth_bytes_per_s=2e6", "network.jitter=1", "network.serial_s=0.1"}},
    {{two_servers, "cluster.workers=5"},
     {"network.latency_s=0.002", "network.bandwidth_bytes_per_s=2e6", "network.jitter=1", "network.serial_s=0.1",
      "network.group_size=3", "network.between='tree'", "network.inside.latency_s=0.002",
      "network.inside.bandwidth_bytes_per_s=2e7"}},
    {{"network={kind='parameter-server',latency_s=0.001,bandwidth_bytes_per_s=1e6}"},
     {"network.latency_s=0.002", "network.bandwidth_bytes_per_s=2e6", "network.jitter=1", "network.serial_s=0.1"}},
};

std::string delay(const std::string& keys) { return "delays=[{" + keys + "}]"; }

const std::vector<KeyCase> delays_of_each_kind = {
    {{delay("kind='constant',value=0.01")}, {"delays.0.value=0.02"}},
    {{delay("kind='uniform',low=0.01,high=0.02")}, {"delays.0.low=0", "delays.0.high=0.03"}},
    {{delay("kind='normal',mean=0.01,standard_deviation=0.002")},
     {"delays.0.mean=0.02", "delays.0.standard_deviation=0.001"}},
    {{delay("kind='exponential',mean=0.01")}, {"delays.0.mean=0.02"}},
    {{delay("kind='shifted-exponential',shift=0.01,mean=0.01")}, {"delays.0.shift=0.02", "delays.0.mean=0.02"}},
    {{delay("kind='gamma',shape=2,scale=0.01")},
     {"delays.0.shape=3", "delays.0.scale=0.02", "delays.0.kind='weibull'"}},
    {{delay("kind='weibull',shape=2,scale=0.01")}, {"delays.0.shape=3", "delays.0.scale=0.02"}},
    {{delay("kind='pareto',shape=2,minimum=0.01")}, {"delays.0.shape=3", "delays.0.minimum=0.02"}},
    {{delay("kind='bernoulli',probability=0.3,value=0.01")}, {"delays.0.probability=0.6", "delays.0.value=0.02"}},
    {{delay("kind='lognormal',mu=-5,sigma=1")}, {"delays.0.mu=-4", "delays.0.sigma=0.5", "delays.0.scale=2"}},
    {{delay("kind='bounded-lognormal',form='table',scale=0.01")}, {"delays.0.scale=0.02", "delays.0.form='formula'"}},
    {{delay("kind='bounded-lognormal',form='formula',scale=0.01")},
     {"delays.0.scale=0.02", "delays.0.mu=3", "delays.0.sigma=0.7", "delays.0.alpha=0.5", "delays.0.beta=0.2"}},
    {{delay("kind='histogram',file='$/bins.csv',scale=3")},
     {"delays.0.file='$/other_bins.csv'", "delays.0.scale=2", "delays.0.shift=0.01"}},
    {{delay("kind='histogram',data='dropcompute-160'")}, {"delays.0.data='dropcompute-192'"}},
    {{delay("kind='drift',per_step=0.002,maximum=0.01")}, {"delays.0.per_step=0.001", "delays.0.maximum=0.02"}},
    {{delay("kind='trace',file='$/run.csv',end='wrap',scale=3")},
     {"delays.0.file='$/other.csv'", "delays.0.end='stop'", "delays.0.scale=2", "delays.0.shift=0.01"}},
    {{delay("kind='trace',file='$/run.csv',end='error'"), "budget.steps=5"}, {"delays.0.scale=2"}},
    {{delay("kind='trace',file='$/run.csv',stretch={block_steps=3}"), "cluster.workers=6"},
     {"delays.0.stretch.block_steps=2", "delays.0.stretch.redraw_worker=true", "delays.0.stretch.together=true"}},
};

// What all kinds share.
const std::vector<KeyCase> delays_of_any_kind = {
    {{delay("kind='exponential',mean=0.5,scope='micro-batch',unit='seconds'")},
     {"delays.0.unit='micro_batch'", "delays.0.scope='step'", "delays.0.scope='whole-step'", "delays.0.scope='worker'",
      "delays.0.group_size=2", "delays.0.workers=[1]", "delays.0.sleep=true",
      "delays.0.bursts={mean_on_steps=2,mean_off_steps=3}"}},
    {{delay("kind='exponential',mean=0.5,bursts={mean_on_steps=2,mean_off_steps=3}")},
     {"delays.0.bursts.mean_on_steps=4", "delays.0.bursts.mean_off_steps=9"}},
    {{"delays=[{kind='exponential',mean=0.01},{kind='exponential',mean=0.01,sleep=true}]"}, {"delays.1.mean=0.02"}},
};

const std::vector<KeyCase> outages = {
    {{"outages=[{workers=[1],at_s=0.035,duration_s=0.02}]"},
     {"outages.0.at_s=0.05", "outages.0.duration_s=0.03", "outages.0.workers=[2]", "outages.0.state='lost'"}},
    {{"outages=[{mean_time_between_s=0.05,mean_duration_s=0.02}]"},
     {"outages.0.mean_time_between_s=0.1", "outages.0.mean_duration_s=0.03", "outages.0.workers=[2]",
      "outages.0.state='lost'"}},
};

const std::vector<IdleKey> idle = {
    {"cluster.pace", Hash::differs, "of the cluster of MPI alone"},
    {"cluster.micro_batch_measured", Hash::differs, "says where a number has come from"},
    {"cluster.trace.file_hash", Hash::differs, "refuses a file of other content"},
    {"delays[trace].file_hash", Hash::differs, "the same"},
    {"delays[histogram].file_hash", Hash::differs, "the same"},
    {"network[free].latency_s", Hash::differs, "is refused: a free network has no cost"},
    {"network[free].bandwidth_bytes_per_s", Hash::differs, "the same"},
    {"network[free].jitter", Hash::differs, "the same"},
    {"network[free].serial_s", Hash::differs, "the same"},
    {"network[fixed].bandwidth_bytes_per_s", Hash::differs, "is refused: a fixed cost has nothing else"},
    {"network[fixed].serial_s", Hash::differs, "the same"},
    {"network[free].server", Hash::differs, "is refused: nothing occupies a link"},
    {"network[free].links", Hash::differs, "the same"},
    {"network[free].contention", Hash::differs, "the same"},
    {"network[free].racks", Hash::differs, "the same"},
    {"network[free].overlap", Hash::differs, "the same"},
    {"network[fixed].server", Hash::differs, "the same"},
    {"network[fixed].links", Hash::differs, "the same"},
    {"network[fixed].contention", Hash::differs, "the same"},
    {"network[fixed].racks", Hash::differs, "the same"},
    {"network[fixed].overlap", Hash::differs, "the same"},
    {"network[parameter-server].server", Hash::differs, "is refused: the network's own keys are the server's"},
    {"network[parameter-server].contention", Hash::differs, "is refused: that link is shared"},
    {"network[parameter-server].racks", Hash::differs, "is refused: all share the server's link"},
    {"network[two-level].racks", Hash::differs, "is refused: its groups have uplinks"},
};

TEST_F(KeyWalk, OfClustersNetworksDelaysAndOutages) {
  write("run.csv", recorded_run(3));
  write("other.csv", recorded_run(7));
  write_texts("texts", 3);
  write("bins.csv", "bin_left_s,bin_right_s,density\n0.01,0.02,60\n0.02,0.03,40\n");
  write("other_bins.csv", "bin_left_s,bin_right_s,density\n0.01,0.02,40\n0.02,0.03,60\n");
  for (const auto& cases : {clusters, networks_of_each_kind, links, delays_of_each_kind, delays_of_any_kind, outages})
    walk(time_only, cases, idle);
  expect_completeness({"cluster", "network", "delays", "outages"});
  expect_results_by_version(SYNCOPATE_SOURCE_DIR, "tests/golden/results_by_version/clusters.json");
}

}  // namespace
}  // namespace syncopate
