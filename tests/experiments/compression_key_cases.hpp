// Keys of the table `compression`, for everything that can be compressed.
#pragma once

#include <string>
#include <vector>

#include "tests/experiments/key_cases.hpp"

namespace syncopate {

// A model with matrices of 16 x 12 and 10 x 16. With least_rate = 2, powersgd compresses both, with 6.5 only one.
inline const std::vector<std::string> of_matrices = {"training.model='mlp'", "models.mlp.hidden=[16]",
                                                     "datasets.gaussian-mixture.dimension=12",
                                                     "datasets.gaussian-mixture.classes=10"};

inline KeyCase of_compression(const std::string& keys, std::vector<std::string> changes,
                              const std::string& algorithm = "'sync-sgd'") {
  KeyCase result{{method(algorithm + ",compression={" + keys + "}")}, {}};
  result.given.insert(result.given.end(), of_matrices.begin(), of_matrices.end());
  for (const std::string& change : changes) result.changes.push_back("methods.0.compression." + change);
  return result;
}

// Coefficients of a transform are often equal up to rounding. Then rounding decides which of them are sent, and the
// signs of small values. So results differ between processors, and more so after more steps.
inline KeyCase in_few_steps(const std::string& keys, const std::vector<std::string>& changes,
                            const std::string& algorithm = "'sync-sgd'") {
  KeyCase result = of_compression(keys, changes, algorithm);
  result.given.push_back("budget.steps=4");
  return result;
}

inline KeyCase of_averages(const std::string& keys, const std::vector<std::string>& changes) {
  return of_compression(keys, changes, "'local-sgd',period={rule='constant',steps=2}");
}

inline const std::vector<KeyCase> compressed = {
    of_compression("name='int8',error_feedback=true",
                   {"range_std=1", "scope='tensor'", "exchange='two-phase'", "error_feedback=false", "residual='step'",
                    "residual_decay=0.5"}),
    of_compression("name='fp4',error_feedback=true", {"bucket=16", "rounding='random'", "exchange='two-phase'",
                                                      "error_feedback=false", "residual='step'", "residual_decay=0.5"}),
    of_compression("name='bins'", {"bins=16", "range_std=1", "scope='model'", "exchange='two-phase'",
                                   "error_feedback=false", "residual_decay=0.5", "residual='step'"}),
    of_compression("name='tiles',tile=4,kept=3",
                   {"tile=2", "kept=5", "mean_of='all'", "packing='published'", "values='float'",
                    "clip_to_median=false", "error_feedback=false", "residual_decay=0.5", "residual='step'"}),
    in_few_steps("name='demo',tile=4,kept=3,transform=false",
                 {"tile=2", "kept=5", "packing='published'", "transform=true", "signs=false", "error_feedback=false",
                  "residual_decay=0.5", "residual='gradient'"}),
    in_few_steps("name='demo',tile=4,kept=3,transform=false,signs=false", {"mean_of='all'"}),
    of_averages("name='bins'", {"bins=16", "range_std=1", "scope='model'", "exchange='two-phase'",
                                "error_feedback=false", "residual_decay=0.5"}),
    of_averages("name='tiles',tile=4,kept=3",
                {"tile=2", "kept=5", "mean_of='all'", "packing='published'", "values='float'", "clip_to_median=false",
                 "error_feedback=false", "residual_decay=0.5"}),
    of_compression("name='sparse-rows',tables=['weight']", {"tables=['linear1']", "exchange='dense'"}),
    of_averages("name='top-k',ratio=0.2", {"name='random-k'", "ratio=0.5", "scope='tensor'", "error_feedback=false"}),
    of_averages("name='random-k',ratio=0.2", {"ratio=0.5", "error_feedback=false"}),
    of_averages("name='sign'", {"scope='tensor'", "exchange='two-phase'", "error_feedback=false"}),
    of_averages("name='qsgd',levels=7", {"levels=3", "bucket=16", "exchange='two-phase'"}),
    of_averages("name='int8'", {"range_std=1", "scope='tensor'", "exchange='two-phase'", "error_feedback=true"}),
    of_averages("name='fp4'", {"bucket=16", "rounding='random'", "exchange='two-phase'", "error_feedback=true"}),
    of_compression("name='top-k',ratio=0.2", {"name='random-k'", "ratio=0.5", "scope='tensor'", "error_feedback=false",
                                              "residual='step'", "residual_decay=0.5"}),
    of_compression("name='dgc',ratio=0.2", {"ratio=0.5", "scope='tensor'", "momentum=0.5", "masking=false",
                                            "dense_vectors=true", "nesterov=true", "clip=0.1"}),
    of_compression("name='dgc',ratio=0.2,clip=0.1",
                   {"clip=0.2", "clip_by='tensor-norm'", "clip_by='value'", "clip_scaling='1/sqrt(N)'"}),
    of_compression("name='dgc',ratio=0.2,clip=0.1,clip_by='value',clip_scaling='1/sqrt(N)'",
                   {"clip_by='norm'", "clip_scaling='none'"}),
    of_compression("name='one-bit',threshold='mean'", {"threshold='zero'"}),
    of_compression("name='scalecom',ratio=0.2", {"ratio=0.5", "scope='tensor'", "filter=0.5", "error_feedback=false",
                                                 "residual='step'", "residual_decay=0.5"}),
    of_compression("name='one-bit'", {"scope='tensor'", "scope='model'", "exchange='two-phase'", "error_feedback=false",
                                      "residual='step'", "threshold='mean'", "residual_decay=0.5"}),
    of_compression("name='random-k',ratio=0.2",
                   {"ratio=0.5", "error_feedback=false", "residual='step'", "residual_decay=0.5"}),
    of_compression("name='sign'", {"scope='tensor'", "exchange='two-phase'", "error_feedback=false", "residual='step'",
                                   "residual_decay=0.5"}),
    of_compression("name='majority'", {"momentum=0.9", "zeros='abstain'"}),
    of_compression("name='majority',zeros='abstain'", {"zeros='plus'"}),
    of_compression("name='qsgd',levels=7", {"levels=3", "bucket=16", "exchange='two-phase'"}),
    of_compression("name='powersgd',rank=1",
                   {"rank=2", "least_rate=6.5", "warm_start=false", "error_feedback=false", "residual='step'",
                    "removed='mean'", "factors='in-turn'", "residual_decay=0.5"}),
    of_compression("name='powersgd',rank=1,factors='in-turn'", {"rank=2", "removed='mean'", "factors='both'"}),
};

// Keys of all compressions that select values, and of compressions with error feedback in a method that omits batches.
inline std::vector<KeyCase> more_compressed() {
  std::vector<KeyCase> cases;
  for (const char* name : {"top-k", "dgc", "random-k", "scalecom"}) {
    const std::string keys = std::string("name='") + name + "',ratio=0.2,warmup_ratios=[0.9,0.5],";
    cases.push_back(of_compression(keys + "warmup_steps=6", {"warmup_ratios=[0.5]", "warmup_steps=3"}));
    cases.push_back(of_compression(keys + "warmup_epochs=1", {"warmup_epochs=0.5"}));
  }
  for (const char* keys :
       {"name='top-k',ratio=0.2", "name='dgc',ratio=0.2", "name='random-k',ratio=0.2", "name='scalecom',ratio=0.2",
        "name='sign'", "name='one-bit'", "name='powersgd',rank=1", "name='int8',error_feedback=true",
        "name='fp4',error_feedback=true", "name='bins'", "name='tiles',tile=4,kept=3"})
    cases.push_back(of_compression(keys, {"dropped='fold'"}, "'random-drop',drop_rate=0.3,from_step=0"));
  for (const std::string keys :
       {"name='top-k',ratio=0.2", "name='random-k',ratio=0.2", "name='scalecom',ratio=0.2", "name='sign'",
        "name='one-bit'", "name='powersgd',rank=1", "name='int8',error_feedback=true", "name='fp4',error_feedback=true",
        "name='bins'", "name='tiles',tile=4,kept=3,mean_of='all',clip_to_median=false"})
    cases.push_back(of_compression(keys + ",feedback='ef21'", {"momentum=0.5", "feedback='residual'"}));
  cases.push_back(in_few_steps("name='demo',tile=4,kept=3,transform=false", {"dropped='fold'"},
                               "'random-drop',drop_rate=0.5,from_step=0"));
  return cases;
}

// Compressed messages to a server that applies gradients one by one and drops those that are too stale.
inline KeyCase of_messages(const std::string& keys, const std::vector<std::string>& changes,
                           const std::string& algorithm = "'async-sgd',maximum_staleness=2") {
  return of_compression(keys, changes, algorithm);
}
inline const std::vector<KeyCase> messages = {
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
    of_messages("name='top-k',ratio=0.2", {"ratio=0.5", "error_feedback=false", "rejected='return'"},
                "'stsyn',quorum=3,local_steps=2,leaves_out_most=true"),
    of_messages("name='top-k',ratio=0.2", {"ratio=0.5", "error_feedback=false"},
                "'elastic-averaging',exchange='asynchronous',beta=0.8,period=2"),
    of_messages("name='top-k',ratio=0.2", {"ratio=0.5", "error_feedback=false", "rejected='return'"},
                "'decoupled-diloco',anchor='base',quorum=2,fragments=2,outer={name='diloco',rate=0.7,momentum=0.5}"),
};

// Compressed averages of fragments, in rounds with pulls towards a stale average, and in rounds that depend on losses.
inline const std::vector<KeyCase> averages = {
    of_compression("name='top-k',ratio=0.2", {"ratio=0.5", "error_feedback=false"},
                   "'streaming-diloco',fragments=2,period={rule='constant',steps=4},outer={name='plain'}"),
    of_compression("name='fp4'", {"bucket=16", "rounding='random'", "error_feedback=true"},
                   "'streaming-diloco',fragments=2,period={rule='constant',steps=4},outer={name='plain'}"),
    of_compression("name='int8'", {"range_std=1", "scope='tensor'", "error_feedback=true"},
                   "'palsgd',period={rule='constant',steps=4},outer={name='plain'}"),
    of_compression("name='sign'", {"scope='tensor'", "error_feedback=false"}, "'adacomm',initial_period=3"),
};

// 1-bit Adam freezes Adam's second moment, here already after 3 steps. So runs diverge unless the learning rate is
// small, and losses of diverging runs differ between BLAS kernels.
inline KeyCase of_moments(const std::string& compression, const std::vector<std::string>& changes) {
  KeyCase result = of_compression(compression, changes, "'one-bit-adam',freeze_step=3");
  result.given.insert(result.given.end(),
                      {"training.optimizer={name='adam',bias_correction=false}", "training.learning_rate.peak=0.0005"});
  return result;
}
inline const std::vector<KeyCase> moments = {
    of_moments("name='sign'",
               {"scale='l1'", "scope='tensor'", "exchange='gather'", "error_feedback=false", "name='none'"}),
    of_moments("name='top-k',ratio=0.2", {"ratio=0.5", "scope='tensor'", "error_feedback=false"}),
    of_moments("name='random-k',ratio=0.2", {"ratio=0.5", "error_feedback=false"}),
    of_moments("name='qsgd',levels=7", {"levels=3", "bucket=16", "exchange='two-phase'"}),
    of_moments("name='int8'", {"range_std=1", "scope='tensor'", "exchange='two-phase'", "error_feedback=true"}),
    of_moments("name='fp4'", {"bucket=16", "rounding='random'", "exchange='two-phase'", "error_feedback=true"}),
    {{method("'one-bit-adam',freeze_step=3"), "training.optimizer={name='adam',bias_correction=false}",
      "training.learning_rate.peak=0.0005"},
     {"methods.0.freeze_step=5"}},
};

}  // namespace syncopate
