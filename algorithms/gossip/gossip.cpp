#include "algorithms/gossip/gossip.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <complex>
#include <functional>
#include <numbers>
#include <numeric>
#include <set>
#include <utility>

#include "workers/time/trace.hpp"

namespace syncopate {

namespace {

using GridPlace = std::vector<int>;  // coordinates on the grid, one per direction; also the offset of a hop

class HopGraph final : public GossipGraph {
 public:
  // Worker r's coordinates are the digits of r in a mixed radix; the last direction has the least significant digit.
  // hops[i]: the hops from a sender to its receivers in exchange i of a cycle.
  HopGraph(GridPlace sizes, std::vector<std::vector<GridPlace>> hops)
      : sizes_(std::move(sizes)), hops_(std::move(hops)) {}

  int workers() const override { return std::accumulate(sizes_.begin(), sizes_.end(), 1, std::multiplies<>()); }
  int cycle() const override { return static_cast<int>(hops_.size()); }
  std::vector<Neighbour> receivers(Rank sender, Step exchange) const override {
    const auto& hops = hops_in(exchange);
    std::vector<Neighbour> result;
    for (const GridPlace& hop : hops) result.push_back({further(sender, hop, 1), weight(hops)});
    return result;
  }
  // In reverse order of hops, so that on a ring the previous worker comes first, as in receivers().
  std::vector<Neighbour> senders(Rank receiver, Step exchange) const override {
    const auto& hops = hops_in(exchange);
    std::vector<Neighbour> result;
    for (auto hop = hops.rbegin(); hop != hops.rend(); ++hop)
      result.push_back({further(receiver, *hop, -1), weight(hops)});
    return result;
  }
  // W commutes with all shifts of the grid, so its eigenvectors are N waves; wave 0 is constant.
  double second_eigenvalue() const override {
    double largest = 0;
    for (int wave = 1; wave < workers(); ++wave) {
      const GridPlace k = place_of(wave);
      double product = 1;
      for (const auto& hops : hops_) {
        std::complex<double> sum = 1;
        for (const GridPlace& hop : hops) {
          double turns = 0;
          for (std::size_t d = 0; d < sizes_.size(); ++d)
            turns += static_cast<double>(k[d] * hop[d] % sizes_[d]) / sizes_[d];
          sum += std::polar(1.0, 2 * std::numbers::pi * turns);
        }
        product *= weight(hops) * std::abs(sum);
      }
      largest = std::max(largest, product);
    }
    constexpr double rounded = 1e-12;  // values below this are rounding errors of 0
    return largest < rounded ? 0 : std::pow(largest, 1.0 / cycle());
  }
  double least_kept() const override {
    double least = 1;
    for (const auto& hops : hops_) least = std::min(least, weight(hops));
    return least;
  }

 private:
  const std::vector<GridPlace>& hops_in(Step exchange) const {
    return hops_[static_cast<std::size_t>(exchange.value()) % hops_.size()];
  }
  static double weight(const std::vector<GridPlace>& hops) { return 1.0 / static_cast<double>(hops.size() + 1); }
  GridPlace place_of(int number) const {
    GridPlace place(sizes_.size());
    for (std::size_t d = sizes_.size(); d-- > 0; number /= sizes_[d]) place[d] = number % sizes_[d];
    return place;
  }
  Rank further(Rank from, const GridPlace& hop, int sign) const {
    int number = 0, scale = 1, rest = from.value;
    for (std::size_t d = sizes_.size(); d-- > 0; scale *= sizes_[d], rest /= sizes_[d])
      number += scale * ((rest % sizes_[d] + sign * hop[d] + sizes_[d]) % sizes_[d]);
    return Rank{number};
  }

  GridPlace sizes_;
  std::vector<std::vector<GridPlace>> hops_;
};

std::vector<GridPlace> powers_of_two_below(int workers) {
  std::vector<GridPlace> hops;
  for (int hop = 1; hop < workers; hop *= 2) hops.push_back({hop});
  return hops;
}

class CompleteGraph final : public GossipGraph {
 public:
  explicit CompleteGraph(int workers) : workers_(workers) {}

