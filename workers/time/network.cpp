#include "workers/time/network.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cassert>
#include <cmath>
#include <stdexcept>
#include <utility>

#include "workers/base/random.hpp"

namespace syncopate {

TransferTimes passed(const TransferTimes& before, const Hop& hop, Time begin) {
  const Time tail = later(std::max(before.tail, later(begin, hop.occupied)), hop.latency);
  return {.head = hop.is_stored ? tail : later(begin, hop.latency), .tail = tail};
}

Duration length_of(const Route& route) {
  TransferTimes progress;
  for (const Hop& hop : route) progress = passed(progress, hop, progress.head);
  return std::min(progress.tail - start_time, longest_duration);
}

void BucketArrivals::arrive(const Overlap& overlap, Time at, Duration last_micro_batch) {
  ready_.resize(static_cast<std::size_t>(overlap.buckets));
  const double backward_s = overlap.backward_share * to_seconds(last_micro_batch);
  for (int left = overlap.buckets - 1; Time & ready : ready_)
    ready = std::max(ready, at - from_seconds(backward_s * left-- / overlap.buckets));
}

Time BucketArrivals::end(const NetworkModel& network, const CollectiveCall& call, Time free_from) const {
  const auto buckets = std::ssize(ready_);
  const auto bytes_until = [&](std::ptrdiff_t bucket) { return call.payload.value() * bucket / buckets; };
  Time end = free_from;
  for (std::ptrdiff_t i = 0; i < buckets; ++i) {
    CollectiveCall bucket = call;
    bucket.payload = Bytes{bytes_until(i + 1) - bytes_until(i)};
    end = later(std::max(end, ready_[static_cast<std::size_t>(i)]), network.collective(bucket));
  }
  return end;
}

namespace {

// ceil(log2 members): the rounds until all members have the data, if each round doubles the members that have it.
int doubling_rounds(int members) { return std::bit_width(static_cast<unsigned>(members - 1)); }

double ring_s(const Link& link, Operation operation, int members, Bytes payload) {
  if (operation == Operation::broadcast) return doubling_rounds(members) * link.message_s(payload);
  const double rounds = (operation == Operation::all_reduce ? 2.0 : 1.0) * (members - 1);
  return rounds * link.latency_s + rounds / members * link.transfer_s(payload);
}

double tree_s(const Link& link, Operation operation, int members, Bytes payload) {
  const int rounds = doubling_rounds(members);
  const double down_s = rounds * link.message_s(payload);
  switch (operation) {
    case Operation::all_reduce:
      return 2 * down_s;
    case Operation::all_gather:
      return rounds * link.latency_s + (members - 1.0) / members * link.transfer_s(payload) + down_s;
    case Operation::broadcast:
      return down_s;
    case Operation::all_to_all: {
      std::int64_t passed_on = 0;  // total number of hops of all parts of one member
      for (unsigned way = 1; way < static_cast<unsigned>(members); ++way) passed_on += std::popcount(way);
      return rounds * link.latency_s + static_cast<double>(passed_on) / members * link.transfer_s(payload);
    }
  }
  throw std::logic_error("unknown collective");
}

class FixedNetwork final : public NetworkModel {
 public:
  explicit FixedNetwork(double latency_s) : latency_(from_seconds(latency_s)) {}
  Duration collective(const CollectiveCall&) const override { return latency_; }
  Duration message(const MessageCall&) const override { return latency_; }

 private:
  Duration latency_;
};

// Returns the worse latency and the worse bandwidth of two links that one transfer passes.
Link slower(const Link& a, const Link& b) {
  return {std::max(a.latency_s, b.latency_s), std::min(a.bandwidth_bytes_per_s, b.bandwidth_bytes_per_s)};
}

// A stage on one link: a participant's own link, or a group's uplink.
Hop own_hop(int link, Duration occupied) { return {.link = link, .links = 1, .occupied = occupied}; }
Hop uplink_hop(int uplink, Duration occupied) { return {.uplink = uplink, .uplinks = 1, .occupied = occupied}; }

// The base class of all models with links: how collectives and messages occupy own links and uplinks.
class LinkedNetwork : public NetworkModel {
 public:
  // `server_alone`: default link of a server that is outside of groups.
  LinkedNetwork(const Link& usual, const Link& server_alone, const LinkOptions& options)
      : options_(options),
        usual_(usual),
        server_(options.server.value_or(usual)),
        server_alone_(options.server.value_or(server_alone)),
        slowest_(usual) {
    for (const auto& [worker, link] : options.own) {
      const auto index = static_cast<std::size_t>(worker.value);
      if (own_.size() <= index) own_.resize(index + 1, usual);
      own_[index] = link;
      slowest_ = slower(slowest_, link);
    }
  }

