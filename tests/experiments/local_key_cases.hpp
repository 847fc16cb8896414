// Keys of methods that take local steps.
#pragma once

#include <string>
#include <vector>

#include "tests/experiments/key_cases.hpp"

namespace syncopate {

// Methods that average periodically, with the keys that they need besides the period.
inline const std::vector<std::string> periodic = {"'local-sgd'",
                                                  "'rounds'",
                                                  "'outer-local-sgd',outer={name='plain'}",
                                                  "'diloco'",
                                                  "'palsgd',outer={name='plain'}",
                                                  "'fedprox'",
                                                  "'scaffold'",
                                                  "'edit',outer={name='plain'}",
                                                  "'hierarchical-sgd',group_size=2,group_period=1",
                                                  "'dropcompute-local-sgd',threshold_s=0.3"};
// Methods with averages that arrive one round late. These do not average the optimizer's moments.
inline const std::vector<std::string> overlapped = {"'cocod-sgd'", "'overlap-local-sgd',mixing=0.5", "'co2'",
                                                    "'overlapped-diloco',outer={name='plain'}",
                                                    "'streaming-diloco',fragments=2,outer={name='plain'}"};

inline std::vector<KeyCase> periods() {
  std::vector<KeyCase> cases;
  std::vector<std::string> methods = periodic;
  methods.insert(methods.end(), overlapped.begin(), overlapped.end());
  methods.push_back("'fednova'");
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
    cases.push_back({{with("rule='constant',steps={rounds=6}")},  // a run has 24 steps
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

// These methods accept only SGD, with one moment at most.
inline bool needs_sgd(const std::string& keys) {
  return keys.starts_with("'fednova'") || keys.starts_with("'scaffold'");
}

// A model with batch normalisation, and an optimizer with as many moments as possible, so that all policies for them
// apply.
inline std::vector<std::string> with_moments_and_statistics(const std::string& keys) {
  return {"training.model='cnn'",
          "models.cnn={channels=[2],kernel=3,dense=3,batch_norm=true}",
          "training.dataset='fashion-mnist'",
          "datasets.fashion-mnist.directory='$/images'",
          needs_sgd(keys) ? "training.optimizer={name='sgd',momentum=0.9}" : "training.optimizer={name='adamw'}",
          "training.learning_rate.peak=0.0005",
          "budget.steps=8",
          method(keys)};
}

inline std::vector<KeyCase> policies() {
  std::vector<KeyCase> cases;
  std::vector<std::string> methods = {"'dynamic-averaging',threshold=0.0001,check_every=2,checks='gathered'",
                                      "'adacomm',initial_period=3"};
  for (const std::string& keys : periodic) methods.push_back(keys + ",period={rule='constant',steps=3}");
  const std::vector<std::string> statistics = {"methods.0.buffers='keep'", "methods.0.buffers='reset'",
                                               "methods.0.buffers='recalibrate'"};
  for (const std::string& keys : methods) {
    std::vector<std::string> all = {"methods.0.moments='average'", "methods.0.moments='reset'",
                                    "methods.0.first_moment='average'", "methods.0.first_moment='reset'"};
    std::vector<std::string> kept = {"methods.0.first_moment='keep'"};
    if (!needs_sgd(keys)) {
      all.insert(all.end(), {"methods.0.second_moment='average'", "methods.0.second_moment='reset'"});
      kept.emplace_back("methods.0.second_moment='keep'");
    }
    all.insert(all.end(), statistics.begin(), statistics.end());
    cases.push_back({with_moments_and_statistics(keys), all});
    cases.push_back({with_moments_and_statistics(keys + ",moments='reset'"), kept});
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
  const std::string fednova = "'fednova',period={rule='constant',steps=3}";
  cases.push_back({with_moments_and_statistics(fednova), statistics});
  cases.push_back({with_moments_and_statistics(fednova + ",buffers='recalibrate'"),
                   {"methods.0.recalibration_micro_batches=4", "methods.0.buffers='average'"}});
  const std::string groups = "'post-local-sgd',start=2,period=3,group_size=2";
  cases.push_back({with_moments_and_statistics(groups), statistics});
  cases.push_back({with_moments_and_statistics(groups + ",buffers='recalibrate'"),
                   {"methods.0.recalibration_micro_batches=4", "methods.0.buffers='average'"}});
  cases.push_back({with_moments_and_statistics("'branch-train-merge'"), statistics});
  cases.push_back({with_moments_and_statistics("'branch-train-merge',buffers='recalibrate'"),
                   {"methods.0.recalibration_micro_batches=4", "methods.0.buffers='average'"}});
  return cases;
}

// Averages weighted by samples. Workers have unequal numbers of samples.
inline std::vector<KeyCase> model_weights() {
  std::vector<KeyCase> cases;
  std::vector<std::string> methods = {"'adacomm',initial_period=3", "'des-loc',period=3", "'branch-train-merge'",
                                      "'fednova',period={rule='constant',steps=3}"};
  for (const auto* family : {&periodic, &overlapped})
    for (const std::string& keys : *family) {
      if (keys.starts_with("'edit'") || keys == "'scaffold'") continue;  // other weights, or none
      const bool is_eager = keys.starts_with("'overlapped-diloco'");
      methods.push_back(keys + (is_eager ? ",update='delayed'" : "") + ",period={rule='constant',steps=3}");
    }
  for (const std::string& keys : methods)
    cases.push_back({{"training.partition={kind='size',alpha=5.0}", method(keys)}, {"methods.0.weights='samples'"}});
  return cases;
}

inline std::vector<KeyCase> outer_steps() {
  std::vector<KeyCase> cases;
  for (const char* keys :
       {"'outer-local-sgd',period={rule='constant',steps=4}", "'palsgd',period={rule='constant',steps=4}",
        "'edit',period={rule='constant',steps=4}", "'overlapped-diloco',period={rule='constant',steps=4}",
        "'streaming-diloco',fragments=2,period={rule='constant',steps=4}", "'rounds',period={rule='constant',steps=4}",
        "'decoupled-diloco',quorum=2,local_steps=4"}) {
    const auto with = [&](const char* outer) { return method(std::string(keys) + ",outer={" + outer + "}"); };
    cases.push_back({{with("name='plain'")}, {"methods.0.outer.rate=0.5"}});
    cases.push_back(
        {{with("name='slowmo',momentum=0.5")}, {"methods.0.outer.rate=0.5", "methods.0.outer.momentum=0.3"}});
    cases.push_back({{with("name='diloco',rate=0.7,momentum=0.5")},
                     {"methods.0.outer.rate=0.5", "methods.0.outer.momentum=0.3", "methods.0.outer.name='slowmo'",
                      "methods.0.outer.name='heavy-ball'"}});
    cases.push_back(
        {{with("name='heavy-ball',momentum=0.5")}, {"methods.0.outer.rate=0.5", "methods.0.outer.momentum=0.3"}});
    cases.push_back({{with("name='adagrad',rate=0.05")},
                     {"methods.0.outer.rate=0.02", "methods.0.outer.beta1=0.5", "methods.0.outer.tau=0.01"}});
    for (const char* name : {"name='adam',rate=0.05", "name='yogi',rate=0.05"})
      cases.push_back({{with(name)},
                       {"methods.0.outer.rate=0.02", "methods.0.outer.beta1=0.5", "methods.0.outer.beta2=0.8",
                        "methods.0.outer.tau=0.01"}});
  }
  return cases;
}

inline const std::vector<KeyCase> local = {
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
    {{method("'rounds',period={rule='constant',steps=4}")},
     {"methods.0.steps={kind='drop',threshold_s=0.2}", "methods.0.groups={size=2,period=1}",
      "methods.0.late={next='own-steps'}", "methods.0.outer={name='plain',rate=0.5}",
      "methods.0.local_phase={micro_batches=1}"}},
    {{method("'rounds',period={rule='loss',initial_period=8}")},
     {"methods.0.period.initial_period=6", "methods.0.period.formula='paddle'", "methods.0.period.follow_rate=true",
      "methods.0.period.minimum=7", "methods.0.period.maximum=3", "methods.0.period.interval_steps=12",
      "methods.0.period.interval_s=0.3"}},
    {{method("'rounds',period={rule='loss',initial_period=3,follow_rate=true,not_below='shrink'}")},
     {"methods.0.period.shrinkage=0.8", "methods.0.period.not_below='take'", "methods.0.period.not_below='keep'"}},
    {{method("'rounds',period={rule='loss',initial_period=30,formula='paddle'}")},
     {"methods.0.period.formula='adacomm'"}},
    {{method("'rounds',period={rule='per-moment',steps=3}"), "training.optimizer={name='adamw'}"},
     {"methods.0.period.steps=2", "methods.0.period.moment_periods='half-life'",
      "methods.0.period.moment_periods='never'", "methods.0.period.first_moment_period=5",
      "methods.0.period.second_moment_period=5"}},
    {{method("'rounds',period={rule='constant',steps=4},steps={kind='train'}")},
     {"methods.0.steps={kind='pull',probability=0.3}"}},
    {{method("'rounds',period={rule='constant',steps=4},steps={kind='drop',threshold_s=0.2}")},
     {"methods.0.steps.threshold_s=0.15", "methods.0.steps.clock='step'", "methods.0.weights='steps'",
      "methods.0.steps={kind='train'}"}},
    {{method("'rounds',period={rule='constant',steps=4},steps={kind='drop',threshold_s=0.06,clock='step'}")},
     {"methods.0.weights='steps'", "methods.0.steps.clock='period'"}},
    {{method("'rounds',period={rule='constant',steps=4},steps={kind='pull'}")},
     {"methods.0.steps.probability=0.4", "methods.0.steps.strength=0.1", "methods.0.steps.draws='shared'"}},
    {{method("'rounds',period={rule='constant',steps=4},groups={size=2,period=2}")},
     {"methods.0.groups.size=3", "methods.0.groups.period=1"}},
    {{method("'rounds',period={rule='constant',steps=4},late={next='outer-model'},outer={name='plain',rate=0.7}")},
     {"methods.0.late.averaged='outer-model'", "methods.0.late.next='eager'"}},
    {{method("'rounds',period={rule='constant',steps=4},late={next='anchor',mixing=0.5,momentum=0.5}")},
     {"methods.0.late.mixing=0.6", "methods.0.late.momentum=0.3", "methods.0.late.momentum_units='model'",
      "methods.0.late={next='own-steps'}"}},
    {{method("'rounds',period={rule='constant',steps=4},fragments=2,outer={name='plain',rate=0.7}")},
     {"methods.0.fragments=3", "methods.0.delay=1", "methods.0.mixing=0.5"}},
    {{method("'rounds',period={rule='swap',switch_step=4},local_phase={micro_batches=2,sampling='shards',peak=0.05,"
             "schedule='linear'}")},
     {"methods.0.local_phase.micro_batches=3", "methods.0.local_phase.sampling='own-order'",
      "methods.0.local_phase.peak=0.1", "methods.0.local_phase.schedule='cosine'",
      "methods.0.local_phase.schedule='constant'", "methods.0.local_phase.final=0.01"}},
    {{method("'rounds',period={rule='constant',steps=4},steps={kind='proximal'}")}, {"methods.0.steps.proximal=0.5"}},
    {{method("'diloco',period={rule='constant',steps=4}")}, {"methods.0.rate=0.5", "methods.0.momentum=0.5"}},
    {{method("'fedprox',period={rule='constant',steps=4}")},
     {"methods.0.proximal=0.5", "methods.0.steps_of_workers=[1,2,3,4]"}},
    {{method("'fednova',period={rule='constant',steps=4},steps_of_workers=[1,2,3,4]")},
     {"methods.0.proximal=0.5", "methods.0.steps_of_workers=[4,3,2,1]"}},
    {{method("'scaffold',period={rule='constant',steps=4}")}, {"methods.0.rate=0.5", "methods.0.control='gradient'"}},
    {{method("'palsgd',period={rule='constant',steps=4},outer={name='diloco',rate=0.7,momentum=0.5}")},
     {"methods.0.pull_probability=0.4", "methods.0.pull_strength=0.1", "methods.0.draws='shared'"}},
    {{method("'edit',period={rule='constant',steps=2},outer={name='diloco',rate=0.7,momentum=0.5},outlier_factor=0.85,"
             "outlier_warmup=4,outlier_smoothing=0.3,clip_norm=0.05")},
     {"methods.0.outlier_factor=5", "methods.0.outlier_warmup=6", "methods.0.outlier_smoothing=0.7",
      "methods.0.temperature=0.05", "methods.0.step_share=0.5", "methods.0.clip_norm=0.02", "methods.0.scope='model'",
      "methods.0.clip_scope='model'"}},
    {{method("'edit',sync_seconds=0.12,outer={name='plain'}")},
     {"methods.0.sync_seconds=0.08", "methods.0.counted_from='arrival'", "methods.0.minimum_steps=20",
      "methods.0.warmup_steps=4", "methods.0.step_share=0.5"}},
    {{method("'overlap-local-sgd',mixing=0.5,momentum=0.5,period={rule='constant',steps=4}")},
     {"methods.0.mixing=0.6", "methods.0.momentum=0.3", "methods.0.momentum_units='model'"}},
    {{method("'co2',period={rule='constant',steps=4}")},
     {"methods.0.rate=0.5", "methods.0.momentum=0.3", "methods.0.gap=2", "methods.0.anchor='outer-model'",
      "methods.0.rounds='blocking'"}},
    {{method("'overlapped-diloco',period={rule='constant',steps=4},outer={name='slowmo',momentum=0.5}")},
     {"methods.0.update='delayed'"}},
    {{method("'streaming-diloco',fragments=2,period={rule='constant',steps=4},outer={name='diloco',rate=0.7,momentum=0."
             "5}")},
     {"methods.0.fragments=3", "methods.0.delay=1", "methods.0.mixing=0.5"}},
    {{method("'hierarchical-sgd',group_size=2,group_period=2,period={rule='constant',steps=4}")},
     {"methods.0.group_size=3", "methods.0.group_period=1"}},
    {{method("'post-local-sgd',start=3,period=4,group_size=2")},
     {"methods.0.start=5", "methods.0.warmup=1", "methods.0.period=5", "methods.0.group_size=1",
      "methods.0.post_local_gradient_allreduce=false", "methods.0.levels=[{group_size=2,period=2}]"}},
    {{method("'post-local-sgd',start=3,period=6,group_size=1,levels=[{group_size=2,period=2}]")},
     {"methods.0.levels.0.group_size=3", "methods.0.levels.0.period=3"}},
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

}  // namespace syncopate