  int workers() const override { return workers_; }
  std::vector<Neighbour> receivers(Rank self, Step) const override {
    std::vector<Neighbour> others;
    for (const Rank other : Ranks(workers_))
      if (other != self) others.push_back({other, 1.0 / workers_});
    return others;
  }
  std::vector<Neighbour> senders(Rank self, Step exchange) const override { return receivers(self, exchange); }
  double second_eigenvalue() const override { return 0; }
  double least_kept() const override { return 1.0 / workers_; }

 private:
  int workers_;
};

// A sum of weights may differ by this from its exact value, since files may have rounded them to six decimals. The
// difference goes to the worker's own weight.
constexpr double rounding = 1e-5;

double sum_of(const std::vector<Neighbour>& links) {
  double sum = 0;
  for (const Neighbour& link : links) sum += link.weight;
  return sum;
}

// How a file lists links: unless they go one way, a line gives two. `ignores_weights`: whether it may have a column
// `weight` that is not used.
struct ListedLinks {
  bool go_one_way = false;
  LinkWeights weights = LinkWeights::degree;
  bool ignores_weights = true;
};

std::vector<WeightedLink> links_in(const DataFile& file, int workers, const ListedLinks& how) {
  const bool have_weights = how.weights == LinkWeights::given;
  CsvRows rows = have_weights ? CsvRows(file.name, file.content, {"from", "to", "weight"})
                              : CsvRows(file.name, file.content, {"from", "to"});
  if (!have_weights && !how.ignores_weights && rows.has_column("weight"))
    rows.fault("has a column weight; set weights = \"given\" to use it, or another value to ignore it");
  std::vector<WeightedLink> links;
  std::set<std::pair<std::int64_t, std::int64_t>> seen;
  while (rows.next()) {
    const auto from = rows.integer(0, workers - 1), to = rows.integer(1, workers - 1);
    if (!from || !to) continue;
    if (*from == *to) {
      rows.fault(fmt::format("links worker {} with itself; must link two different workers", *from));
      continue;
    }
    const double weight = have_weights ? rows.number(2) : 0;
    if (have_weights && !(weight > 0 && weight < 1))
      rows.fault(fmt::format("weight = {}; must be above 0 and below 1", weight));
    const bool is_new = seen.emplace(*from, *to).second;
    const bool is_new_back = how.go_one_way || seen.emplace(*to, *from).second;
    if (!is_new || !is_new_back) rows.fault(fmt::format("lists the link between {} and {} again", *from, *to));
    const int a = static_cast<int>(*from), b = static_cast<int>(*to);
    links.push_back({a, b, weight});
    if (!how.go_one_way) links.push_back({b, a, weight});
  }
  rows.check();
  return links;
}

// Reads the keys `file` and `file_hash` of the table, and the file, whose columns `from` and `to` contain ranks from 0.
// No pair may occur twice, and no worker may be linked with itself. Returns none after a fault.
std::optional<std::vector<WeightedLink>> read_listed_links(Settings& table, int workers, const ListedLinks& how) {
  const std::size_t faults = table.faults_so_far();
  const auto file = find_data_file(table);
  if (!file || table.faults_so_far() > faults) return std::nullopt;
  std::optional<std::vector<WeightedLink>> links;
  read_or_report(table, file->name, [&] { links = links_in(*file, workers, how); });
  return links;
}

// There is a limit because W is stored as a full matrix, which is multiplied to compute the spectral gap.
constexpr int most_workers_of_file = 512;

int largest_divisor_up_to_root(int workers) {
  int rows = std::max(1, static_cast<int>(std::sqrt(workers)));
  while (workers % rows != 0) --rows;
  return rows;
}

template <GossipGraphPtr (*graph)(int workers)>
GossipGraphPtr read_any_size(Settings&, const AlgorithmContext& context, Mixing) {
  return graph(context.workers);
}

GossipGraphPtr read_hypercube(Settings& table, const AlgorithmContext& context, Mixing) {
  if (std::has_single_bit(static_cast<unsigned>(context.workers))) return hypercube(context.workers);
  table.fault("kind", fmt::format("needs a power of two workers, found {}", context.workers));
  return nullptr;
}

GossipGraphPtr read_torus(Settings& table, const AlgorithmContext& context, Mixing) {
  const int workers = context.workers;
  if (largest_divisor_up_to_root(workers) == 1) {
    table.fault("kind",
                fmt::format("needs a number of workers that forms rows and columns of at least 2, found {}", workers));
    table.keep_as_written({"rows"});
    return nullptr;
  }
  const std::size_t faults = table.faults_so_far();
  const int rows = static_cast<int>(
      table.integer({"rows", "Number of rows of the torus, all of equal length."}, 2, 1'000'000,
                    Stated(largest_divisor_up_to_root(workers),
                           "the largest divisor of the number of workers that is at most its square root")));
  if (table.faults_so_far() > faults || !context.workers_known) return nullptr;
  if (workers % rows == 0 && workers / rows > 1) return torus(rows, workers / rows);
  table.fault("rows", fmt::format("must divide the number of workers, {}, into rows of at least 2 workers", workers));
  return nullptr;
}

ListedLinks read_file_keys(Settings& table) {
  ListedLinks how;
  how.go_one_way =
      table.flag({"directed", "Whether a line is one link, from `from` to `to`, or links in both directions."}, false);
  how.ignores_weights = table.has("weights");
  how.weights = table.choice(
      {"weights",
       "1/(d + 1), d: links of the sender (degree) or the larger of both workers (metropolis); or column `weight`."},
      {{"degree", LinkWeights::degree}, {"metropolis", LinkWeights::metropolis}, {"given", LinkWeights::given}},
      how.weights);
  if (how.go_one_way && how.weights == LinkWeights::metropolis)
    table.fault("weights", "must be \"degree\" or \"given\" with directed = true");
  return how;
}

std::optional<std::string> why_not(const WeightedGraph& graph, Mixing needed, LinkWeights weights) {
  if (auto why = graph.why_not_connected()) return why;
  if (needed == Mixing::in_pairs) return std::nullopt;
  if (needed == Mixing::column_stochastic) return graph.why_not_column_stochastic();
  auto why = graph.why_not_doubly_stochastic();
  if (why && weights == LinkWeights::degree) *why += "; use weights = \"metropolis\" if links go both ways";
  return why;
}

GossipGraphPtr read_file_graph(Settings& table, const AlgorithmContext& context, Mixing needed) {
  const int workers = context.workers;
  const std::size_t faults = table.faults_so_far();
  const ListedLinks how = needed == Mixing::in_pairs ? ListedLinks{} : read_file_keys(table);
  if (context.workers_known && workers > most_workers_of_file)
    table.fault("kind", fmt::format("file allows at most {} workers, found {}", most_workers_of_file, workers));
  auto links = read_listed_links(table, workers, how);
  if (!links || !context.workers_known || table.faults_so_far() > faults) return nullptr;
  weigh(*links, workers, how.weights);
  auto graph = std::make_shared<WeightedGraph>(workers, *links);
  const auto why = why_not(*graph, needed, how.weights);
  if (why) table.fault("file", *why);
  return why ? nullptr : graph;
}

using ReadGraph = GossipGraphPtr (*)(Settings& table, const AlgorithmContext& context, Mixing needed);

// Mixing in pairs needs a bipartite graph, so it allows only kinds that can be bipartite.
std::optional<ReadGraph> read_kind(Settings& table, Mixing needed) {
  const Key key{"kind", "The graph: each worker's neighbours, and their weights."};
  if (needed == Mixing::in_pairs)
    return table.choice<ReadGraph>(key, {{"ring", read_any_size<ring>},
                                         {"torus", read_torus},
                                         {"hypercube", read_hypercube},
                                         {"file", read_file_graph}});
  return table.choice<ReadGraph>(key, {{"ring", read_any_size<ring>},
                                       {"torus", read_torus},
                                       {"hypercube", read_hypercube},
                                       {"exponential", read_any_size<exponential_graph>},
                                       {"one-peer-exponential", read_any_size<one_peer_exponential>},
                                       {"complete", read_any_size<complete_graph>},
                                       {"file", read_file_graph}});
}

}  // namespace

std::vector<Rank> GossipGraph::all_receivers(Rank sender) const {
  std::vector<Rank> all;
  for (Step exchange; exchange < Step{cycle()}; ++exchange)
    for (const Neighbour& link : receivers(sender, exchange))
      if (std::ranges::find(all, link.worker) == all.end()) all.push_back(link.worker);
  return all;
}

LinksOfWorker::LinksOfWorker(const GossipGraph& graph, Rank self) {
  for (Step exchange; exchange < Step{graph.cycle()}; ++exchange) {
    receivers_.push_back(graph.receivers(self, exchange));
    senders_.push_back(graph.senders(self, exchange));
  }
}

std::int64_t GossipGraph::messages_in(Step exchanges) const {
  std::int64_t messages = 0;
  for (int turn = 0; turn < cycle(); ++turn) {
    const std::int64_t times = (exchanges.value() - turn + cycle() - 1) / cycle();
    for (const Rank worker : Ranks(workers())) messages += times * std::ssize(receivers(worker, Step{turn}));
  }
  return messages;
}

GossipGraphPtr ring(int workers) { return torus(1, workers); }

GossipGraphPtr torus(int rows, int columns) {
  std::vector<GridPlace> hops;
  const GridPlace sizes = {rows, columns};
  for (std::size_t d = 0; d < sizes.size(); ++d)
    for (const int by : {-1, 1}) {
      if (sizes[d] < 2 || (sizes[d] == 2 && by > 0)) continue;  // the previous worker is also the next one
      GridPlace hop(sizes.size());
      hop[d] = by;
      hops.push_back(std::move(hop));
    }
  return std::make_shared<HopGraph>(sizes, std::vector<std::vector<GridPlace>>{hops});
}

GossipGraphPtr hypercube(int workers) {
  std::size_t bits = 0;
  while ((1 << bits) < workers) ++bits;
  std::vector<GridPlace> hops;
  for (std::size_t d = bits; d-- > 0;) {
    GridPlace hop(bits);
    hop[d] = 1;
    hops.push_back(std::move(hop));
  }
  return std::make_shared<HopGraph>(GridPlace(bits, 2), std::vector<std::vector<GridPlace>>{hops});
}

GossipGraphPtr complete_graph(int workers) { return std::make_shared<CompleteGraph>(workers); }

GossipGraphPtr exponential_graph(int workers) {
  return std::make_shared<HopGraph>(GridPlace{workers},
                                    std::vector<std::vector<GridPlace>>{powers_of_two_below(workers)});
}

GossipGraphPtr one_peer_exponential(int workers) {
  std::vector<std::vector<GridPlace>> hops;
  for (GridPlace& hop : powers_of_two_below(workers)) hops.push_back({std::move(hop)});
  if (hops.empty()) hops.emplace_back();  // a single worker: one exchange, without receivers
  return std::make_shared<HopGraph>(GridPlace{workers}, std::move(hops));
}

GossipGraphPtr read_graph(Settings& settings, const AlgorithmContext& context, Mixing needed,
                          std::string_view sentence) {
  if (!settings.has("graph")) return nullptr;
  Settings table = settings.section({"graph", sentence});
  const auto read = read_kind(table, needed);
  return read ? (*read)(table, context, needed) : nullptr;
}

std::string GossipGraph::remark() const { return fmt::format("the graph's spectral gap is {:.4g}", spectral_gap()); }

WeightedGraph::WeightedGraph(int workers, const std::vector<WeightedLink>& links)
    : receivers_(workers), senders_(workers) {
  for (const auto& [from, to, weight] : links) {
    receivers_[Rank{from}].push_back({Rank{to}, weight});
    senders_[Rank{to}].push_back({Rank{from}, weight});
  }
  for (auto* const side : {&receivers_, &senders_})
    for (std::vector<Neighbour>& of_one : *side) std::ranges::sort(of_one, {}, &Neighbour::worker);
  for (const Rank worker : Ranks(workers)) least_kept_ = std::min(least_kept_, 1 - given_by(worker));
  least_weight_ = find_least_weight();
}

double WeightedGraph::given_by(Rank sender) const { return sum_of(receivers_[sender]); }

Matrix WeightedGraph::matrix() const {
  Matrix matrix(workers(), workers());
  for (const Rank from : Ranks(workers())) {
    matrix(from.value, from.value) = 1 - given_by(from);
    for (const Neighbour& link : receivers_[from]) matrix(link.worker.value, from.value) = link.weight;
  }
  return matrix;
}

double WeightedGraph::second_eigenvalue() const { return syncopate::second_eigenvalue(matrix()); }

// Iterates push-sum's weights, which begin at 1, until they reach W's fixed point. They may be below it only in the
// first few exchanges.
double WeightedGraph::find_least_weight() const {
  constexpr double settled = 1e-9;
  ByRank<double> weights(workers(), 1.0);
  double least = 1;
  for (int exchange = 0; exchange < 8 * workers(); ++exchange) {
    ByRank<double> next(workers(), 0.0);
    for (const Rank from : Ranks(workers())) {
      double kept = weights[from];
      for (const Neighbour& link : receivers_[from]) {
        const double given = weights[from] * link.weight;
        next[link.worker] += given;
        kept -= given;
      }
      next[from] += kept;
    }
    double change = 0;
    for (const Rank worker : Ranks(workers())) {
      least = std::min(least, next[worker]);
      change = std::max(change, std::abs(next[worker] - weights[worker]));
    }
    if (change < settled) break;
    weights = std::move(next);
  }
  return least;
}

ByRank<char> WeightedGraph::reached(bool backwards) const {
  ByRank<char> reached(workers(), false);
  std::vector<Rank> next = {Rank{0}};
  reached[Rank{0}] = true;
  while (!next.empty()) {
    const Rank worker = next.back();
    next.pop_back();
    for (const Neighbour& link : (backwards ? senders_ : receivers_)[worker])
      if (!std::exchange(reached[link.worker], true)) next.push_back(link.worker);
  }
  return reached;
}

std::optional<std::string> WeightedGraph::why_not_connected() const {
  for (const bool backwards : {false, true}) {
    const ByRank<char> found = reached(backwards);
    const auto missing = std::ranges::find(found, 0);
    if (missing == found.end()) continue;
    const auto other = missing - found.begin();
    return backwards ? fmt::format("must be connected: there is no path from worker {} to worker 0", other)
                     : fmt::format("must be connected: there is no path from worker 0 to worker {}", other);
  }
  return std::nullopt;
}

std::optional<std::string> WeightedGraph::why_not_column_stochastic() const {
  for (const Rank worker : Ranks(workers()))
    if (!(given_by(worker) < 1 - rounding))
      return fmt::format("must leave each worker a share of its own model: worker {} sends shares of {:.6g} in all",
                         worker.value, given_by(worker));
  return std::nullopt;
}

std::optional<std::string> WeightedGraph::why_not_doubly_stochastic() const {
  if (auto why = why_not_column_stochastic()) return why;
  for (const Rank worker : Ranks(workers())) {
    const double taken = sum_of(senders_[worker]), given = given_by(worker);
    if (std::abs(taken - given) > rounding)
      return fmt::format("must be doubly stochastic: worker {} sends shares of {:.6g} in all and receives {:.6g}",
                         worker.value, given, taken);
  }
  return std::nullopt;
}

void weigh(std::vector<WeightedLink>& links, int workers, LinkWeights rule) {
  if (rule == LinkWeights::given) return;
  std::vector<int> degrees(static_cast<std::size_t>(workers));
  for (const WeightedLink& link : links) ++degrees[static_cast<std::size_t>(link.from)];
  for (WeightedLink& link : links) {
    const int of_sender = degrees[static_cast<std::size_t>(link.from)];
    const int of_receiver = degrees[static_cast<std::size_t>(link.to)];
    const int degree = rule == LinkWeights::degree ? of_sender : std::max(of_sender, of_receiver);
    link.weight = 1.0 / (degree + 1);
  }
}

// Starting from rank 0, puts neighbours on opposite sides. The direction of a link does not matter.
std::optional<Bipartition> Bipartition::of(const GossipGraph& graph) {
  Bipartition bipartition(graph.workers());
  ByRank<Listed>& lists = bipartition.lists_;
  lists = ByRank<Listed>(graph.workers());
  for (const Rank worker : Ranks(graph.workers()))
    for (const Rank other : graph.all_receivers(worker)) {
      lists[worker].partners.push_back(other);
      lists[other].partners.push_back(worker);
    }
  for (auto& [is_active, partners] : lists) {
    std::ranges::sort(partners);
    partners.erase(std::unique(partners.begin(), partners.end()), partners.end());
  }
  ByRank<char> is_placed(graph.workers(), false);
  std::vector<Rank> next = {Rank{0}};
  is_placed[Rank{0}] = true;
  while (!next.empty()) {
    const Listed& worker = lists[next.back()];
    next.pop_back();
    for (const Rank partner : worker.partners) {
      if (std::exchange(is_placed[partner], true)) {
        if (lists[partner].is_active == worker.is_active) return std::nullopt;
        continue;
      }
      lists[partner].is_active = !worker.is_active;
      next.push_back(partner);
    }
  }
  return bipartition;
}

ReceivedMessage Gossip::receive_from(Rank from, Worker::CalledFrom at) {
  if (from == worker_.rank() || last_.contains(from)) return nullptr;
  return unless_last(worker_.receive({.from = from}, at));
}

std::vector<ReceivedMessage> Gossip::receive_what_has_come(Worker::CalledFrom at) {
  std::vector<ReceivedMessage> messages;
  while (auto message = worker_.receive({.until = worker_.now()}, at))
    if (auto usual = unless_last(std::move(message))) messages.push_back(std::move(usual));
  return messages;
}

ReceivedMessage Gossip::unless_last(ReceivedMessage message) {
  const bool is_usual = message && message->kind == Message::Kind::model;
  if (is_usual) declare_newest(message->model);
  if (!message || is_usual) return message;
  last_[message->from] = std::move(*message);
  return nullptr;
}

void Gossip::stop(std::span<const Rank> listeners, const Ending& how, Worker::CalledFrom at) {
  const bool leaves = worker_.budget_left(BudgetView::others);  // it stops early, because its own data are used up
  Message own = Message::farewell();
  if (!leaves)
    own = Message::of_last_model(
        worker_.step(), worker_.publish(WorkerModel{.weight = how.weight, .evaluated = evaluated_}), {how.weight});
  if (worker_.rank() != Rank{0}) {
    if (!worker_.has_left(Rank{0})) worker_.send(Rank{0}, std::move(own), at);
    return;
  }
  if (leaves) return worker_.publish();
  if (how.others_may_wait || worker_.steps_left() > Step{0})  // if not, all have done their last step, and none waits
    for (const Rank listener : listeners)
      if (!has_stopped(listener)) worker_.send(listener, Message::farewell(), at);
  publish_mean(std::move(own), at);
}

void Gossip::publish_mean(Message own, Worker::CalledFrom at) {
  while (auto message = worker_.receive(next_message, at)) unless_last(std::move(message));
  last_[worker_.rank()] = std::move(own);
  std::erase_if(last_, [](const auto& entry) { return !entry.second.has_model(); });
  Publication publication{.own = {.evaluated = evaluated_}};
  for (const auto& [rank, message] : last_) {
    publication.own.models.push_back({message.numbers.front(), message.model});
    publication.step = std::max(publication.step, message.step);
  }
  publication.model = weighted_mean(worker_, publication.own.models).state;
  worker_.publish(std::move(publication));
}

IndividualModels read_individual_models(Settings& settings) {
  return settings.choice(
      {"evaluated", "Whether the average of all models is evaluated, or each worker's model, with averaged results."},
      {{"average", IndividualModels::mean}, {"own", IndividualModels::each}}, IndividualModels::mean);
}

}  // namespace syncopate