  Duration collective(const CollectiveCall& call) const override {
    return from_seconds(call.members == 1 ? 0 : collective_s(call));
  }
  Duration message(const MessageCall& call) const override {
    return options_.contention ? length_of(way_of(call))
                               : from_seconds(whole_way(ends_of(call)).message_s(call.payload));
  }
  bool has_shared_links() const override { return options_.contention; }
  bool has_unshared_links() const override { return !options_.contention; }
  int group_size() const override { return options_.group_size; }
  std::optional<Overlap> overlap() const override { return options_.overlap; }
  Route route(const MessageCall& call) const override { return options_.contention ? way_of(call) : Route(); }

  Route route(const CollectiveCall& call) const override {
    Route route;
    if (call.members == 1 || !options_.contention) return route;
    CollectiveCall of_nothing = call;
    of_nothing.payload = Bytes{0};
    const Duration latency = collective(of_nothing);
    Hop hop{.link = way_out(call.first.value),
            .links = 2 * call.members,
            .occupied = collective(call) - latency,
            .latency = latency};
    if (const auto [first, groups] = groups_of(call); groups > 1) {
      hop.uplink = way_out(first);
      hop.uplinks = 2 * groups;
    }
    route.add(hop);
    return route;
  }

 protected:
  struct Groups {
    int first = 0;
    int count = 1;
  };
  virtual double collective_s(const CollectiveCall& call) const = 0;

  // The groups of a collective's members; one group if the model has none.
  Groups groups_of(const CollectiveCall& call) const {
    if (options_.group_size == 0) return {};
    const int first = call.first.value / options_.group_size,
              last = (call.first.value + call.members - 1) / options_.group_size;
    return {first, last - first + 1};
  }
  // The number of members in the group that has most of them.
  int fullest(const CollectiveCall& call) const {
    const auto [first, groups] = groups_of(call);
    if (groups == 1) return call.members;
    if (groups > 2) return options_.group_size;
    const int in_first = (first + 1) * options_.group_size - call.first.value;
    return std::max(in_first, call.members - in_first);
  }
  Link slowest_of(const CollectiveCall& call) const {
    const auto begin = static_cast<std::size_t>(call.first.value);
    const std::size_t end = begin + static_cast<std::size_t>(call.members);
    if (begin >= own_.size()) return usual_;
    if (begin == 0 && end > own_.size()) return slowest_;
    Link slowest = end > own_.size() ? usual_ : own_[begin];
    for (std::size_t i = begin; i < std::min(end, own_.size()); ++i) slowest = slower(slowest, own_[i]);
    return slowest;
  }
  // The route from the sender's link to the receiver's, over uplinks if they are in different groups.
  virtual Route way_of(const MessageCall& call) const {
    const Ends ends = ends_of(call);
    const auto transfer = [&](const Link& link) { return from_seconds(link.transfer_s(call.payload)); };
    Hop out = own_hop(way_out(call.from.value), transfer(ends.from_link));
    out.latency = from_seconds(whole_way(ends).latency_s);
    Route route;
    route.add(out);
    if (ends.from_group != ends.to_group) {
      if (ends.from_group >= 0) route.add(uplink_hop(way_out(ends.from_group), transfer(options_.uplink)));
      if (ends.to_group >= 0) route.add(uplink_hop(way_in(ends.to_group), transfer(options_.uplink)));
    }
    route.add(own_hop(way_in(call.to.value), transfer(ends.to_link)));
    return route;
  }

  LinkOptions options_;

