// Every method with the keys that it needs, and with options that change its behaviour.
#pragma once

namespace syncopate::watched {

inline constexpr const char* methods = R"([[methods]]
algorithm = "sync-sgd"
[[methods]]
label = "sync-sgd, top-k"
algorithm = "sync-sgd"
compression = { name = "top-k", ratio = 0.2 }
[[methods]]
label = "sync-sgd, DGC"
algorithm = "sync-sgd"
compression = { name = "dgc", ratio = 0.2 }
[[methods]]
label = "sync-sgd, random-k"
algorithm = "sync-sgd"
compression = { name = "random-k", ratio = 0.2 }
[[methods]]
label = "sync-sgd, sign"
algorithm = "sync-sgd"
compression = { name = "sign" }
[[methods]]
label = "sync-sgd, majority"
algorithm = "sync-sgd"
compression = { name = "majority" }
[[methods]]
label = "sync-sgd, QSGD"
algorithm = "sync-sgd"
compression = { name = "qsgd", levels = 7 }
[[methods]]
label = "sync-sgd, ScaleCom"
algorithm = "sync-sgd"
compression = { name = "scalecom", ratio = 0.2, filter = 0.5 }
[[methods]]
label = "sync-sgd, 1-bit in two phases"
algorithm = "sync-sgd"
compression = { name = "one-bit", scope = "model", exchange = "two-phase" }
[[methods]]
label = "random-drop, folded"
algorithm = "random-drop"
drop_rate = 0.2
from_step = 0
compression = { name = "top-k", ratio = 0.2, dropped = "fold" }
[[methods]]
algorithm = "one-bit-adam"
freeze_step = 10
training = { optimizer = { name = "adam", bias_correction = false } }
[[methods]]
label = "sync-sgd, int8"
algorithm = "sync-sgd"
compression = { name = "int8" }
[[methods]]
label = "local-sgd, int8"
algorithm = "local-sgd"
period = { rule = "constant", steps = 3 }
compression = { name = "int8", exchange = "two-phase" }
[[methods]]
label = "outer-local-sgd, bins"
algorithm = "outer-local-sgd"
period = { rule = "constant", steps = 3 }
outer = { name = "plain", rate = 0.8 }
compression = { name = "bins", scope = "model" }
[[methods]]
label = "outer-local-sgd, FedAdam"
algorithm = "outer-local-sgd"
period = { rule = "constant", steps = 3 }
outer = { name = "adam", rate = 0.05 }
[[methods]]
algorithm = "diloco"
period = { rule = "constant", steps = 3 }
[[methods]]
algorithm = "fedprox"
proximal = 0.1
period = { rule = "constant", steps = 3 }
[[methods]]
algorithm = "fednova"
period = { rule = "constant", steps = 3 }
[[methods]]
algorithm = "scaffold"
period = { rule = "constant", steps = 3 }
[[methods]]
algorithm = "malenia"
[[methods]]
algorithm = "ringleader"
[[methods]]
algorithm = "rescaled-sgd"
[[methods]]
algorithm = "heloco"
local_steps = 3
[[methods]]
label = "async-local-sgd, CGAD"
algorithm = "async-local-sgd"
local_steps = 3
update = { name = "adam", rate = 0.05 }
staleness_decay = 0.2
staleness_cutoff = 12
[[methods]]
algorithm = "ormo"
momentum = 0.5
[[methods]]
algorithm = "noloco"
local_steps = 3
[[methods]]
label = "cocod-sgd, fp4"
algorithm = "cocod-sgd"
period = { rule = "constant", steps = 3 }
compression = { name = "fp4" }
[[methods]]
label = "overlapped-diloco, top-k"
algorithm = "overlapped-diloco"
period = { rule = "constant", steps = 3 }
outer = { name = "diloco", rate = 0.7, momentum = 0.5 }
compression = { name = "top-k", ratio = 0.2 }
[[methods]]
label = "dropcompute, fixed"
algorithm = "dropcompute"
threshold_s = 0.030
[[methods]]
label = "dropcompute, automatic"
algorithm = "dropcompute"
threshold = { rule = "automatic", warmup_steps = 2, calibration_steps = 10 }
[[methods]]
algorithm = "random-drop"
drop_rate = 0.2
from_step = 0
[[methods]]
algorithm = "stale-sgd"
staleness = 3
[[methods]]
algorithm = "acco"
[[methods]]
algorithm = "delayed-update"
[[methods]]
algorithm = "backup-workers"
backups = 1
[[methods]]
label = "backup-workers, cancelled"
algorithm = "backup-workers"
backups = 1
late = "cancel"
[[methods]]
algorithm = "backup-tokens"
backups = 1
[[methods]]
algorithm = "backup-all-reduce"
backups = 1
[[methods]]
algorithm = "backup-timeout"
timeout_s = 0.030
[[methods]]
label = "backup-timeout, cancelled"
algorithm = "backup-timeout"
timeout_s = 0.005
counted_from = "first"
late = "cancel"
[[methods]]
algorithm = "k-sync"
gradients = 3
[[methods]]
algorithm = "k-batch-sync"
gradients = 5
[[methods]]
algorithm = "stsyn"
quorum = 3
local_steps = 3
[[methods]]
algorithm = "mindflayer"
rule = "clipping-rennala"
trials = 6
limit_s = 0.055
[[methods]]
label = "mindflayer, own trials"
algorithm = "mindflayer"
trials_per_worker = 2
limit_s = 0.055
arrival_probability = 0.8
groups = [{ workers = [1], trials_per_worker = 1, limit_s = 0.08, arrival_probability = 0.9 }]
[[methods]]
label = "eager-sgd, majority"
algorithm = "eager-sgd"
activation = "majority"
[[methods]]
label = "eager-sgd, solo"
algorithm = "eager-sgd"
activation = "solo"
late = "drop"
synchronous_every = 16
average_every = 0
[[methods]]
label = "eager-sgd, replayed"
algorithm = "eager-sgd"
activation = "majority"
variant = "replayed"
[[methods]]
algorithm = "async-sgd"
[[methods]]
algorithm = "softsync"
splitting = 2
[[methods]]
algorithm = "k-async"
gradients = 2
[[methods]]
algorithm = "k-batch-async"
gradients = 6
[[methods]]
algorithm = "ringmaster"
delay_threshold = 2
[[methods]]
label = "ringmaster, without stops"
algorithm = "ringmaster"
delay_threshold = 2
late = "finish"
[[methods]]
algorithm = "throttle"
divisor = 2
[[methods]]
algorithm = "stale-synchronous"
slack = 2
[[methods]]
algorithm = "bounded-delay"
maximum_delay = 2
[[methods]]
algorithm = "sliding-window"
maximum_delay = 2
[[methods]]
label = "async-local-sgd, Nesterov"
algorithm = "async-local-sgd"
local_steps = 4
update = { name = "nesterov", rate = 0.2, momentum = 0.6 }
[[methods]]
label = "async-local-sgd, delayed Nesterov by speed"
algorithm = "async-local-sgd"
local_steps = 4
update = { name = "delayed-nesterov", rate = 0.4, momentum = 0.6, every = 3 }
steps_by_speed = "up"
[[methods]]
label = "async-local-sgd, buffered in a window"
algorithm = "async-local-sgd"
local_steps = 4
update = { name = "buffered", size = 2 }
staleness_exponent = 0.5
grace_s = 0.010
[[methods]]
algorithm = "halos"
regions = 2
local_steps = 2
local_update = { name = "delayed-nesterov", rate = 0.8, momentum = 0.6, every = 2 }
global_update = { name = "nesterov", rate = 0.6, momentum = 0.5 }
merge_every = 2
mixing = 0.25
[[methods]]
label = "decoupled-diloco, a quorum and a grace window"
algorithm = "decoupled-diloco"
quorum = 2
fragments = 2
grace = { margin = 0.9 }
outer = { name = "diloco", rate = 0.7, momentum = 0.5 }
[[methods]]
label = "decoupled-diloco, late answers from their base"
algorithm = "decoupled-diloco"
quorum = 1
local_steps = 4
merge = "mean"
anchor = "base"
late = "count"
outer = { name = "diloco", rate = 0.7, momentum = 0.5 }
[[methods]]
algorithm = "local-sgd"
period = { rule = "constant", steps = 4 }
[[methods]]
algorithm = "des-loc"
period = 3
moment_periods = "half-life"
[[methods]]
algorithm = "outer-local-sgd"
period = { rule = "constant", steps = 4 }
outer = { name = "slowmo", rate = 1.0, momentum = 0.5 }
[[methods]]
algorithm = "palsgd"
period = { rule = "constant", steps = 4 }
outer = { name = "diloco", rate = 0.7, momentum = 0.9 }
[[methods]]
label = "edit, by steps"
algorithm = "edit"
period = { rule = "constant", steps = 4 }
outer = { name = "diloco", rate = 0.7, momentum = 0.8 }
outlier_factor = 1.0
outlier_warmup = 2
outlier_smoothing = 0.5
clip_norm = 0.5
[[methods]]
label = "edit, by time"
algorithm = "edit"
sync_seconds = 0.120
outer = { name = "diloco", rate = 0.7, momentum = 0.8 }
scope = "model"
[[methods]]
algorithm = "cocod-sgd"
period = { rule = "constant", steps = 4 }
[[methods]]
algorithm = "overlap-local-sgd"
mixing = 0.6
momentum = 0.5
period = { rule = "constant", steps = 4 }
[[methods]]
algorithm = "co2"
anchor = "outer-model"
period = { rule = "constant", steps = 4 }
[[methods]]
label = "co2, round-start"
algorithm = "co2"
period = { rule = "constant", steps = 4 }
[[methods]]
label = "co2, blocking"
algorithm = "co2"
rounds = "blocking"
period = { rule = "constant", steps = 4 }
[[methods]]
label = "overlapped-diloco, eager"
algorithm = "overlapped-diloco"
period = { rule = "constant", steps = 4 }
outer = { name = "diloco", rate = 0.7, momentum = 0.5 }
[[methods]]
label = "overlapped-diloco, delayed"
algorithm = "overlapped-diloco"
update = "delayed"
period = { rule = "constant", steps = 4 }
outer = { name = "diloco", rate = 0.7, momentum = 0.5 }
[[methods]]
algorithm = "streaming-diloco"
fragments = 2
delay = 1
mixing = 0.5
period = { rule = "constant", steps = 4 }
outer = { name = "diloco", rate = 0.7, momentum = 0.5 }
[[methods]]
algorithm = "hierarchical-sgd"
group_size = 2
group_period = 2
period = { rule = "constant", steps = 8 }
[[methods]]
algorithm = "post-local-sgd"
start = 3
period = 4
group_size = 2
[[methods]]
label = "sync-sgd, EF21"
algorithm = "sync-sgd"
compression = { name = "top-k", ratio = 0.2, feedback = "ef21" }
[[methods]]
algorithm = "branch-train-merge"
seed_steps = 10
[[methods]]
algorithm = "dropcompute-local-sgd"
period = { rule = "constant", steps = 4 }
threshold_s = 0.120
[[methods]]
label = "elastic-averaging, synchronous"
algorithm = "elastic-averaging"
beta = 0.8
period = 4
[[methods]]
label = "elastic-averaging, asynchronous"
algorithm = "elastic-averaging"
exchange = "asynchronous"
beta = 0.8
period = 4
[[methods]]
algorithm = "gradient-coding"
code = "cyclic"
stragglers = 1
[[methods]]
algorithm = "decentralized-sgd"
[[methods]]
algorithm = "stochastic-gradient-push"
[[methods]]
label = "stochastic-gradient-push, released"
algorithm = "stochastic-gradient-push"
overlap_steps = 2
overlap = "released"
[[methods]]
label = "decentralized-sgd, torus"
algorithm = "decentralized-sgd"
graph = { kind = "torus", rows = 2 }
[[methods]]
label = "stochastic-gradient-push, exponential"
algorithm = "stochastic-gradient-push"
graph = { kind = "exponential" }
[[methods]]
algorithm = "ad-psgd"
[[methods]]
algorithm = "wagma-sgd"
group_size = 2
global_every = 4
)";
inline constexpr const char* methods_that_need_models = R"([[methods]]
algorithm = "dynamic-backup"
[[methods]]
algorithm = "adacomm"
initial_period = 8
[[methods]]
algorithm = "dynamic-averaging"
threshold = 0.5
check_every = 2
[[methods]]
label = "dynamic-averaging, gathered"
algorithm = "dynamic-averaging"
checks = "gathered"
threshold = 0.5
check_every = 2
)";
inline constexpr const char* three_families = R"([[methods]]
algorithm = "sync-sgd"
[[methods]]
algorithm = "backup-workers"
backups = 1
[[methods]]
algorithm = "local-sgd"
period = { rule = "constant", steps = 4 }
)";
inline constexpr const char* one_method = "[[methods]]\nalgorithm = \"sync-sgd\"\n";

}  // namespace syncopate::watched
