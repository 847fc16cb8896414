// Keys of methods with thresholds, quorums and servers.
#pragma once

#include <string>
#include <vector>

#include "tests/experiments/key_cases.hpp"

namespace syncopate {

inline const std::vector<KeyCase> old_gradients = {
    {{method("'stale-sgd',staleness=3")},
     {"methods.0.staleness=2", "methods.0.spread=2", "methods.0.ramp_epochs=1", "methods.0.ramp_steps=2"}},
};

inline const std::vector<KeyCase> thresholds = {
    {{method("'dropcompute',threshold={rule='fixed',threshold_s=0.05}")}, {"methods.0.threshold.threshold_s=0.04"}},
    {{method("'dropcompute',threshold={rule='automatic',warmup_steps=1,calibration_steps=8}")},
     {"methods.0.threshold.warmup_steps=4", "methods.0.threshold.calibration_steps=3",
      "methods.0.threshold.search='s-eff'", "methods.0.threshold.search='reference'",
      "methods.0.threshold.maximum_drop_rate=0.02"}},
    // A micro-batch's time on the clock "step" includes trailing work, and on the clock "micro-batch" it does not.
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

inline const std::vector<KeyCase> quorums = {
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
    {{method("'mindflayer',limit_s=0.025,arrival_probability=0.7")},
     {"methods.0.trials_per_worker=2", "methods.0.limit_s=0.022", "methods.0.arrival_probability=0.5",
      "methods.0.groups=[{workers=[1],trials_per_worker=2}]",
      "methods.0={algorithm='mindflayer',rule='clipping-rennala',trials=5,limit_s=0.025}"}},
    {{method("'mindflayer',limit_s=0.025,arrival_probability=0.7,groups=[{workers=[1],trials_per_worker=2,"
             "limit_s=0.03,arrival_probability=0.8}]")},
     {"methods.0.groups.0.workers=[2]", "methods.0.groups.0.trials_per_worker=3", "methods.0.groups.0.limit_s=0.02",
      "methods.0.groups.0.arrival_probability=0.4"}},
    {{method("'mindflayer',rule='clipping-rennala',trials=5,limit_s=0.025")},
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

inline const std::vector<KeyCase> asynchronous = {
    {{method("'async-sgd'")},
     {"methods.0.maximum_staleness=2", "methods.0.maximum_age_s=0.06", "methods.0.staleness_weight='1/tau'",
      "methods.0.staleness_weight='1/(tau+1)'", "methods.0.staleness_weight='N/max(N,tau)'",
      "methods.0.rate_scaling='none'"}},
    {{method("'softsync',splitting=2")},
     {"methods.0.splitting=3", "methods.0.staleness_weight='1/tau'", "methods.0.staleness_weight='1/(tau+1)'",
      "methods.0.staleness_weight='N/max(N,tau)'", "methods.0.rate_scaling='none'"}},
    {{method("'k-async',gradients=2")},
     {"methods.0.gradients=3", "methods.0.staleness_weight='1/tau'", "methods.0.staleness_weight='1/(tau+1)'",
      "methods.0.staleness_weight='N/max(N,tau)'", "methods.0.rate_scaling='none'"}},
    {{method("'k-batch-async',gradients=2")},
     {"methods.0.gradients=5", "methods.0.staleness_weight='1/tau'", "methods.0.staleness_weight='1/(tau+1)'",
      "methods.0.staleness_weight='N/max(N,tau)'", "methods.0.rate_scaling='none'"}},
    {{method("'ringmaster',delay_threshold=3")},
     {"methods.0.delay_threshold=2", "methods.0.late='finish'", "methods.0.staleness_weight='1/tau'",
      "methods.0.staleness_weight='1/(tau+1)'", "methods.0.staleness_weight='N/max(N,tau)'",
      "methods.0.rate_scaling='none'"}},
    {{method("'throttle',divisor=2")}, {"methods.0.divisor=3", "methods.0.repeats='alone'"}},
    {{method("'stale-synchronous',slack=1")},
     {"methods.0.slack=0", "methods.0.staleness_weight='1/tau'", "methods.0.staleness_weight='1/(tau+1)'",
      "methods.0.staleness_weight='N/max(N,tau)'", "methods.0.rate_scaling='none'"}},
    {{method("'bounded-delay',maximum_delay=2")}, {"methods.0.maximum_delay=1"}},
    {{method("'sliding-window',maximum_delay=2")},
     {"methods.0.maximum_delay=1", "methods.0.staleness_weight='1/tau'", "methods.0.staleness_weight='1/(tau+1)'",
      "methods.0.staleness_weight='N/max(N,tau)'", "methods.0.rate_scaling='none'"}},
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
    {{method("'async-local-sgd',local_steps=4,update={name='look-ahead',rate=0.3,momentum=0.5}")},
     {"methods.0.update.rate=0.2", "methods.0.update.momentum=0.3"}},
    {{method("'ringleader'")}, {"methods.0.rate_scaling='none'"}},
    {{method("'rescaled-sgd'")}, {"methods.0.rate_scaling='none'", "methods.0.cycle_s=[1,2,3,4]"}},
    {{method("'async-local-sgd',local_steps=4,update={name='delayed-nesterov',rate=0.6,momentum=0.5,every=2}")},
     {"methods.0.update.rate=0.4", "methods.0.update.momentum=0.3", "methods.0.update.every=3",
      "methods.0.update.share=0.3"}},
    {{method("'async-local-sgd',local_steps=4,staleness_exponent=0.5,update={name='plain',rate=0.5}")},
     {"methods.0.average_staleness=2"}},
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
    {{method("'halos',regions=2,local_steps=2,merge_every=2,mixing=0.5,local_update={name='look-ahead',rate=0.5,"
             "momentum=0.5},global_update={name='look-ahead',rate=0.8,momentum=0.3}")},
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
      "methods.0.merge='mean'", "methods.0.late='count'", "methods.0.grace={margin=0.9,initial_s=0.1}"}},
    {{"training.model='text-transformer'", "models.text-transformer={width=4,depth=1,heads=2,mlp_width=3,positions=8}",
      "training.dataset='npy'", "datasets.npy={directory='$/texts',padding=0}",
      method("'decoupled-diloco',quorum=3,outer={name='plain'}")},
     {"methods.0.merge='rda-of-all'"}},
    {{method("'decoupled-diloco',quorum=1,late='count',outer={name='plain',rate=0.5}")},
     {"methods.0.anchor='base'", "methods.0.outer.rate=0.8"}},
    {{method("'decoupled-diloco',quorum=1,fragments=2,grace={margin=0.2,overlap_steps=3,initial_s=0.02},outer={name='"
             "plain'}")},
     {"methods.0.grace.margin=0.6", "methods.0.grace.overlap_steps=6", "methods.0.grace.averaging=1",
      "methods.0.grace.initial_s=0.1", "methods.0.grace.longest_s=0.01"}},
    {{method("'decoupled-diloco',quorum=2,local_steps=4,outer={name='slowmo',momentum=0.5}")},
     {"methods.0.local_steps=2"}},
};

}  // namespace syncopate
