// Every key of [[methods]] does something, for each method.
#include <fmt/format.h>

#include "tests/experiments/key_walk.hpp"

namespace syncopate {
namespace {

// Workers whose micro-batches take unlike and varying times; 128 samples, so 8 steps per epoch.
constexpr const char* compared = R"(
seeds = [3]
[cluster]
workers = 4
micro_batch_s = 0.01
micro_batches = 2
worker_factors = [1, 1.3, 1.1, 1.8]
[network]
kind = "fixed"
latency_s = 0.001
[[delays]]
kind = "exponential"
mean = 0.01
[training]
model = "linear"
dataset = "gaussian-mixture"
micro_batch_size = 2
[training.learning_rate]
schedule = "cosine"
peak = 0.1
[training.optimizer]
name = "sgd"
[datasets.gaussian-mixture]
classes = 3
dimension = 4
train = 128
test = 20
[budget]
steps = 24
[evaluation]
every_steps = 8
)";

std::string method(const std::string& keys) { return "methods=[{algorithm=" + keys + "}]"; }

const std::vector<KeyCase> synchronous = {
    {{method("'sync-sgd'")},
     {"methods.0.algorithm='decentralized-sgd'", "methods.0.label='another'", "methods.0.training.clip_norm=0.1"}},
    {{method("'dropcompute',threshold_s=0.05")},
     {"methods.0.threshold_s=0.04", "methods.0.preempt='microbatch'", "methods.0.preempt='backward'",
      "methods.0.preempt='layer'", "methods.0.normalisation='computed'", "methods.0.compensation='extra-steps'",
      "methods.0.compensation='recompute'", "methods.0.compensation='carry-over'"}},
    {{method("'dropcompute',threshold_s=0.05,preempt='backward',forward_share=0.3")}, {"methods.0.forward_share=0.9"}},
    {{method("'dropcompute',threshold_s=0.05,normalisation='mean-rate',mean_drop_rate=0.2")},
     {"methods.0.mean_drop_rate=0.3"}},
    {{method("'dropcompute',threshold_s=0.05,compensation='extra-steps',redundancy=0.2")},
     {"methods.0.redundancy=0.5", "methods.0.learning_rate_schedule='stretched'"}},
    {{method("'dropcompute',threshold_s=0.08,compensation='larger-batch',redundancy=0.25")},
     {"methods.0.redundancy=1"}},
    {{method("'dropcompute',threshold_s=0.05,compensation='recompute'")}, {"methods.0.recompute_every_steps=5"}},
    {{method("'dropcompute',threshold_s=0.03,compensation='carry-over'")}, {"methods.0.carried_at_most=1"}},
    {{method("'random-drop',drop_rate=0.3")},
     {"methods.0.drop_rate=0.5", "methods.0.from_step=2", "methods.0.from_epoch=1"}},
};

// Two matrices, of 16 x 12 and 10 x 16, of which powersgd compresses both at a rate of 2, one at 6.5.
const std::vector<std::string> of_matrices = {"training.model='mlp'", "models.mlp.hidden=[16]",
                                              "datasets.gaussian-mixture.dimension=12",
                                              "datasets.gaussian-mixture.classes=10"};

KeyCase of_compression(const std::string& keys, std::vector<std::string> changes,
                       const std::string& algorithm = "'sync-sgd'") {
  KeyCase result{{method(algorithm + ",compression={" + keys + "}")}, {}};
  result.given.insert(result.given.end(), of_matrices.begin(), of_matrices.end());
  for (const std::string& change : changes) result.changes.push_back("methods.0.compression." + change);
  return result;
}

KeyCase of_averages(const std::string& keys, const std::vector<std::string>& changes) {
  return of_compression(keys, changes, "'local-sgd',period={rule='constant',steps=2}");
}

const std::vector<KeyCase> compressed = {
    of_compression("name='int8',error_feedback=true", {"range_std=1", "scope='tensor'", "exchange='two-phase'",
                                                       "error_feedback=false", "residual='step'"}),
    of_compression("name='fp4',error_feedback=true", {"bucket=16", "rounding='random'", "exchange='two-phase'",
                                                      "error_feedback=false", "residual='step'"}),
    of_compression("name='sparse-rows',tables=['weight']", {"tables=['linear1']", "exchange='dense'"}),
    of_averages("name='top-k',ratio=0.2", {"name='random-k'", "ratio=0.5", "scope='tensor'", "error_feedback=false"}),
    of_averages("name='random-k',ratio=0.2", {"ratio=0.5", "error_feedback=false"}),
    of_averages("name='sign'", {"scope='tensor'", "exchange='two-phase'", "error_feedback=false"}),
    of_averages("name='qsgd',levels=7", {"levels=3", "bucket=16", "exchange='two-phase'"}),
    of_averages("name='int8'", {"range_std=1", "scope='tensor'", "exchange='two-phase'", "error_feedback=true"}),
    of_averages("name='fp4'", {"bucket=16", "rounding='random'", "exchange='two-phase'", "error_feedback=true"}),
    of_compression("name='top-k',ratio=0.2",
                   {"name='random-k'", "ratio=0.5", "scope='tensor'", "error_feedback=false", "residual='step'"}),
    of_compression("name='dgc',ratio=0.2",
                   {"ratio=0.5", "scope='tensor'", "momentum=0.5", "masking=false", "dense_vectors=true"}),
    of_compression("name='scalecom',ratio=0.2",
                   {"ratio=0.5", "scope='tensor'", "filter=0.5", "error_feedback=false", "residual='step'"}),
    of_compression("name='one-bit'", {"scope='tensor'", "scope='model'", "exchange='two-phase'", "error_feedback=false",
                                      "residual='step'"}),
    of_compression("name='random-k',ratio=0.2", {"ratio=0.5", "error_feedback=false", "residual='step'"}),
    of_compression("name='sign'",
                   {"scope='tensor'", "exchange='two-phase'", "error_feedback=false", "residual='step'"}),
    of_compression("name='majority'", {"momentum=0.9"}),
    of_compression("name='qsgd',levels=7", {"levels=3", "bucket=16", "exchange='two-phase'"}),
    of_compression("name='powersgd',rank=1", {"rank=2", "least_rate=6.5", "warm_start=false", "error_feedback=false",
                                              "residual='step'", "removed='mean'"}),
};

// Of all that select values; and of all with error feedback, where batches are left out.
std::vector<KeyCase> more_compressed() {
  std::vector<KeyCase> cases;
  for (const char* name : {"top-k", "dgc", "random-k", "scalecom"}) {
    const std::string keys = std::string("name='") + name + "',ratio=0.2,warmup_ratios=[0.9,0.5],";
    cases.push_back(of_compression(keys + "warmup_steps=6", {"warmup_ratios=[0.5]", "warmup_steps=3"}));
    cases.push_back(of_compression(keys + "warmup_epochs=1", {"warmup_epochs=0.5"}));
  }
  for (const char* keys : {"name='top-k',ratio=0.2", "name='dgc',ratio=0.2", "name='random-k',ratio=0.2",
                           "name='scalecom',ratio=0.2", "name='sign'", "name='one-bit'", "name='powersgd',rank=1",
                           "name='int8',error_feedback=true", "name='fp4',error_feedback=true"})
    cases.push_back(of_compression(keys, {"dropped='fold'"}, "'random-drop',drop_rate=0.3,from_step=0"));
  return cases;
}

// What a server takes one by one, some of it too late.
KeyCase of_messages(const std::string& keys, const std::vector<std::string>& changes,
                    const std::string& algorithm = "'async-sgd',maximum_staleness=2") {
  return of_compression(keys, changes, algorithm);
}
const std::vector<KeyCase> messages = {
    of_messages("name='top-k',ratio=0.2",
                {"name='random-k'", "ratio=0.5", "scope='tensor'", "error_feedback=false", "rejected='return'"}),
    of_messages("name='random-k',ratio=0.2", {"ratio=0.5", "error_feedback=false", "rejected='return'"}),
    of_messages("name='sign'", {"scope='tensor'", "error_feedback=false", "rejected='return'"}),
    of_messages("name='qsgd',levels=7", {"levels=3", "bucket=16"}),
    of_messages("name='int8',error_feedback=true",
                {"range_std=1", "scope='tensor'", "error_feedback=false", "rejected='return'"}),
    of_messages("name='fp4',error_feedback=true",
                {"bucket=16", "rounding='random'", "error_feedback=false", "rejected='return'"}),
    of_messages("name='top-k',ratio=0.2", {"ratio=0.5", "error_feedback=false"},
                "'async-local-sgd',local_steps=2,update={name='plain',rate=1}"),
    of_messages("name='top-k',ratio=0.2", {"ratio=0.5", "error_feedback=false", "rejected='return'"},
                "'backup-workers',backups=1,servers=2"),
};

// Averages of fragments, and of methods whose rounds follow from losses or are pulled.
const std::vector<KeyCase> averages = {
    of_compression("name='top-k',ratio=0.2", {"ratio=0.5", "error_feedback=false"},
                   "'streaming-diloco',fragments=2,period={rule='constant',steps=4},outer={name='plain'}"),
    of_compression("name='fp4'", {"bucket=16", "rounding='random'", "error_feedback=true"},
                   "'streaming-diloco',fragments=2,period={rule='constant',steps=4},outer={name='plain'}"),
    of_compression("name='int8'", {"range_std=1", "scope='tensor'", "error_feedback=true"},
                   "'palsgd',period={rule='constant',steps=4},outer={name='plain'}"),
    of_compression("name='sign'", {"scope='tensor'", "error_feedback=false"}, "'adacomm',initial_period=3"),
};

// Adam with a frozen second moment, of which signs of two matrices are sent.
KeyCase of_moments(const std::string& compression, const std::vector<std::string>& changes) {
  KeyCase result = of_compression(compression, changes, "'one-bit-adam',freeze_step=3");
  result.given.push_back("training.optimizer={name='adam',bias_correction=false}");
  return result;
}
const std::vector<KeyCase> moments = {
    of_moments("name='sign'",
               {"scale='l1'", "scope='tensor'", "exchange='gather'", "error_feedback=false", "name='none'"}),
    of_moments("name='top-k',ratio=0.2", {"ratio=0.5", "scope='tensor'", "error_feedback=false"}),
    of_moments("name='random-k',ratio=0.2", {"ratio=0.5", "error_feedback=false"}),
    of_moments("name='qsgd',levels=7", {"levels=3", "bucket=16", "exchange='two-phase'"}),
    of_moments("name='int8'", {"range_std=1", "scope='tensor'", "exchange='two-phase'", "error_feedback=true"}),
    of_moments("name='fp4'", {"bucket=16", "rounding='random'", "exchange='two-phase'", "error_feedback=true"}),
    {{method("'one-bit-adam',freeze_step=3"), "training.optimizer={name='adam',bias_correction=false}"},
     {"methods.0.freeze_step=5"}},
};

const std::vector<KeyCase> old_gradients = {
    {{method("'stale-sgd',staleness=3")},
     {"methods.0.staleness=2", "methods.0.spread=2", "methods.0.ramp_epochs=1", "methods.0.ramp_steps=2"}},
};

const std::vector<KeyCase> thresholds = {
    {{method("'dropcompute',threshold={rule='fixed',threshold_s=0.05}")}, {"methods.0.threshold.threshold_s=0.04"}},
    {{method("'dropcompute',threshold={rule='automatic',warmup_steps=1,calibration_steps=8}")},
     {"methods.0.threshold.warmup_steps=4", "methods.0.threshold.calibration_steps=3",
      "methods.0.threshold.search='s-eff'", "methods.0.threshold.search='reference'",
      "methods.0.threshold.maximum_drop_rate=0.02"}},
    // Work that runs on behind a micro-batch is none of its time.
    {{"cluster.trailing_s=0.02",
      method("'dropcompute',threshold={rule='automatic',warmup_steps=1,calibration_steps=8,calibration_clock='step'}")},
     {"methods.0.threshold.calibration_clock='micro-batch'"}},
    {{method("'dropcompute',threshold={rule='adaptive-quantile',quantile=0.5,window_steps=4,update_every_steps=2}")},
     {"methods.0.threshold.quantile=0.7", "methods.0.threshold.window_steps=6",
      "methods.0.threshold.update_every_steps=1"}},
    {{method("'dropcompute',threshold={rule='adaptive-mad',deviations=1,window_steps=4,update_every_steps=2}")},
     {"methods.0.threshold.deviations=0.5", "methods.0.threshold.window_steps=6",
      "methods.0.threshold.update_every_steps=1",
      "methods.0.threshold={rule='adaptive-quantile',window_steps=4,update_every_steps=2}"}},
};

const std::vector<KeyCase> quorums = {
    {{method("'backup-workers',backups=1")},
     {"methods.0.backups=2", "methods.0.late='cancel'", "methods.0.learning_rate='times-quorum'",
      "methods.0.average={decay=0.5}", "methods.0.servers=2"}},
    {{method("'backup-workers',backups=1,average={decay=0.5}")},
     {"methods.0.average.decay=0.6", "methods.0.average.of='after-update'", "methods.0.average.num_updates=true"}},
    {{method("'backup-tokens',backups=1")}, {"methods.0.backups=2", "methods.0.initial_tokens=6"}},
    {{method("'backup-tokens',quorum=3")}, {"methods.0.quorum=2"}},
    {{method("'backup-all-reduce',backups=1")}, {"methods.0.backups=2"}},
    {{method("'backup-timeout',timeout_s=0.03")},
     {"methods.0.timeout_s=0.02", "methods.0.counted_from='first'", "methods.0.late='cancel'"}},
    {{method("'mindflayer',trials=5,limit_s=0.025")},
     {"methods.0.trials=4", "methods.0.limit_s=0.022", "methods.0.correction=1.5"}},
    {{method("'stsyn',quorum=3,local_steps=4")},
     {"methods.0.quorum=2", "methods.0.local_steps=3", "methods.0.most_steps=5", "methods.0.weights='steps'",
      "methods.0.leaves_out_most=true"}},
    {{method("'dynamic-backup'")},
     {"methods.0.fewest=3", "methods.0.most=2", "methods.0.rate_times_smoothness=0.5", "methods.0.memory=0.2"}},
    {{method("'k-sync',gradients=3")}, {"methods.0.gradients=2"}},
    {{method("'k-batch-sync',gradients=3")}, {"methods.0.gradients=5"}},
    {{method("'eager-sgd',activation='solo'")},
     {"methods.0.activation='majority'", "methods.0.late='drop'", "methods.0.synchronous_every=3",
      "methods.0.missed='all'", "methods.0.average_every=6", "methods.0.variant='released'",
      "methods.0.variant='replayed'"}},
    {{method("'eager-sgd',activation='solo',variant='released'")}, {"methods.0.variant='paper'"}},
};

const std::vector<KeyCase> asynchronous = {
    {{method("'async-sgd'")},
     {"methods.0.maximum_staleness=2", "methods.0.maximum_age_s=0.06", "methods.0.staleness_weight='1/tau'",
      "methods.0.staleness_weight='1/(tau+1)'", "methods.0.rate_scaling='none'"}},
    {{method("'softsync',splitting=2")},
     {"methods.0.splitting=3", "methods.0.staleness_weight='1/tau'", "methods.0.staleness_weight='1/(tau+1)'",
      "methods.0.rate_scaling='none'"}},
    {{method("'k-async',gradients=2")},
     {"methods.0.gradients=3", "methods.0.staleness_weight='1/tau'", "methods.0.staleness_weight='1/(tau+1)'",
      "methods.0.rate_scaling='none'"}},
    {{method("'k-batch-async',gradients=2")},
     {"methods.0.gradients=5", "methods.0.staleness_weight='1/tau'", "methods.0.staleness_weight='1/(tau+1)'",
      "methods.0.rate_scaling='none'"}},
    {{method("'ringmaster',delay_threshold=3")},
     {"methods.0.delay_threshold=2", "methods.0.late='finish'", "methods.0.staleness_weight='1/tau'",
      "methods.0.staleness_weight='1/(tau+1)'", "methods.0.rate_scaling='none'"}},
    {{method("'throttle',divisor=2")}, {"methods.0.divisor=3", "methods.0.repeats='alone'"}},
    {{method("'stale-synchronous',slack=1")},
     {"methods.0.slack=0", "methods.0.staleness_weight='1/tau'", "methods.0.staleness_weight='1/(tau+1)'",
      "methods.0.rate_scaling='none'"}},
    {{method("'bounded-delay',maximum_delay=2")}, {"methods.0.maximum_delay=1"}},
    {{method("'sliding-window',maximum_delay=2")},
     {"methods.0.maximum_delay=1", "methods.0.staleness_weight='1/tau'", "methods.0.staleness_weight='1/(tau+1)'",
      "methods.0.rate_scaling='none'"}},
    {{"training.optimizer.momentum=0.5", method("'async-local-sgd',local_steps=4,update={name='plain',rate=0.5}")},
     {"methods.0.local_steps=3", "methods.0.update.rate=0.4", "methods.0.rate_scaling='1/sqrt(N)'",
      "methods.0.staleness_exponent=0.5", "methods.0.maximum_staleness=1", "methods.0.grace_s=0.05",
      "methods.0.moments='reset'", "methods.0.steps_by_speed='up'", "methods.0.steps_by_speed='down'",
      "methods.0.update={name='buffered',size=2}"}},
    {{method("'async-local-sgd',local_steps=4,update={name='plain',rate=0.5},steps_by_speed='down'")},
     {"methods.0.minimum_steps=3"}},
    {{method("'async-local-sgd',local_steps=4,update={name='nesterov',rate=0.3,momentum=0.5}")},
     {"methods.0.update.rate=0.2", "methods.0.update.momentum=0.3",
      "methods.0.update={name='delayed-nesterov',rate=0.3,momentum=0.5,every=2}"}},
    {{method("'async-local-sgd',local_steps=4,update={name='delayed-nesterov',rate=0.6,momentum=0.5,every=2}")},
     {"methods.0.update.rate=0.4", "methods.0.update.momentum=0.3", "methods.0.update.every=3",
      "methods.0.update.share=0.3"}},
    {{method("'async-local-sgd',local_steps=4,update={name='buffered',size=2}")},
     {"methods.0.update.size=3", "methods.0.update.rate=0.5", "methods.0.update.momentum=0.4",
      "methods.0.update.reduce='sum'"}},
    {{"training.optimizer.momentum=0.5",
      method("'halos',regions=2,local_steps=2,merge_every=2,mixing=0.5,local_update={name='plain',rate=0.5},"
             "global_update={name='plain',rate=0.8}")},
     {"methods.0.regions=4", "methods.0.local_steps=3", "methods.0.merge_every=1", "methods.0.mixing=0.2",
      "methods.0.local_update.rate=0.4", "methods.0.global_update.rate=0.5", "methods.0.moments='reset'",
      "methods.0.steps_by_speed='up'", "methods.0.steps_by_speed='down'",
      "methods.0.local_update={name='buffered',size=2}", "methods.0.global_update={name='buffered',size=2}"}},
    {{method("'halos',regions=2,local_steps=4,merge_every=2,mixing=0.5,local_update={name='plain',rate=0.5},"
             "global_update={name='plain',rate=0.8},steps_by_speed='down'")},
     {"methods.0.minimum_steps=4"}},
    {{method("'halos',regions=2,local_steps=2,merge_every=2,mixing=0.5,local_update={name='nesterov',rate=0.5,"
             "momentum=0.5},global_update={name='nesterov',rate=0.8,momentum=0.3}")},
     {"methods.0.local_update.rate=0.4", "methods.0.local_update.momentum=0.3", "methods.0.global_update.rate=0.5",
      "methods.0.global_update.momentum=0.2"}},
    {{method("'halos',regions=2,local_steps=2,merge_every=2,mixing=0.5,local_update={name='delayed-nesterov',rate=0.5,"
             "momentum=0.5,every=2},global_update={name='delayed-nesterov',rate=0.8,momentum=0.3,every=2}")},
     {"methods.0.local_update.rate=0.4", "methods.0.local_update.momentum=0.3", "methods.0.local_update.every=3",
      "methods.0.local_update.share=0.3", "methods.0.global_update.rate=0.5", "methods.0.global_update.momentum=0.2",
      "methods.0.global_update.every=1", "methods.0.global_update.share=0.3"}},
    {{method("'halos',regions=2,local_steps=2,merge_every=2,mixing=0.5,local_update={name='buffered',size=2},"
             "global_update={name='buffered',size=2}")},
     {"methods.0.local_update.size=1", "methods.0.local_update.rate=0.5", "methods.0.local_update.momentum=0.4",
      "methods.0.local_update.reduce='sum'", "methods.0.global_update.size=1", "methods.0.global_update.rate=0.5",
      "methods.0.global_update.momentum=0.4", "methods.0.global_update.reduce='sum'"}},
    {{method("'decoupled-diloco',quorum=2,outer={name='diloco',rate=0.7,momentum=0.5}")},
     {"methods.0.quorum=1", "methods.0.fragments=2", "methods.0.local_steps=6", "methods.0.minimum_steps=3",
      "methods.0.merge='mean'", "methods.0.late='count'", "methods.0.grace={margin=0.9,initial_s=0.1}",
      "methods.0.outer.rate=0.5", "methods.0.outer.momentum=0.3", "methods.0.outer.name='slowmo'"}},
    {{method("'decoupled-diloco',quorum=1,late='count',outer={name='plain',rate=0.5}")},
     {"methods.0.anchor='base'", "methods.0.outer.rate=0.8"}},
    {{method("'decoupled-diloco',quorum=1,fragments=2,grace={margin=0.2,overlap_steps=3,initial_s=0.02},outer={name='"
             "plain'}")},
     {"methods.0.grace.margin=0.6", "methods.0.grace.overlap_steps=6", "methods.0.grace.averaging=1",
      "methods.0.grace.initial_s=0.1", "methods.0.grace.longest_s=0.01"}},
    {{method("'decoupled-diloco',quorum=2,local_steps=4,outer={name='slowmo',momentum=0.5}")},
     {"methods.0.local_steps=2", "methods.0.outer.rate=0.5", "methods.0.outer.momentum=0.3"}},
};

// Methods that average every so often, with the keys that each needs beside its period.
const std::vector<std::string> periodic = {"'local-sgd'",
                                           "'outer-local-sgd',outer={name='plain'}",
                                           "'palsgd',outer={name='plain'}",
                                           "'edit',outer={name='plain'}",
                                           "'hierarchical-sgd',group_size=2,group_period=1",
                                           "'dropcompute-local-sgd',threshold_s=0.3"};
// The same with averages one round late, which leave the optimizer's moments alone.
const std::vector<std::string> overlapped = {"'cocod-sgd'", "'overlap-local-sgd',mixing=0.5", "'co2'",
                                             "'overlapped-diloco',outer={name='plain'}",
                                             "'streaming-diloco',fragments=2,outer={name='plain'}"};

std::vector<KeyCase> periods() {
  std::vector<KeyCase> cases;
  std::vector<std::string> methods = periodic;
  methods.insert(methods.end(), overlapped.begin(), overlapped.end());
  for (const std::string& keys : methods) {
    const auto with = [&](const std::string& period) { return method(keys + ",period={" + period + "}"); };
    cases.push_back({{with("rule='constant',steps=4")}, {"methods.0.period.steps=3"}});
    cases.push_back({{with("rule='power',coefficient=0.2,minimum=2")},
                     {"methods.0.period.coefficient=0.3", "methods.0.period.power=1", "methods.0.period.minimum=5",
                      "methods.0.period.maximum=3", "methods.0.period.warmup_steps=8"}});
    cases.push_back(
        {{with("rule='power',coefficient=0.2,minimum=2,warmup_steps=8")}, {"methods.0.period.warmup_period=1"}});
    cases.push_back({{with("rule='post-local',switch_step=4,steps=4")},
                     {"methods.0.period.switch_step=8", "methods.0.period.steps=3"}});
    cases.push_back({{with("rule='constant',steps={rounds=6}")},  // of 24 steps
                     {"methods.0.period.steps.rounds=8", "methods.0.period.steps={share=0.5}"}});
    cases.push_back({{with("rule='constant',steps={share=0.25}")}, {"methods.0.period.steps.share=0.5"}});
    cases.push_back({{with("rule='constant',steps=4,solved_for={share=0.25,rounds=6,found=6}")},
                     {"methods.0.period.solved_for.rounds=7", "methods.0.period.solved_for.share=0.3"}});
    cases.push_back({{with("rule='power',coefficient={rounds=8},minimum=2")},
                     {"methods.0.period.coefficient.rounds=5", "methods.0.period.coefficient={share=0.25}"}});
    cases.push_back(
        {{with("rule='power',coefficient={share=0.3},minimum=2")}, {"methods.0.period.coefficient.share=0.2"}});
    cases.push_back({{with("rule='post-local',switch_step=4,steps={rounds=9}")}, {"methods.0.period.steps.rounds=14"}});
    cases.push_back(
        {{with("rule='post-local',switch_step=4,steps={share=0.375}")}, {"methods.0.period.steps.share=0.6"}});
    cases.push_back({{with("rule='swap',switch_step=4")},
                     {"methods.0.period.switch_step=8", "methods.0.period={rule='post-local',switch_step=4,steps=4}"}});
  }
  return cases;
}

// A model with batch normalisation and an optimizer with two moments: there is something to decide about.
std::vector<std::string> with_moments_and_statistics(const std::string& keys) {
  return {"training.model='cnn'",
          "models.cnn={channels=[2],kernel=3,dense=3,batch_norm=true}",
          "training.dataset='fashion-mnist'",
          "datasets.fashion-mnist.directory='$/images'",
          "training.optimizer={name='adamw'}",
          "training.learning_rate.peak=0.01",
          "budget.steps=8",
          method(keys)};
}

std::vector<KeyCase> policies() {
  std::vector<KeyCase> cases;
  std::vector<std::string> methods = {"'dynamic-averaging',threshold=0.0001,check_every=2,checks='gathered'",
                                      "'adacomm',initial_period=3"};
  for (const std::string& keys : periodic) methods.push_back(keys + ",period={rule='constant',steps=3}");
  const std::vector<std::string> statistics = {"methods.0.buffers='keep'", "methods.0.buffers='reset'",
                                               "methods.0.buffers='recalibrate'"};
  for (const std::string& keys : methods) {
    std::vector<std::string> all = {"methods.0.moments='average'",       "methods.0.moments='reset'",
                                    "methods.0.first_moment='average'",  "methods.0.first_moment='reset'",
                                    "methods.0.second_moment='average'", "methods.0.second_moment='reset'"};
    all.insert(all.end(), statistics.begin(), statistics.end());
    cases.push_back({with_moments_and_statistics(keys), all});
    cases.push_back({with_moments_and_statistics(keys + ",moments='reset'"),
                     {"methods.0.first_moment='keep'", "methods.0.second_moment='keep'"}});
    cases.push_back({with_moments_and_statistics(keys + ",buffers='recalibrate'"),
                     {"methods.0.recalibration_micro_batches=4", "methods.0.buffers='average'"}});
  }
  std::vector<std::string> with_statistics_alone = {"'des-loc',period=3"};
  for (const std::string& keys : overlapped)
    with_statistics_alone.push_back(keys + ",period={rule='constant',steps=3}");
  for (const std::string& method : with_statistics_alone) {
    cases.push_back({with_moments_and_statistics(method), statistics});
    cases.push_back({with_moments_and_statistics(method + ",buffers='recalibrate'"),
                     {"methods.0.recalibration_micro_batches=4", "methods.0.buffers='average'"}});
  }
  cases.push_back(
      {with_moments_and_statistics("'random-drop',drop_rate=0.3,from_step=0"), {"methods.0.statistics='all'"}});
  cases.push_back({with_moments_and_statistics("'branch-train-merge'"), statistics});
  cases.push_back({with_moments_and_statistics("'branch-train-merge',buffers='recalibrate'"),
                   {"methods.0.recalibration_micro_batches=4", "methods.0.buffers='average'"}});
  return cases;
}

std::string outer(const std::string& keys) {
  return method("'outer-local-sgd',period={rule='constant',steps=4},outer={" + keys + "}");
}

const std::vector<KeyCase> local = {
    {{method("'local-sgd',period={rule='swap',switch_step=4}")},
     {"methods.0.local_phase={micro_batches=1}", "methods.0.local_phase={sampling='own-order'}",
      "methods.0.local_phase={peak=0.05}"}},
    {{method("'local-sgd',period={rule='swap',switch_step=4},local_phase={micro_batches=2,sampling='shards',peak=0.05,"
             "schedule='linear'}")},
     {"methods.0.local_phase.micro_batches=3", "methods.0.local_phase.sampling='own-order'",
      "methods.0.local_phase.peak=0.1", "methods.0.local_phase.schedule='cosine'",
      "methods.0.local_phase.schedule='constant'", "methods.0.local_phase.final=0.01"}},
    {{method("'adacomm',initial_period=8")},
     {"methods.0.initial_period=6", "methods.0.formula='paddle'", "methods.0.follow_rate=true", "methods.0.minimum=7",
      "methods.0.maximum=3", "methods.0.interval_steps=12", "methods.0.interval_s=0.3"}},
    {{method("'adacomm',initial_period=3,follow_rate=true")},
     {"methods.0.not_below='keep'", "methods.0.not_below='shrink'"}},
    {{method("'adacomm',initial_period=3,follow_rate=true,not_below='shrink'")},
     {"methods.0.shrinkage=0.8", "methods.0.not_below='take'"}},
    {{method("'adacomm',initial_period=30,formula='paddle'")}, {"methods.0.formula='adacomm'"}},
    {{method("'des-loc',period=3"), "training.optimizer={name='adamw'}"},
     {"methods.0.period=2", "methods.0.moment_periods='half-life'", "methods.0.moment_periods='never'",
      "methods.0.first_moment_period=5", "methods.0.second_moment_period=5"}},
    {{method("'des-loc',period=3,moment_periods='never'"), "training.optimizer={name='adamw'}"},
     {"methods.0.moment_periods='multiples'"}},
    {{outer("name='plain'")}, {"methods.0.outer.rate=0.5"}},
    {{outer("name='slowmo',momentum=0.5")}, {"methods.0.outer.rate=0.5", "methods.0.outer.momentum=0.3"}},
    {{outer("name='diloco',rate=0.7,momentum=0.5")},
     {"methods.0.outer.rate=0.5", "methods.0.outer.momentum=0.3", "methods.0.outer.name='slowmo'"}},
    {{method("'palsgd',period={rule='constant',steps=4},outer={name='diloco',rate=0.7,momentum=0.5}")},
     {"methods.0.pull_probability=0.4", "methods.0.pull_strength=0.1", "methods.0.draws='shared'",
      "methods.0.outer.rate=0.5", "methods.0.outer.momentum=0.3", "methods.0.outer.name='slowmo'"}},
    {{method("'palsgd',period={rule='constant',steps=4},outer={name='slowmo',momentum=0.5}")},
     {"methods.0.outer.rate=0.5", "methods.0.outer.momentum=0.3"}},
    {{method("'palsgd',period={rule='constant',steps=4},outer={name='plain'}")}, {"methods.0.outer.rate=0.5"}},
    {{method("'edit',period={rule='constant',steps=2},outer={name='diloco',rate=0.7,momentum=0.5},outlier_factor=0.85,"
             "outlier_warmup=4,outlier_smoothing=0.3,clip_norm=0.05")},
     {"methods.0.outlier_factor=5", "methods.0.outlier_warmup=6", "methods.0.outlier_smoothing=0.7",
      "methods.0.temperature=0.05", "methods.0.step_share=0.5", "methods.0.clip_norm=0.02", "methods.0.scope='model'",
      "methods.0.clip_scope='model'", "methods.0.outer.rate=0.5", "methods.0.outer.momentum=0.3",
      "methods.0.outer.name='slowmo'"}},
    {{method("'edit',period={rule='constant',steps=4},outer={name='slowmo',momentum=0.5}")},
     {"methods.0.outer.rate=0.5", "methods.0.outer.momentum=0.3"}},
    {{method("'edit',period={rule='constant',steps=4},outer={name='plain'}")}, {"methods.0.outer.rate=0.5"}},
    {{method("'edit',sync_seconds=0.12,outer={name='plain'}")},
     {"methods.0.sync_seconds=0.08", "methods.0.counted_from='arrival'", "methods.0.minimum_steps=20",
      "methods.0.warmup_steps=4", "methods.0.step_share=0.5"}},
    {{method("'overlap-local-sgd',mixing=0.5,momentum=0.5,period={rule='constant',steps=4}")},
     {"methods.0.mixing=0.6", "methods.0.momentum=0.3", "methods.0.momentum_units='model'"}},
    {{method("'co2',period={rule='constant',steps=4}")},
     {"methods.0.rate=0.5", "methods.0.momentum=0.3", "methods.0.gap=2", "methods.0.anchor='round-start'"}},
    {{method("'overlapped-diloco',period={rule='constant',steps=4},outer={name='slowmo',momentum=0.5}")},
     {"methods.0.update='delayed'", "methods.0.outer.rate=0.5", "methods.0.outer.momentum=0.3"}},
    {{method("'overlapped-diloco',period={rule='constant',steps=4},outer={name='diloco',rate=0.7,momentum=0.5}")},
     {"methods.0.outer.rate=0.5", "methods.0.outer.momentum=0.3", "methods.0.outer.name='slowmo'"}},
    {{method("'overlapped-diloco',period={rule='constant',steps=4},outer={name='plain'}")},
     {"methods.0.outer.rate=0.5"}},
    {{method("'streaming-diloco',fragments=2,period={rule='constant',steps=4},outer={name='diloco',rate=0.7,momentum=0."
             "5}")},
     {"methods.0.fragments=3", "methods.0.delay=1", "methods.0.mixing=0.5", "methods.0.outer.rate=0.5",
      "methods.0.outer.momentum=0.3", "methods.0.outer.name='slowmo'"}},
    {{method("'streaming-diloco',fragments=2,period={rule='constant',steps=4},outer={name='slowmo',momentum=0.5}")},
     {"methods.0.outer.rate=0.5", "methods.0.outer.momentum=0.3"}},
    {{method("'streaming-diloco',fragments=2,period={rule='constant',steps=4},outer={name='plain'}")},
     {"methods.0.outer.rate=0.5"}},
    {{method("'hierarchical-sgd',group_size=2,group_period=2,period={rule='constant',steps=4}")},
     {"methods.0.group_size=3", "methods.0.group_period=1"}},
    {{method("'dropcompute-local-sgd',threshold_s=0.2,period={rule='constant',steps=4}")},
     {"methods.0.threshold_s=0.15", "methods.0.clock='step'", "methods.0.weights='steps'"}},
    {{method("'dropcompute-local-sgd',threshold_s=0.06,clock='step',period={rule='constant',steps=4}")},
     {"methods.0.weights='steps'", "methods.0.clock='period'"}},
    {{method("'branch-train-merge'")}, {"methods.0.seed_steps=4", "methods.0.merge='ensemble'"}},
    {{method("'dynamic-averaging',threshold=0.01,check_every=2")},
     {"methods.0.threshold=0.05", "methods.0.check_every=3", "methods.0.checks='gathered'"}},
    {{method("'dynamic-averaging',threshold=0.01,check_every=2,checks='gathered'")},
     {"methods.0.threshold=0.05", "methods.0.check_every=3", "methods.0.checks='own'"}},
    {{method("'elastic-averaging',beta=0.5,period=2")},
     {"methods.0.beta=0.8", "methods.0.period=3", "methods.0.momentum=0.5", "methods.0.exchange='asynchronous'"}},
    {{method("'elastic-averaging',beta=0.5,period=2,exchange='asynchronous'")},
     {"methods.0.beta=0.8", "methods.0.period=3", "methods.0.momentum=0.5"}},
};

// 8 workers, on whose graphs as many are neighbours as may be.
std::vector<KeyCase> graphs() {
  std::vector<KeyCase> cases;
  for (const std::string name : {"'decentralized-sgd'", "'stochastic-gradient-push'"}) {
    const auto on = [&](const std::string& graph) {
      return std::vector<std::string>{"cluster.workers=8", "cluster.worker_factors=[1,1.3,1.1,1.8,1,1.2,1.4,1]",
                                      method(name + ",graph={kind=" + graph + "}")};
    };
    std::vector<std::string> kinds;
    for (const char* kind : {"torus", "hypercube", "exponential", "one-peer-exponential", "complete"})
      kinds.push_back(fmt::format("methods.0.graph.kind='{}'", kind));
    cases.push_back({on("'ring'"), kinds});
    cases.push_back(
        {on("'complete'"), {"methods.0.graph.kind='ring'", "methods.0.graph={kind='file',file='$/ring.csv'}"}});
    cases.push_back({on("'torus',rows=2"), {"methods.0.graph.rows=4"}});
    cases.push_back({on("'file',file='$/ring.csv'"),
                     {"methods.0.graph.file='$/shuffled.csv'", "methods.0.graph.weights='given'",
                      "methods.0.graph.directed=true"}});
    cases.push_back({on("'file',file='$/wheel.csv',weights='metropolis'"), {"methods.0.graph.weights='given'"}});
    cases.push_back({on("'file',file='$/ring.csv',weights='given'"), {"methods.0.graph.weights='degree'"}});
  }
  const auto in_pairs = [&](const std::string& keys) {
    return std::vector<std::string>{"cluster.workers=8", "cluster.worker_factors=[1,1.3,1.1,1.8,1,1.2,1.4,1]",
                                    method("'ad-psgd'" + keys)};
  };
  cases.push_back({in_pairs(""),
                   {"methods.0.overlap_steps=0", "methods.0.evaluated='own'", "methods.0.graph={kind='ring'}",
                    "methods.0.graph={kind='file',file='$/shuffled.csv'}"}});
  cases.push_back({in_pairs(",evaluated='own'"), {"methods.0.evaluated='average'"}});
  cases.push_back({in_pairs(",overlap_steps=0"), {"methods.0.overlap_steps=1"}});
  cases.push_back(
      {in_pairs(",graph={kind='ring'}"), {"methods.0.graph.kind='torus'", "methods.0.graph.kind='hypercube'"}});
  cases.push_back({in_pairs(",graph={kind='hypercube'}"), {"methods.0.graph.kind='ring'"}});
  cases.push_back({in_pairs(",graph={kind='torus'}"), {"methods.0.graph.rows=4"}});
  cases.push_back({in_pairs(",graph={kind='file',file='$/ring.csv'}"), {"methods.0.graph.file='$/shuffled.csv'"}});
  cases.push_back({{"cluster.workers=8", "cluster.worker_factors=[1,1.3,1.1,1.8,1,1.2,1.4,1]",
                    method("'stochastic-gradient-push',graph={kind='file',file='$/wheel.csv'}")},
                   {"methods.0.graph.weights='metropolis'"}});
  return cases;
}

// A ring of 8 in one direction, with weights, through the workers in steps of so many; and with three spokes more.
std::string links_in_steps_of(int hop, bool has_spokes = false) {
  std::string text = "from,to,weight\n";
  for (int i = 0; i < 8; ++i) text += fmt::format("{},{},0.125\n", i * hop % 8, (i + 1) * hop % 8);
  for (int i = 2; has_spokes && i < 5; ++i) text += fmt::format("0,{},0.0625\n", i);
  return text;
}

const std::vector<KeyCase> gossip_and_codes = {
    {{method("'decentralized-sgd'")}, {"methods.0.algorithm='stochastic-gradient-push'", "methods.0.evaluated='own'"}},
    {{method("'decentralized-sgd',evaluated='own'")}, {"methods.0.evaluated='average'"}},
    {{method("'wagma-sgd',group_size=2,global_every=6")},
     {"methods.0.group_size=4", "methods.0.global_every=4", "methods.0.divisor='released'",
      "methods.0.order='average-first'", "methods.0.evaluated='own'"}},
    {{method("'stochastic-gradient-push'")}, {"methods.0.overlap_steps=1", "methods.0.evaluated='own'"}},
    {{method("'stochastic-gradient-push',overlap_steps=3")},
     {"methods.0.overlap_steps=2", "methods.0.overlap='released'"}},
    {{method("'stochastic-gradient-push',overlap_steps=3,overlap='released'")},
     {"methods.0.overlap_steps=1", "methods.0.overlap='paper'"}},
    {{method("'gradient-coding',code='fractional',stragglers=1")},
     {"methods.0.stragglers=3", "methods.0.late='cancel'", "methods.0.code='cyclic'",
      "methods.0.code='ignore-stragglers'"}},
    {{method("'gradient-coding',code='cyclic',stragglers=1")}, {"methods.0.stragglers=2", "methods.0.late='cancel'"}},
    {{method("'gradient-coding',code='ignore-stragglers',stragglers=1")},
     {"methods.0.stragglers=2", "methods.0.late='cancel'"}},
    {{method("'gradient-coding',code='stochastic',copies=2,stragglers=1")},
     {"methods.0.copies=3", "methods.0.stragglers=2", "methods.0.straggler_share=0.4", "methods.0.late='cancel'",
      "methods.0.placement='balanced'", "methods.0.code_seed=2"}},
    {{method("'gradient-coding',code='stochastic',copies=2,threshold_s=0.1,straggler_share=0.2")},
     {"methods.0.threshold_s=0.08"}},
};

// What a number was solved for, of all rules that have one.
const std::vector<std::string>& told() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> all;
    for (const char* method :
         {"local-sgd", "outer-local-sgd", "palsgd", "edit", "hierarchical-sgd", "dropcompute-local-sgd", "cocod-sgd",
          "overlap-local-sgd", "co2", "overlapped-diloco", "streaming-diloco"})
      for (const char* rule : {"constant", "power", "post-local"})
        for (const char* key : {"share", "rounds", "found"})
          all.push_back(fmt::format("methods[{}].period[{}].solved_for.{}", method, rule, key));
    return all;
  }();
  return names;
}

