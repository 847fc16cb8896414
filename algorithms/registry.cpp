#include "algorithms/registry.hpp"

#include "algorithms/asynchronous/async_local_sgd.hpp"
#include "algorithms/asynchronous/async_sgd.hpp"
#include "algorithms/asynchronous/bounded_delay.hpp"
#include "algorithms/asynchronous/halos.hpp"
#include "algorithms/asynchronous/heloco.hpp"
#include "algorithms/asynchronous/k_async.hpp"
#include "algorithms/asynchronous/ormo.hpp"
#include "algorithms/asynchronous/rescaled_sgd.hpp"
#include "algorithms/asynchronous/ringleader.hpp"
#include "algorithms/asynchronous/ringmaster.hpp"
#include "algorithms/asynchronous/sliding_window.hpp"
#include "algorithms/asynchronous/softsync.hpp"
#include "algorithms/asynchronous/stale_synchronous.hpp"
#include "algorithms/asynchronous/throttle.hpp"
#include "algorithms/gossip/ad_psgd.hpp"
#include "algorithms/gossip/decentralized_sgd.hpp"
#include "algorithms/gossip/noloco.hpp"
#include "algorithms/gossip/stochastic_gradient_push.hpp"
#include "algorithms/gossip/wagma_sgd.hpp"
#include "algorithms/gradient_coding/gradient_coding.hpp"
#include "algorithms/local_sgd/adacomm.hpp"
#include "algorithms/local_sgd/branch_train_merge.hpp"
#include "algorithms/local_sgd/co2.hpp"
#include "algorithms/local_sgd/cocod_sgd.hpp"
#include "algorithms/local_sgd/decoupled_diloco.hpp"
#include "algorithms/local_sgd/des_loc.hpp"
#include "algorithms/local_sgd/diloco.hpp"
#include "algorithms/local_sgd/dropcompute_local_sgd.hpp"
#include "algorithms/local_sgd/dynamic_averaging.hpp"
#include "algorithms/local_sgd/edit.hpp"
#include "algorithms/local_sgd/elastic_averaging.hpp"
#include "algorithms/local_sgd/fednova.hpp"
#include "algorithms/local_sgd/fedprox.hpp"
#include "algorithms/local_sgd/hierarchical_sgd.hpp"
#include "algorithms/local_sgd/local_rounds.hpp"
#include "algorithms/local_sgd/local_sgd.hpp"
#include "algorithms/local_sgd/outer_local_sgd.hpp"
#include "algorithms/local_sgd/overlap_local_sgd.hpp"
#include "algorithms/local_sgd/overlapped_diloco.hpp"
#include "algorithms/local_sgd/palsgd.hpp"
#include "algorithms/local_sgd/post_local_sgd.hpp"
#include "algorithms/local_sgd/scaffold.hpp"
#include "algorithms/local_sgd/streaming_diloco.hpp"
#include "algorithms/quorum/backup_all_reduce.hpp"
#include "algorithms/quorum/backup_timeout.hpp"
#include "algorithms/quorum/backup_tokens.hpp"
#include "algorithms/quorum/backup_workers.hpp"
#include "algorithms/quorum/dynamic_backup.hpp"
#include "algorithms/quorum/eager_sgd.hpp"
#include "algorithms/quorum/k_batch_sync.hpp"
#include "algorithms/quorum/malenia.hpp"
#include "algorithms/quorum/mindflayer.hpp"
#include "algorithms/quorum/stsyn.hpp"
#include "algorithms/synchronous/acco.hpp"
#include "algorithms/synchronous/delayed_update.hpp"
#include "algorithms/synchronous/drop_compute.hpp"
#include "algorithms/synchronous/one_bit_adam.hpp"
#include "algorithms/synchronous/random_drop.hpp"
#include "algorithms/synchronous/stale_sgd.hpp"
#include "algorithms/synchronous/sync_sgd.hpp"