 private:
  struct Ends {
    int from_group, to_group;
    const Link &from_link, &to_link;
  };
  Ends ends_of(const MessageCall& call) const {
    const int from = group_of(call.from, call.regions), to = group_of(call.to, call.regions);
    return {from, to, link_of(call.from, from), link_of(call.to, to)};
  }
  // All links of a message's route combined into one.
  Link whole_way(const Ends& ends) const {
    const Link both = slower(ends.from_link, ends.to_link);
    return ends.from_group == ends.to_group ? both : slower(both, options_.uplink);
  }
  // The group of a participant; below 0: a server outside of groups. Without groups all participants are in group 0.
  int group_of(Rank rank, int regions) const {
    if (options_.group_size == 0) return 0;
    const int server = rank.value - options_.workers;
    if (server < 0) return rank.value / options_.group_size;
    if (regions > 0 && server > 0) return (server - 1) * (options_.workers / regions) / options_.group_size;
    return -1 - server;
  }
  const Link& link_of(Rank rank, int group) const {
    if (rank.value >= options_.workers) return group < 0 ? server_alone_ : server_;
    const auto index = static_cast<std::size_t>(rank.value);
    return index < own_.size() ? own_[index] : usual_;
  }

  Link usual_;
  Link server_;
  Link server_alone_;      // outside of groups
  std::vector<Link> own_;  // by worker, up to the last one with its own link; empty: no worker has one
  Link slowest_;           // slowest of all workers' links
};

using Shape = CollectiveShape;
double flat_s(Shape shape, const Link& link, Operation operation, int members, Bytes payload) {
  return (shape == Shape::tree ? tree_s : ring_s)(link, operation, members, payload);
}

class FlatNetwork final : public LinkedNetwork {
 public:
  FlatNetwork(Shape shape, const Link& link, const LinkOptions& options)
      : LinkedNetwork(link, link, options), shape_(shape) {}

 private:
  double collective_s(const CollectiveCall& call) const override {
    const Link own = slowest_of(call);
    if (groups_of(call).count == 1) return flat_s(shape_, own, call.operation, call.members, call.payload);
    const Link both = slower(own, options_.uplink);
    const double s = flat_s(shape_, both, call.operation, call.members, call.payload);
    if (call.operation != Operation::all_to_all) return s;
    // One uplink carries everything that a group's members send to other groups.
    const double inside = fullest(call), members = call.members;
    return std::max(s, flat_s(shape_, both, call.operation, call.members, Bytes{0}) +
                           inside * (members - inside) / members * options_.uplink.transfer_s(call.payload));
  }

  Shape shape_;
};

class TwoLevelNetwork final : public LinkedNetwork {
 public:
  TwoLevelNetwork(const Link& inside, Shape leaders, const LinkOptions& options)
      : LinkedNetwork(inside, options.uplink, options), leaders_(leaders) {
    assert(options.group_size >= 1);
  }

 private:
  double collective_s(const CollectiveCall& call) const override {
    const Link inside = slowest_of(call);
    const int groups = groups_of(call).count;
    const int of_fullest = fullest(call);
    const int rounds = doubling_rounds(of_fullest);
    const auto leaders_s = [&](Bytes payload) {
      return flat_s(leaders_, options_.uplink, call.operation, groups, payload);
    };
    if (call.operation == Operation::all_to_all) {
      const double one_way_s = rounds * inside.latency_s + (of_fullest - 1.0) * inside.transfer_s(call.payload);
      return 2 * one_way_s + leaders_s(Bytes{of_fullest * call.payload.value()});
    }
    if (call.operation != Operation::all_gather)
      return tree_s(inside, call.operation, of_fullest, call.payload) + leaders_s(call.payload);
    const double share = static_cast<double>(of_fullest) / call.members;  // the fullest group's share of the vector
    const double up_s = rounds * inside.latency_s + (of_fullest - 1.0) / call.members * inside.transfer_s(call.payload);
    const double down_s = rounds * inside.message_s(call.payload);
    const Bytes gathered{std::llround(groups * share * static_cast<double>(call.payload.value()))};
    return up_s + leaders_s(gathered) + down_s;
  }