std::vector<IdleKey> idle_keys() {
  std::vector<IdleKey> keys = {
      {"methods.label", IdleKey::Hash::differs, "names the method in tables"},
      {"methods[decentralized-sgd].graph[file].file_hash", IdleKey::Hash::differs, "refuses a file of other content"},
      {"methods[stochastic-gradient-push].graph[file].file_hash", IdleKey::Hash::differs, "the same"},
      {"methods[ad-psgd].graph[file].file_hash", IdleKey::Hash::differs, "the same"},
      {"methods[gradient-coding][cyclic].code_seed", IdleKey::Hash::differs,
       "another code of the same sum, which differs by what is rounded away"},
  };
  for (const std::string& key : told())
    keys.push_back({key, IdleKey::Hash::same, "the number that was found decides, and it is in the hash"});
  return keys;
}

TEST_F(KeyWalk, OfMethods) {
  write_images("images", 3);
  write("ring.csv", links_in_steps_of(1));
  write("shuffled.csv", links_in_steps_of(3));
  write("wheel.csv", links_in_steps_of(1, true));
  for (const auto& cases :
       {synchronous, compressed, more_compressed(), messages, averages, moments, old_gradients, thresholds, quorums,
        asynchronous, periods(), policies(), local, gossip_and_codes, graphs()})
    walk(compared, cases, idle_keys());
  expect_completeness({"methods"});
  expect_results_by_version(SYNCOPATE_SOURCE_DIR, "tests/golden/results_by_version/methods.json");
}

}  // namespace
}  // namespace syncopate