namespace syncopate {

std::span<const AlgorithmRow> algorithms() {
  constexpr std::string_view three_steps = "period = { rule = \"constant\", steps = 3 }";
  static constexpr AlgorithmRow rows[] = {
      {"sync-sgd", "synchronous",
       "Synchronous SGD: all gradients are averaged at every step; the slowest worker sets the pace.",
       "Chen et al. 2016 (b = 0)", make_sync_sgd, "", "the common model"},
      {"dropcompute", "synchronous",
       "Synchronous SGD in which each worker stops accumulating micro-batches after a threshold.",
       "Giladi et al. 2023, Algorithm 1", make_drop_compute, "threshold_s = 2.5", "the common model"},
      {"random-drop", "synchronous",
       "Synchronous SGD that leaves out whole local batches at random, to show what dropping does to accuracy.",
       "Giladi et al. 2023, ResNet-50 study", make_random_drop, "drop_rate = 0.3", "the common model"},
      {"stale-sgd", "synchronous",
       "Synchronous SGD with gradients of an old model, to show what staleness alone does to accuracy.",
       "Chen et al. 2016, Figure 2", make_stale_sgd, "staleness = 3", "the common model"},
      {"acco", "synchronous",
       "Synchronous SGD that sums each half of a step's gradients while workers compute the other half (ACCO).",
       "Nabli et al. 2025 (ACCO)", make_acco, "", "the common model"},
      {"delayed-update", "synchronous",
       "Synchronous SGD that computes during each sum of gradients, at a model without this sum's step (DPU).",
       "the baseline of Nabli et al. 2025", make_delayed_update, "", "the common model"},
      {"one-bit-adam", "synchronous",
       "Adam that freezes its second moment after some steps, then exchanges compressed first moments (1-bit Adam).",
       "Tang et al. 2021 (1-bit Adam)", make_one_bit_adam, "freeze_step = 2", "the common model"},
      {"backup-workers", "quorum",
       "Synchronous SGD with a server that uses the first N of N + b gradients and drops the late ones.",
       "Chen et al. 2016, Algorithms 3 and 4", make_backup_workers, "backups = 1", "the server's model"},
      {"backup-tokens", "quorum",
       "Backup workers with TensorFlow's token queue: a worker may contribute several gradients to a step.",
       "TensorFlow, SyncReplicasOptimizer", make_backup_tokens, "backups = 1", "the server's model"},
      {"backup-all-reduce", "quorum",
       "Backup workers without a server: an all-reduce over the first N of N + b workers.", "after Chen et al. 2016",
       make_backup_all_reduce, "backups = 1", "worker 0's model"},
      {"backup-timeout", "quorum",
       "Synchronous SGD with a server that uses only the gradients that arrive within a time limit.",
       "after Chen et al. 2016", make_backup_timeout, "timeout_s = 2.5", "the server's model"},
      {"k-sync", "quorum", "A server steps along the first K workers' gradients, and cancels the others' work.",
       "Dutta et al. 2018", make_k_sync, "gradients = 2", "the server's model"},
      {"k-batch-sync", "quorum",
       "A server steps along the first K gradients of its newest version, from any workers (Rennala SGD).",
       "Dutta et al. 2018; Tyurin and Richtarik 2023", make_k_batch_sync, "gradients = 2", "the server's model"},
      {"malenia", "quorum",
       "A server steps along the mean of the workers' mean gradients once every worker has sent a gradient (Malenia).",
       "Tyurin and Richtarik 2023", make_malenia, "", "the server's model"},
      {"mindflayer", "quorum",
       "Each worker tries a fixed number of gradients per step, each with a time limit (MindFlayer).",
       "Maranjyan et al. 2025 (MindFlayer)", make_mindflayer, "limit_s = 2.5\narrival_probability = 0.8",
       "the server's model"},
      {"stsyn", "quorum",
       "Local SGD whose round ends when K workers have done U steps; the steps of all workers count.",
       "Zhu, Zhang, Wang 2024 (STSyn)", make_stsyn, "quorum = 2\nlocal_steps = 3", "the server's model"},
      {"dynamic-backup", "quorum",
       "Backup workers; a step waits for the number of gradients with the best expected gain per time (after DBW).",
       "after Xu, Neglia, Sebastianelli 2020", make_dynamic_backup, "", "the server's model"},
      {"eager-sgd", "quorum",
       "Synchronous SGD whose all-reduces wait only for the first worker (solo) or a random worker (majority).",
       "Li et al. 2020 (eager-SGD)", make_eager_sgd, "activation = \"solo\"", "worker 0's model"},
      {"async-sgd", "asynchronous",
       "A server steps along each gradient on arrival; gradients too stale (in steps) or old (in s) can be dropped.",
       "Chen et al. 2016, Algorithms 1 and 2", make_async_sgd, "", "the server's model"},
      {"softsync", "asynchronous",
       "A server steps along the mean of every floor(N / n) gradients (n-softsync), weighted by their staleness.",
       "Zhang et al. 2016 (staleness-aware)", make_softsync, "splitting = 2", "the server's model"},
      {"k-async", "asynchronous",
       "A server steps along the first K workers' gradients, however stale; late work continues.", "Dutta et al. 2018",
       make_k_async, "gradients = 2", "the server's model"},
      {"k-batch-async", "asynchronous",
       "A server steps along the mean of every K gradients, from any workers, however stale.", "Dutta et al. 2018",
       make_k_batch_async, "gradients = 2", "the server's model"},
      {"ringmaster", "asynchronous",
       "Asynchronous SGD that cancels a gradient once the model has had R updates since its start.",
       "Maranjyan et al. 2025", make_ringmaster, "delay_threshold = 3", "the server's model"},
      {"throttle", "asynchronous",
       "Asynchronous SGD in which a worker's first gradient of a round weighs more than its later ones (THROTTLE).",
       "Otsuka et al. (THROTTLE; source not found)", make_throttle, "divisor = 2", "the server's model"},
      {"stale-synchronous", "asynchronous",
       "Asynchronous SGD in which workers too far ahead of the slowest worker wait (SSP). Nothing is dropped.",
       "Ho et al. 2013", make_stale_synchronous, "slack = 1", "the server's model"},
      {"bounded-delay", "asynchronous",
       "A server steps once all workers have done an iteration; workers may be a few iterations ahead of this step.",
       "Li et al. 2014", make_bounded_delay, "maximum_delay = 2", "the server's model"},
      {"sliding-window", "asynchronous",
       "Asynchronous SGD that starts a gradient once all earlier gradients but the last few are applied.",
       "after Li et al. 2014", make_sliding_window, "maximum_delay = 2", "the server's model"},
      {"async-local-sgd", "asynchronous",
       "A server steps along the results of workers' local steps as they arrive; FedBuff, delayed Nesterov, DyLU.",
       "Liu et al. 2024; Nguyen et al. 2022", make_async_local_sgd,
       "local_steps = 4\nupdate = { name = \"plain\", rate = 0.5 }", "the server's model"},
      {"heloco", "asynchronous",
       "Asynchronous Local SGD; workers start ahead of the model, and momentum corrects their differences (HeLoCo).",
       "Al Asif et al. 2026 (HeLoCo)", make_heloco, "local_steps = 4", "the server's model, without the extrapolation"},
      {"halos", "asynchronous",
       "Asynchronous Local SGD with a server per region, which sends sums of steps to a global server (HALoS).",
       "Kim et al. 2025 (HALoS)", make_halos,
       "regions = 2\nlocal_steps = 2\nlocal_update = { name = \"plain\", rate = 0.5 }\nglobal_update = { name = "
       "\"plain\" }\nmerge_every = 2\nmixing = 0.5",
       "the global server's model"},
      {"ringleader", "asynchronous",
       "A server steps along the mean of the workers' mean gradients; every gradient counts (Ringleader).",
       "Maranjyan and Richtarik 2025 (Ringleader)", make_ringleader, "", "the server's model"},
      {"rescaled-sgd", "asynchronous",
       "Asynchronous SGD whose rate for a worker is proportional to the time of its gradients (Rescaled ASGD).",
       "Mahran, Maranjyan, Richtarik 2026", make_rescaled_sgd, "", "the server's model"},
      {"ormo", "asynchronous",
       "Asynchronous SGD whose momentum treats late gradients as if they had arrived in order (OrMo).",
       "Shi et al. 2024 (OrMo)", make_ormo, "momentum = 0.5", "the server's model"},
      {"local-sgd", "local SGD",
       "Workers take local steps and average their models every H steps: constant, post-local, power (QSR), SWAP.",
       "Lin et al. 2020; Gu et al. 2024; Gupta et al. 2020", make_local_sgd, three_steps,
       "the average at the end of each round"},
      {"adacomm", "local SGD", "Local SGD whose rounds become shorter as the training loss falls (AdaComm).",
       "Wang and Joshi 2019", make_adacomm, "initial_period = 3", "the average at the end of each round"},
      {"des-loc", "local SGD",
       "Local SGD in which the optimizer's moments are averaged less often than the parameters (DES-LOC).",
       "Iacob et al. 2026", make_des_loc, "period = 3", "the average of the parameters"},
      {"outer-local-sgd", "local SGD",
       "Local SGD in which an outer optimizer steps along the averages: plain, SlowMo, DiLoCo.",
       "Wang et al. 2020; Douillard et al. 2023", make_outer_local_sgd,
       "period = { rule = \"constant\", steps = 3 }\nouter = { name = \"slowmo\", momentum = 0.5 }",
       "the model after each outer step"},
      {"diloco", "local SGD",
       "Local SGD with an outer Nesterov step along the workers' mean progress (DiLoCo; with Muon, MuLoCo).",
       "Douillard et al. 2023 (DiLoCo)", make_diloco_rounds, three_steps, "the model after each outer step"},
      {"palsgd", "local SGD",
       "DiLoCo in which some local steps compute nothing and only pull the model towards the last outer model.",
       "Naganuma et al. 2025", make_palsgd,
       "period = { rule = \"constant\", steps = 3 }\nouter = { name = \"diloco\", rate = 0.7, momentum = 0.9 }",
       "the model after each outer step"},
      {"edit", "local SGD",
       "DiLoCo that weighs workers by norms and drops outliers; rounds end after steps (EDiT) or a time (A-EDiT).",
       "Cheng et al. 2025", make_edit,
       "period = { rule = \"constant\", steps = 3 }\nouter = { name = \"diloco\", rate = 0.7, momentum = 0.8 }",
       "the model after each outer step"},
      {"decoupled-diloco", "local SGD",
       "Workers never wait; a server merges fragments of a quorum's models and sends the results to all workers.",
       "Douillard et al. 2026 (Decoupled DiLoCo)", make_decoupled_diloco,
       "quorum = 2\nouter = { name = \"diloco\", rate = 0.7, momentum = 0.9 }", "the server's model"},
      {"cocod-sgd", "local SGD",
       "Local SGD whose averages are one round late; each worker adds the local steps that it has taken since.",
       "Shen et al. 2019", make_cocod_sgd, three_steps, "the newest average, one round old"},
      {"overlap-local-sgd", "local SGD",
       "Local SGD in which workers are pulled to an anchor that follows their average one round late.",
       "Wang, Liang, Joshi 2020", make_overlap_local_sgd, "mixing = 0.5\nperiod = { rule = \"constant\", steps = 3 }",
       "the anchor"},
      {"co2", "local SGD", "Local SGD with heavy-ball outer steps along averages that are one round late.",
       "Sun et al. 2024", make_co2, three_steps, "the model after each outer step"},
      {"overlapped-diloco", "local SGD",
       "DiLoCo with averages one round late; eager workers replace their own share of it by their newest difference.",
       "Kale, Douillard, Donchev 2025", make_overlapped_diloco,
       "period = { rule = \"constant\", steps = 3 }\nouter = { name = \"diloco\", rate = 0.7, momentum = 0.5 }",
       "worker 0's model after each outer step"},
      {"streaming-diloco", "local SGD",
       "DiLoCo that averages one fragment of the model at a time, while the workers train (Streaming DiLoCo).",
       "Douillard et al. 2025", make_streaming_diloco,
       "fragments = 2\ndelay = 1\nperiod = { rule = \"constant\", steps = 3 }\n"
       "outer = { name = \"diloco\", rate = 0.7, momentum = 0.5 }",
       "the model of each fragment's last outer step"},
      {"hierarchical-sgd", "local SGD",
       "Local SGD with frequent averages within groups and rarer averages over all workers.",
       "Lin et al. 2020 (hierarchical)", make_hierarchical_sgd,
       "group_size = 2\ngroup_period = 1\nperiod = { rule = \"constant\", steps = 3 }",
       "the average of all models at the end of each round"},
      {"post-local-sgd", "local SGD",
       "Synchronous SGD first; then workers average gradients in groups, and all models now and then (PyTorch).",
       "Lin et al. 2020; PyTorch's post_localSGD", make_post_local_sgd, "start = 1\nperiod = 3\ngroup_size = 2",
       "the common model, later the average of all models"},
      {"branch-train-merge", "local SGD",
       "All workers train alone after some synchronous steps; their average or ensemble is the result (LoFi, BTM).",
       "Wortsman et al. 2022; Li et al. 2022", make_branch_train_merge, "",
       "the common model, at the end the average or the ensemble"},
      {"dynamic-averaging", "local SGD",
       "Local SGD that averages some or all models once a model is too far from the last average.", "Kamp et al. 2018",
       make_dynamic_averaging, "threshold = 1\ncheck_every = 2", "the average of all models"},
      {"dropcompute-local-sgd", "local SGD",
       "Local SGD in which late workers skip their remaining local steps and join the average.",
       "after Giladi et al. 2023", make_drop_local_sgd, "threshold_s = 9\nperiod = { rule = \"constant\", steps = 3 }",
       "the average at the end of each round"},
      {"elastic-averaging", "local SGD",
       "Workers and a centre move towards each other: EASGD (with momentum EAMSGD), synchronous or asynchronous.",
       "Zhang et al. 2015", make_elastic_averaging, "beta = 0.8\nperiod = 2", "the centre"},
      {"fedprox", "local SGD",
       "Local SGD held near each round's first model by a proximal term; workers may take unequal steps (FedProx).",
       "Li et al. 2020 (FedProx)", make_fedprox, three_steps, "the average at the end of each round"},
      {"fednova", "local SGD",
       "Local SGD that divides each worker's progress by its effective number of steps (FedNova).",
       "Wang et al. 2020 (FedNova)", make_fednova, three_steps, "the model at the end of each round"},
      {"scaffold", "local SGD",
       "Local SGD whose steps are corrected by control variates, against drift on different data (SCAFFOLD).",
       "Karimireddy et al. 2020 (SCAFFOLD)", make_scaffold, three_steps, "the model at the end of each round"},
      {"rounds", "local SGD",
       "Local SGD with a free choice of local steps, periods, averages within groups and an outer step.",
       "the papers of the chosen parts", make_rounds, three_steps, "the first model of the next round"},
      {"gradient-coding", "gradient coding",
       "Workers compute redundant parts, so that a server can decode or estimate the sum without the stragglers.",
       "Tandon et al. 2017; Bitar et al. 2020", make_coded_sgd, "code = \"fractional\"\nstragglers = 1",
       "the server's model"},
      {"decentralized-sgd", "gossip",
       "Each worker averages its model with its neighbours' models, on a ring or another graph (D-PSGD).",
       "Lian et al. 2017, Algorithm 1", make_decentralized_sgd, "", "the average of all models, or each of them"},
      {"stochastic-gradient-push", "gossip",
       "Each worker sends shares of its model along a graph, by default half to one neighbour in turn (SGP).",
       "Assran et al. 2019", make_stochastic_gradient_push, "", "the weighted average of all models, or each of them"},
      {"ad-psgd", "gossip",
       "Each worker averages its model with one random neighbour's model at a time; no worker waits (AD-PSGD).",
       "Lian et al. 2018 (AD-PSGD)", make_ad_psgd, "", "the average of all models, or each of them"},
      {"noloco", "gossip",
       "Local SGD with an outer step after which random pairs mix their outer models, without a collective (NoLoCo).",
       "Kolehmainen et al. 2025 (NoLoCo)", make_noloco, "local_steps = 3",
       "the average of all models, or each of them"},
      {"wagma-sgd", "gossip",
       "Each worker averages its model within changing groups; late workers contribute an older model (WAGMA-SGD).",
       "Li et al. 2021 (WAGMA-SGD)", make_wagma_sgd, "group_size = 2", "the average of all models, or each of them"},
  };
  return rows;
}

std::unique_ptr<Algorithm> make_baseline() { return std::make_unique<SyncSgd>(); }

std::unique_ptr<Algorithm> make_algorithm(Settings& settings, const AlgorithmContext& context) {
  const AlgorithmRow* const row = settings.row({"algorithm", "The method."}, algorithms());
  auto algorithm = row ? row->make(settings, context) : nullptr;
  const Traits traits = algorithm ? algorithm->traits() : Traits{};
  const auto average = read_moving_average(settings, traits.publishes_rounds);
  const auto restart = read_job_restart(settings, traits.sends_messages());
  auto compression = read_compression(settings, {.compresses = traits.compresses(),
                                                 .why_nothing = traits.exchanged_whole,
                                                 .averages_moments = traits.averages_moments,
                                                 .slices = traits.compressed_slices(),
                                                 .rejects_messages = traits.rejects_gradients,
                                                 .drops = traits.drops,
                                                 .time_only = context.time_only,
                                                 .steps_per_epoch = context.steps_per_epoch,
                                                 .has_epochs = context.has_epochs,
                                                 .clips_gradients = context.clips_gradients});
  if (compression) compression->beta1 = context.frozen_beta1.value_or(compression->beta1);
  if (!algorithm) return nullptr;
  algorithm->average_publications(average);
  algorithm->restart_jobs(restart);
  algorithm->compress(compression);
  return algorithm;
}

}  // namespace syncopate