  Shape leaders_;
};

class ParameterServerNetwork final : public LinkedNetwork {
 public:
  ParameterServerNetwork(const Link& server_link, const LinkOptions& options)
      : LinkedNetwork(server_link, server_link, options), link_(server_link) {}

  Duration collective(const CollectiveCall& call) const override { return length_of(route(call)); }

  // The route goes into the first server's link and out of it. The slowest member's transfer overlaps the others'.
  Route route(const CollectiveCall& call) const override {
    Route route;
    if (call.members == 1) return route;
    const double members = call.members, vector_s = link_.transfer_s(call.payload);
    // The number of payloads that pass the server's link, in and out.
    const bool gives_all = call.operation == Operation::all_reduce || call.operation == Operation::all_to_all;
    const double in = gives_all ? members : 1, out = call.operation == Operation::broadcast ? members - 1 : members;
    const Link slowest = slowest_of(call);
    const auto add = [&](int link, double vectors, double vectors_of_one) {
      const double occupied_s = vectors * vector_s;
      const double slowest_s = vectors_of_one * slowest.transfer_s(call.payload);
      Hop hop = own_hop(link, from_seconds(occupied_s));
      hop.latency = from_seconds(slowest.latency_s + std::max(0.0, slowest_s - occupied_s));
      hop.is_stored = true;
      route.add(hop);
    };
    add(way_in(options_.workers), in, in / members);
    add(way_out(options_.workers), out, 1);
    return route;
  }

 private:
  double collective_s(const CollectiveCall& call) const override { return to_seconds(collective(call)); }
  Route way_of(const MessageCall& call) const override {
    if (call.from.value >= options_.workers || call.to.value >= options_.workers) return LinkedNetwork::way_of(call);
    MessageCall up = call, down = call;
    up.to = down.from = Rank{options_.workers};
    Route route = LinkedNetwork::way_of(up);
    route.back().is_stored = true;
    for (const Hop& hop : LinkedNetwork::way_of(down)) route.add(hop);
    return route;
  }

  Link link_;
};

Duration scaled(Duration cost, double factor) { return from_seconds(to_seconds(cost) * factor); }

// Another model's costs, multiplied at random if `jitter` is above 0, plus `serial_s` for each collective.
class ChangedNetwork final : public NetworkModel {
 public:
  ChangedNetwork(std::unique_ptr<NetworkModel> network, double jitter, std::uint64_t seed, double serial_s)
      : network_(std::move(network)), jitter_(jitter), seed_(seed), serial_(from_seconds(serial_s)) {}

  Duration collective(const CollectiveCall& call) const override {
    return plus_serial(changed(network_->collective(call), call));
  }
  Duration message(const MessageCall& call) const override { return changed(network_->message(call), call); }
  bool has_shared_links() const override { return network_->has_shared_links(); }
  bool has_unshared_links() const override { return network_->has_unshared_links(); }
  Route route(const CollectiveCall& call) const override {
    Route route = changed_route(call);
    if (!route.empty()) route.back().latency = plus_serial(route.back().latency);
    return route;
  }
  Route route(const MessageCall& call) const override { return changed_route(call); }
  int group_size() const override { return network_->group_size(); }
  std::optional<Overlap> overlap() const override { return network_->overlap(); }
  bool varies() const override { return jitter_ > 0 || network_->varies(); }

 private:
  enum Stream : std::uint8_t { of_collectives, of_messages };

  Duration plus_serial(Duration cost) const { return std::min(cost + serial_, longest_duration); }
  template <typename Call>
  Duration changed(Duration cost, const Call& call) const {
    return jitter_ > 0 ? scaled(cost, factor_of(call)) : cost;
  }
  template <typename Call>
  Route changed_route(const Call& call) const {
    Route route = network_->route(call);
    if (jitter_ == 0) return route;
    const double factor = factor_of(call);
    for (Hop& hop : route) {
      hop.occupied = scaled(hop.occupied, factor);
      hop.latency = scaled(hop.latency, factor);
    }
    return route;
  }

  double factor_of(const CollectiveCall& call) const {
    return factor(of_collectives, call.first, call.number, static_cast<std::uint32_t>(call.members));
  }
  double factor_of(const MessageCall& call) const { return factor(of_messages, call.from, call.number, 0); }
  double factor(Stream stream, Rank rank, std::optional<std::int64_t> number, std::uint32_t index) const {
    if (!number) return 1 + jitter_;
    const RandomStream random{
        .seed = seed_, .purpose = Purpose::network, .stream = stream, .worker = rank, .step = Step{*number}};
    return 1 - jitter_ * std::log(random.uniform(index));
  }

  std::unique_ptr<NetworkModel> network_;
  double jitter_;
  std::uint64_t seed_;
  Duration serial_;
};

constexpr double most_jitter = 1000;
constexpr int most_workers_per_group = 1 << 20;

Link read_link(Settings& settings) {
  const double latency_s =
      settings.number({"latency_s", "The latency of a message of any size.", "s"}, Range::between(0, longest_delay));
  const double bandwidth_bytes_per_s =
      settings.number({"bandwidth_bytes_per_s", "The bandwidth of a link.", "bytes/s"}, Range::positive());
  return {.latency_s = latency_s, .bandwidth_bytes_per_s = bandwidth_bytes_per_s};
}

// Reads a link whose missing keys default to the values of `usual`.
Link read_link_unlike(Settings& settings, const Link& usual) {
  const auto latency_s = settings.optional_number(
      {"latency_s", "The latency of a message of any size on this link.", "s", "like the others'"},
      Range::between(0, longest_delay));
  const auto bandwidth_bytes_per_s = settings.optional_number(
      {"bandwidth_bytes_per_s", "The bandwidth of this link.", "bytes/s", "like the others'"}, Range::positive());
  return {latency_s.value_or(usual.latency_s), bandwidth_bytes_per_s.value_or(usual.bandwidth_bytes_per_s)};
}

std::vector<OwnLink> read_own_links(Settings& settings, const NetworkContext& context, const Link& usual) {
  std::vector<OwnLink> own;
  const int last = context.workers.value_or(most_workers) - 1;
  const std::size_t faults_before = settings.faults_so_far();
  std::vector<Settings> entries = settings.sections({"links", "Workers whose links differ from the usual link."});
  if (entries.empty() && settings.has("links") && settings.faults_so_far() == faults_before)
    settings.fault("links", "must have at least one entry, or be left out");
  for (Settings& entry : entries) {
    const std::size_t faults = entry.faults_so_far();
    const auto ranks = entry.integers({"workers", "The workers that have this link."}, 0,
                                      Stated<std::int64_t>(last, "cluster.workers - 1"));
    const bool is_right = entry.faults_so_far() == faults;
    if (is_right && ranks.empty()) entry.fault("workers", "must name at least one worker");
    const Link link = read_link_unlike(entry, usual);
    if (is_right && entry.keys().size() == 1)  // any second key, even if misspelt, prevents this fault
      entry.fault("workers", "an entry with `workers` also needs latency_s or bandwidth_bytes_per_s");
    for (const std::int64_t rank : ranks) {
      const Rank worker{static_cast<int>(rank)};
      if (std::ranges::find(own, worker, &OwnLink::worker) != own.end())
        entry.fault("workers",
                    fmt::format("must not name worker {} again, because an earlier entry gives its link", rank));
      else
        own.push_back({worker, link});
    }
  }
  return own;
}

// Reads the number of workers per group. It is at least 2, so that workers share an uplink, and less than the number of
// workers, so that traffic passes the uplinks.
int read_group_size(Settings& settings, const NetworkContext& context) {
  const std::size_t faults = settings.faults_so_far();
  const auto size = static_cast<int>(settings.integer(
      {"group_size", "Number of workers with consecutive ranks that share an uplink."}, 2, most_workers_per_group));
  if (settings.faults_so_far() > faults) return size;
  if (context.workers && size >= *context.workers)
    settings.fault("group_size", fmt::format("must be below the number of workers, {}: with a single group "
                                             "no traffic would pass an uplink",
                                             *context.workers));
  return size;
}

std::optional<Overlap> read_overlap(Settings& settings) {
  if (!settings.has("overlap")) return std::nullopt;
  constexpr int most_buckets = 1000;
  Settings table = settings.section(
      {"overlap", "Exchange gradients bucket by bucket during the backward pass; left out: after it."});
  Overlap overlap;
  overlap.buckets = static_cast<int>(
      table.integer({"buckets", "Number of equal parts into which the gradient is divided."}, 1, most_buckets));
  overlap.backward_share =
      table.number({"backward_share", "Share of a micro-batch's time that its backward pass takes."},
                   Range::between(0, 1), overlap.backward_share);
  return overlap;
}

// `usual`: a worker's link. `of_server`: a server's default link; null if the model has its own keys for it.
LinkOptions read_link_options(Settings& settings, const NetworkContext& context, const Link& usual,
                              const Link* of_server) {
  LinkOptions options{.workers = context.workers.value_or(most_workers)};
  options.own = read_own_links(settings, context, usual);
  options.overlap = read_overlap(settings);
  if (of_server) {
    if (settings.has("server")) {
      Settings server = settings.section({"server", "The link of a server, if it differs from a worker's."});
      options.server = read_link_unlike(server, *of_server);
      if (settings.has_table({"server"}) && server.keys().empty())
        settings.fault("server", "needs latency_s or bandwidth_bytes_per_s");
    }
    options.contention = settings.flag(
        {"contention", "Whether transfers wait for busy links; false: each takes as long as on an idle network."},
        true);
  } else {
    settings.refuse("server",
                    "with kind = \"parameter-server\" latency_s and bandwidth_bytes_per_s describe the server's link");
    settings.refuse("contention", "with kind = \"parameter-server\" the server's link is always shared");
  }
  return options;
}

std::unique_ptr<NetworkModel> vary(Settings& settings, const NetworkContext& context,
                                   std::unique_ptr<NetworkModel> network, bool has_serial_latency = true) {
  const double jitter =
      settings.number({"jitter", "Each cost is multiplied by 1 + jitter x E, where E is exponential with mean 1."},
                      Range::between(0, most_jitter), 0.0);
  const Key serial{"serial_s", "Time that is added to every collective (T^c).", "s"};
  const double serial_s = has_serial_latency ? settings.number(serial, Range::between(0, longest_delay), 0.0) : 0;
  if (jitter == 0 && serial_s == 0) return network;
  return with_jitter(std::move(network), jitter, context.seed, serial_s);
}

void refuse_links(Settings& settings, std::string_view reason) {
  constexpr std::array keys = {"server", "links", "contention", "racks", "overlap"};
  for (const char* key : keys) settings.refuse(key, reason);
}

std::unique_ptr<NetworkModel> read_free(Settings& settings, const NetworkContext&) {
  constexpr std::string_view reason = "with kind = \"free\" communication takes no time";
  constexpr std::array keys = {"latency_s", "bandwidth_bytes_per_s", "jitter", "serial_s"};
  for (const char* key : keys) settings.refuse(key, reason);
  refuse_links(settings, reason);
  return make_fixed_network(0);
}

std::unique_ptr<NetworkModel> read_fixed(Settings& settings, const NetworkContext& context) {
  settings.refuse("bandwidth_bytes_per_s", "with kind = \"fixed\" the cost does not depend on the size");
  settings.refuse("serial_s", "with kind = \"fixed\" latency_s is this time");
  refuse_links(settings, "with kind = \"fixed\" nothing occupies a link");
  const double latency_s = settings.number({"latency_s", "The time of each collective and each message.", "s"},
                                           Range::between(0, longest_delay));
  return vary(settings, context, make_fixed_network(latency_s), false);
}

template <Shape shape>
std::unique_ptr<NetworkModel> read_flat(Settings& settings, const NetworkContext& context) {
  const Link link = read_link(settings);
  int group_size = 0;
  Link uplink = link;
  if (settings.has("racks")) {
    Settings racks = settings.section({"racks", "Groups of workers that share an uplink."});
    group_size = read_group_size(racks, context);
    uplink = read_link(racks);
  }
  LinkOptions options = read_link_options(settings, context, link, &link);
  options.group_size = group_size;
  options.uplink = uplink;
  return vary(settings, context, std::make_unique<FlatNetwork>(shape, link, options));
}

// Here latency_s and bandwidth_bytes_per_s describe the uplinks; in other models they describe the workers' links.
std::unique_ptr<NetworkModel> read_two_level(Settings& settings, const NetworkContext& context) {
  const int group_size = read_group_size(settings, context);
  const Link uplink = read_link(settings);
  Settings inside = settings.section({"inside", "The workers' own links inside a group."});
  const Link own = read_link(inside);
  const Shape leaders = settings.choice({"between", "The shape of the collectives between the groups' leaders."},
                                        {{"ring", Shape::ring}, {"tree", Shape::tree}}, Shape::ring);
  settings.refuse("racks",
                  "with kind = \"two-level\" latency_s and bandwidth_bytes_per_s describe the groups' uplinks");
  LinkOptions options = read_link_options(settings, context, own, &uplink);
  options.group_size = group_size;
  options.uplink = uplink;
  return vary(settings, context, make_two_level_network(own, leaders, options));
}

std::unique_ptr<NetworkModel> read_parameter_server(Settings& settings, const NetworkContext& context) {
  const Link link = read_link(settings);
  settings.refuse("racks", "with kind = \"parameter-server\" all workers share the server's link");
  const LinkOptions options = read_link_options(settings, context, link, nullptr);
  return vary(settings, context, make_parameter_server_network(options.workers, link, options));
}

constexpr std::array network_rows = {
    NetworkRow{"fixed", "Every collective and message takes latency_s, whatever its size.", read_fixed},
    NetworkRow{"ring",
               "Each participant has a link of latency_s and bandwidth_bytes_per_s; ring all-reduce, direct messages.",
               read_flat<Shape::ring>},
    NetworkRow{"tree", "Links as with ring; binomial reduce and broadcast, direct messages.", read_flat<Shape::tree>},
    NetworkRow{"two-level",
               "Groups of group_size workers with links inside = { latency_s, bandwidth_bytes_per_s }, each behind an "
               "uplink of latency_s and bandwidth_bytes_per_s; their leaders form a ring or a tree (between).",
               read_two_level},
    NetworkRow{"parameter-server",
               "A star: all messages and collectives pass one after another over the server's link of "
               "bandwidth_bytes_per_s each way; latency_s is added.",
               read_parameter_server},
    NetworkRow{"free", "Communication takes no time.", read_free},
};

}  // namespace

std::unique_ptr<NetworkModel> make_fixed_network(double latency_s) { return std::make_unique<FixedNetwork>(latency_s); }

std::unique_ptr<NetworkModel> make_ring_network(double latency_s, double bandwidth_bytes_per_s,
                                                const LinkOptions& options) {
  return std::make_unique<FlatNetwork>(Shape::ring, Link{latency_s, bandwidth_bytes_per_s}, options);
}

std::unique_ptr<NetworkModel> make_tree_network(double latency_s, double bandwidth_bytes_per_s,
                                                const LinkOptions& options) {
  return std::make_unique<FlatNetwork>(Shape::tree, Link{latency_s, bandwidth_bytes_per_s}, options);
}

std::unique_ptr<NetworkModel> make_two_level_network(const Link& inside, Shape leaders, const LinkOptions& options) {
  return std::make_unique<TwoLevelNetwork>(inside, leaders, options);
}

std::unique_ptr<NetworkModel> make_parameter_server_network(int workers, const Link& server_link, LinkOptions options) {
  options.workers = workers;
  return std::make_unique<ParameterServerNetwork>(server_link, options);
}

std::unique_ptr<NetworkModel> with_jitter(std::unique_ptr<NetworkModel> network, double jitter, std::uint64_t seed,
                                          double serial_s) {
  return std::make_unique<ChangedNetwork>(std::move(network), jitter, seed, serial_s);
}

std::span<const NetworkRow> networks() { return network_rows; }

std::unique_ptr<NetworkModel> make_network(Settings& settings, const NetworkContext& context) {
  const auto* const row = settings.row({"kind", "The network model."}, network_rows);
  return row ? row->make(settings, context) : make_fixed_network(0);
}

}  // namespace syncopate
