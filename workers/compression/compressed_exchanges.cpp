#include "workers/compression/compressed_exchanges.hpp"

#include <algorithm>
#include <array>
#include <utility>

#include "workers/base/process.hpp"
#include "workers/training/checkpoint_log.hpp"
#include "workers/training/flat_arithmetic.hpp"
#include "workers/training/gradient_sum.hpp"

namespace syncopate {

namespace {

constexpr std::size_t block_size = 2048;

FlatVector zeros(std::size_t size) {
  FlatVector values(size);
  std::ranges::fill(values.span(), 0.0f);
  return values;
}

std::size_t words_of(Bytes packet) { return static_cast<std::size_t>(packet.value()) / 4; }

std::vector<CellPtr> cells_of(const SharedPackets& packets) {
  std::vector<CellPtr> cells;
  for (const Packet& packet : *packets) cells.push_back(packet.words);
  return cells;
}

// The words of packets, each from `begin` on. Valid while the packets' cells hold their values.
std::vector<const float*> words_of(const SharedPackets& packets, std::size_t begin = 0) {
  std::vector<const float*> words;
  for (const Packet& packet : *packets) words.push_back(values_of(packet.words) + begin);
  return words;
}

// A step's last packet: `words` words, which the caller must write, followed by statistics.
FlatVector last_words(std::size_t words, const CellPtr& statistics, std::size_t count) {
  FlatVector values(words + count);
  if (count > 0) std::copy_n(values_of(statistics), count, values.data() + words);
  return values;
}

// A cell of `size` values, which every process computes: fill(values) gets zeros.
template <typename Fill>
CellPtr computed(Training& training, std::vector<CellPtr> reads, std::size_t size, const Fill& fill) {
  CellPtr cell = new_cell();
  const auto work = [cell, size, fill] {
    FlatVector values = zeros(size);
    fill(values.span());
    cell->value = std::move(values);
  };
  training.compute({.reads = std::move(reads), .writes = {cell}, .work = work}, ProcessSet::everywhere());
  return cell;
}

// Adds the statistics after the words of all packets.
void add_statistics(const SharedPackets& packets, std::span<float> sums) {
  for (const Packet& packet : *packets) {
    const auto statistics = std::as_const(packet.words->value).span().last(sums.size());
    for (std::size_t i = 0; i < sums.size(); ++i) sums[i] += statistics[i];
  }
}

// p = residual + (mine - from), in place of the residual.
void accumulate(const float* mine, const float* from, float of_residual, std::span<float> p) {
  for (std::size_t i = 0; i < p.size(); ++i) {
    const float difference = from ? mine[i] - from[i] : mine[i];
    p[i] = of_residual == 0 ? difference : of_residual * p[i] + difference;
  }
}

// A slice's part of a flat vector, and the number of statistics that a message carries after its words.
struct Sent {
  std::size_t begin = 0;
  std::size_t size = 0;
  std::size_t statistics = 0;
};

Sent sent_of(Slice slice, const Objective& objective) {
  const std::size_t begin = slice.begin(objective.parameters()), end = slice.end(objective.parameters());
  return {begin, end - begin, slice.index == 0 ? objective.buffers() : 0};
}

// Decodes a packet and adds it to `out`, which covers the slice.
void decode(const Compressor& compressor, const CellPtr& words, Step number, std::span<float> out) {
  const float* const packet = values_of(words);
  compressor.decode({.packets = {&packet, 1}, .workers = 1, .micro_batches = 1, .step = number}, out);
}

// values *= factor; values that are not finite become 0 if the factor is 0.
void multiply(std::span<float> values, float factor) {
  if (factor == 0)
    std::ranges::fill(values, 0.0f);
  else if (factor != 1)
    scale(values.data(), factor, values.size());
}

// Prepares the residual for a packet: the values to send are added to it.
std::span<float> begin_with(const CellPtr& residual, float of_residual, std::size_t size) {
  if (residual->value.empty()) residual->value = zeros(size);
  multiply(residual->value.span(), of_residual);
  return residual->value.span();
}

// Calls use(values, begin) block by block for `size` values from `begin` on, so that the gradient is never one vector.
// Blocks that are already in memory are not copied.
template <typename Use>
void for_blocks(const GradientSum& sum, double scale, std::size_t begin, std::size_t size, const Use& use) {
  float block[block_size];
  for (std::size_t at = 0; at < size; at += block_size) {
    const std::span<float> piece(block, std::min(block_size, size - at));
    const float* const there = block_in_memory(sum, scale, begin + at, piece.size());
    if (!there) write_block(sum, scale, begin + at, piece);
    use(std::span(there ? there : block, piece.size()), at);
  }
}

// for_blocks() with the whole gradient, clipped if the compressor clips.
template <typename Use>
void for_clipped(const Compressor& compressor, const GradientSum& sum, double scale, std::size_t size,
                 std::int64_t micro_batches, const Use& use) {
  if (!compressor.clips()) return for_blocks(sum, scale, 0, size, use);
  FlatVector whole(size);
  for_blocks(sum, scale, 0, size,
             [&](std::span<const float> piece, std::size_t at) { std::ranges::copy(piece, whole.data() + at); });
  compressor.clip(whole.span(), micro_batches);
  use(std::as_const(whole).span(), 0);
}

// If the memory is p alone, a sum that is not computed yet is added directly to it.
void accumulate(const Compressor& compressor, const GradientSum& sum, double scale, float of_memory, std::size_t size,
                std::int64_t micro_batches, std::span<float> memory) {
  if (compressor.vectors() == 1 && is_kept_of_pass(sum, scale)) {
    multiply(memory.first(size), of_memory);
    return add_kept_of_pass(sum, memory.data());
  }
  for_clipped(compressor, sum, scale, size, micro_batches, [&](std::span<const float> piece, std::size_t at) {
    compressor.accumulate(piece, at, of_memory, memory);
  });
}

// EF21: a worker's own values after the compressor's, `size` of each.
struct OwnEstimate {
  OwnEstimate(std::span<float> memory, std::size_t begin, std::size_t size)
      : estimate(memory.subspan(begin, size)),
        compressed(memory.subspan(begin + size, size)),
        average(memory.subspan(begin + 2 * size)) {}

  // Turns the gradient p into its difference to the estimate.
  void subtract_from(std::span<float> p, float momentum, bool is_first) const {
    for (std::size_t i = 0; i < average.size(); ++i)
      average[i] = p[i] = is_first ? p[i] : momentum * average[i] + (1 - momentum) * p[i];
    for (std::size_t i = 0; i < p.size(); ++i) compressed[i] = p[i] -= estimate[i];
  }
  // Adds what was sent. An unsent value does not change its estimate, not even by rounding.
  void add_sent(std::span<const float> unsent) const {
    for (std::size_t i = 0; i < unsent.size(); ++i) estimate[i] += compressed[i] - unsent[i];
  }

  std::span<float> estimate, compressed;
  std::span<float> average;  // empty without momentum
};

// Turns the sum of the sent first moments into the sum of gradients that would change `moment` into the mean of these.
void write_gradients_of_moments(std::span<float> sum, const float* moment, double beta1, int workers,
                                std::int64_t micro_batches) {
  const double of_all = static_cast<double>(micro_batches) / (1 - beta1);
  for (std::size_t i = 0; i < sum.size(); ++i) {
    const double mean = static_cast<double>(sum[i]) / workers;
    sum[i] = static_cast<float>(of_all * (mean - (moment ? beta1 * static_cast<double>(moment[i]) : 0)));
  }
}

// The results of the exchanges for the compressor; `words` are the packets' words.
Received received_of(const CompressedSum::Exchanged& exchanged, std::span<const float* const> words,
                     const CellPtr& common, int workers) {
  return {.packets = words,
          .between = values_of(exchanged.between),
          .common = values_of(common),
          .workers = workers,
          .micro_batches = exchanged.micro_batches,
          .step = exchanged.step};
}

// The packet of an owner after an all-to-all, in which it received chunk number `chunk` of every packet. The owner also
// sends `of_memory` times its residual `owned`, which afterwards contains the values that its packet lacks. `count`
// statistics follow the words.
CellPtr reduced(Training& training, const std::shared_ptr<const Compressor>& compressor, Rank owner, Step step,
                const SharedPackets& first, int chunk, CellPtr& owned, float of_memory, const CellPtr& statistics,
                std::size_t count) {
  if (!owned) owned = new_cell();
  std::vector<CellPtr> read = cells_of(first);
  read.insert(read.end(), {statistics, owned});
  CellPtr packet = new_cell();
  const auto reduce = [=, owned = owned, words = words_of(compressor->exchanges(step).back().packet)] {
    const std::span<float> residual = begin_with(owned, of_memory, compressor->owned(owner));
    FlatVector values = last_words(words, statistics, count);
    compressor->reduce(owner, step, words_of(first, static_cast<std::size_t>(chunk) * words), residual, values.data());
    packet->value = std::move(values);
  };
  training.compute({.reads = std::move(read), .writes = {owned, packet}, .work = reduce});
  return packet;
}

}  // namespace

// Statistics travel with slice 0.
std::size_t CompressedAverage::buffers(const Collective& average) const {
  const bool are_averaged = average.slice.index == 0 && average.policy.buffers == StatePolicy::average;
  return !training_.time_only() && are_averaged ? training_.objective().buffers() : 0;
}

Collective CompressedAverage::exchange(Collective&& average) {
  newest_ = {std::move(average), ++rounds_};
  const Collective& of = newest_.average;
  OfSlice& own = this->own(of.slice);
  const std::vector<Exchange> exchanges = own.compressor->exchanges(rounds_);
  const Exchange exchange = exchanges.front();
  const bool is_last = exchanges.size() == 1;
  Collective what = is_last ? last_exchange(exchange, of)
                            : Collective{.kind = Collective::first_exchange(exchange.operation),
                                         .packet = {.words = {}, .size = exchange.packet}};
  if (training_.time_only()) return what;
  if (!own.residual) own.residual = new_cell();
  const CellPtr mine = of.model->parameters, own_buffers = of.model->buffers;
  const CellPtr from = of.from ? of.from->parameters : nullptr;
  what.packet.words = new_cell();
  const auto encode = [=, compressor = own.compressor, residual = own.residual, worker = worker_, round = rounds_,
                       part = sent_of(of.slice, training_.objective()), statistics = is_last ? buffers(of) : 0,
                       words = words_of(exchange.packet), out = what.packet.words] {
    const bool is_first = residual->value.empty();
    if (is_first) residual->value = FlatVector(part.size);
    accumulate(values_of(mine) + part.begin, from ? values_of(from) + part.begin : nullptr,
               is_first ? 0 : compressor->options().of_residual(), residual->value.span());
    FlatVector values = last_words(words, own_buffers, statistics);
    compressor->encode(worker, round, nullptr, residual->value.span(), values.data());
    out->value = std::move(values);
  };
  training_.compute(
      {.reads = {own.residual, mine, from, own_buffers}, .writes = {own.residual, what.packet.words}, .work = encode});
  return what;
}

Collective CompressedAverage::last_exchange(const Exchange& exchange, const Collective& average) const {
  Collective what{.kind = Collective::last_of_average(exchange.operation)};
  what.packet.size = exchange.packet + Bytes{static_cast<Bytes::Rep>(4 * buffers(average))};
  return what;
}

Collective CompressedAverage::second_exchange(const SentDifference& sent, const SharedPackets& first, int chunk) {
  const Collective& average = sent.average;
  OfSlice& own = this->own(average.slice);
  Collective what = last_exchange(own.compressor->exchanges(sent.round).back(), average);
  if (!training_.time_only())
    what.packet.words = reduced(training_, own.compressor, worker_, sent.round, first, chunk, own.owned,
                                own.compressor->options().of_residual(), average.model->buffers, buffers(average));
  return what;
}

ModelStatePtr CompressedAverage::mean(const SentDifference& sent, const SharedPackets& packets, int workers) const {
  const Collective& average = sent.average;
  auto state = new_state(*average.model);
  state->moments = {};
  if (average.slice.index > 0 && average.from) state->buffers = average.from->buffers;  // the same at all workers
  const std::size_t size = training_.objective().parameters(), statistics = buffers(average);
  const Sent part = sent_of(average.slice, training_.objective());
  const CellPtr from = average.from ? average.from->parameters : nullptr;
  std::vector<CellPtr> read = cells_of(packets);
  read.push_back(from);
  const auto& compressor = slices_[static_cast<std::size_t>(average.slice.index)].compressor;
  const auto decode = [=, round = sent.round](std::span<float> values) {
    const std::vector<const float*> words = words_of(packets);
    compressor->decode({.packets = words, .workers = workers, .micro_batches = workers, .step = round},
                       values.subspan(part.begin, part.size));
    for (std::size_t i = 0; i < values.size(); ++i) {
      const float mean = values[i] / static_cast<float>(workers);
      values[i] = from ? values_of(from)[i] + mean : mean;
    }
  };
  state->parameters = computed(training_, read, size, decode);
  const auto add_up = [=](std::span<float> values) {
    add_statistics(packets, values);
    for (float& value : values) value /= static_cast<float>(workers);
  };
  if (statistics > 0) state->buffers = computed(training_, read, statistics, add_up);
  return state;
}

// Returns the same object for all workers, unless the result includes values of the worker's own.
ModelStatePtr CompressedAverage::model_with(const SentDifference& sent, const ModelStatePtr& mean) const {
  const auto& average = sent.average;
  if (average.slice.index > 0 && !average.rest_is_needed) return mean;
  const auto changed = new_state(*average.model);
  changed->parameters = mean->parameters;
  if (average.policy.buffers == StatePolicy::average) changed->buffers = mean->buffers;
  const ModelStatePtr one = changed;
  // An average over one model applies the policy to its moments.
  const ModelStatePtr own = training_.average({&one, 1}, average.policy).front();
  const bool is_common = own->buffers == mean->buffers && own->moments == mean->moments;
  return is_common ? mean : own;
}

CompressedMessages::CompressedMessages(const std::vector<std::shared_ptr<const Compressor>>& compressors,
                                       Training& training, Rank worker)
    : training_(training), worker_(worker) {
  for (const auto& compressor : compressors) slices_.push_back({.compressor = compressor});
}

void CompressedMessages::compress(Rank server, Message& message) {
  const bool is_gradient = message.kind == Message::Kind::gradient;
  if (!is_gradient && message.kind != Message::Kind::difference) return;
  if (message.gradient.wide()) throw RunFailure("a gradient in double precision cannot be compressed");
  OfSlice& own = slices_[static_cast<std::size_t>(message.slice.index)];
  OfServer& there = servers_[server];
  const Step number = std::exchange(there.sent, there.sent + 1);
  message.is_packed = true;
  message.kept = number.value();
  auto packet = own.without_values;
  if (!packet) {
    auto made = std::make_shared<SentPacket>();
    made->size = own.compressor->exchanges(number).front().packet;
    if (training_.time_only())
      own.without_values = made;
    else
      encode(own, message, number, *made);
    packet = std::move(made);
  }
  message.gradient = Gradient(nullptr, message.gradient.micro_batches(), message.gradient.compute_time());
  if (own.compressor->options().returns_rejected && packet->parameters)
    there.unanswered[number] = {message.slice.index, packet->parameters};
  message.model = std::move(packet);
}

void CompressedMessages::encode(OfSlice& own, const Message& message, Step number, SentPacket& packet) {
  const Sent sent = sent_of(message.slice, training_.objective());
  if (!own.residual) own.residual = new_cell();
  packet.parameters = new_cell();
  // add(p, statistics) adds the values to send to the residual, and writes statistics.
  const auto encode = [=, compressor = own.compressor, residual = own.residual, worker = worker_,
                       size = words_of(packet.size), out = packet.parameters](const auto& add) {
    const std::span<float> p = begin_with(residual, compressor->options().of_residual(), sent.size);
    FlatVector words(size + sent.statistics);
    add(p, words.span().subspan(size));
    compressor->encode(worker, number, nullptr, p, words.data());
    out->value = std::move(words);
  };
  if (message.kind == Message::Kind::difference) {
    const CellPtr difference = message.model->parameters, buffers = message.model->buffers;
    const auto encode_difference = [=] {
      encode([&](std::span<float> p, std::span<float> statistics) {
        add_scaled(p.data(), 1.0f, values_of(difference) + sent.begin, p.size());
        if (!statistics.empty()) std::copy_n(values_of(buffers), statistics.size(), statistics.data());
      });
    };
    training_.compute({.reads = {own.residual, difference, buffers},
                       .writes = {own.residual, packet.parameters},
                       .work = encode_difference});
    return;
  }
  const auto encode_gradient = [=](const GradientSum& sum, double scale) {
    encode([&](std::span<float> p, std::span<float> statistics) {
      for_blocks(sum, scale, sent.begin, p.size(), [&](std::span<const float> piece, std::size_t at) {
        add_scaled(p.data() + at, 1.0f, piece.data(), piece.size());
      });
      std::ranges::fill(statistics, 0.0f);
      if (!statistics.empty()) add_buffers(sum, statistics);
    });
  };
  packet.carried = training_.travelling(message.gradient);
  const ProcessSet places = training_.place();
  std::vector<std::shared_ptr<Task>> prerequisites = training_.brought({&own.residual, 1}, places);
  own.residual->at = packet.parameters->at = places;
  own.residual->producer = packet.parameters->producer =
      training_.submit_on(message.gradient, std::move(prerequisites), encode_gradient);
}

void CompressedMessages::receive_answers(Message& from_server) {
  std::map<Step, Unanswered>& unanswered = servers_[from_server.from].unanswered;
  const auto answers = std::span(from_server.numbers).last(from_server.answers);
  const auto as_number = [](double number) { return Step{static_cast<Step::Rep>(number)}; };
  for (const double rejected : answers.first(answers.size() - 1))
    if (const auto sent = unanswered.find(as_number(rejected)); sent != unanswered.end())
      put_back(sent->first, sent->second);
  unanswered.erase(unanswered.begin(), unanswered.lower_bound(as_number(answers.back())));
  from_server.numbers.resize(from_server.numbers.size() - answers.size());
}

// own.residual exists, because a worker that has lost its state does not remember which packets it had sent.
void CompressedMessages::put_back(Step number, const Unanswered& packet) {
  const OfSlice& own = slices_[static_cast<std::size_t>(packet.slice)];
  const auto add = [=, compressor = own.compressor, residual = own.residual, words = packet.words] {
    const std::span<float> p = residual->value.span();
    FlatVector sent = zeros(p.size());
    decode(*compressor, words, number, sent.span());
    add_scaled(p.data(), 1.0f, std::as_const(sent).data(), p.size());
  };
  training_.compute({.reads = {own.residual, packet.words}, .writes = {own.residual}, .work = add});
}

void CompressedMessages::forget() {
  for (OfSlice& own : slices_) own.residual = nullptr;
  for (auto& [server, there] : servers_) there.unanswered.clear();
}

void open_packet(Message& message, const std::shared_ptr<const Compressor>& compressor, Training& training) {
  const ModelStatePtr sent_model = std::exchange(message.model, nullptr);
  if (training.time_only()) return;
  const auto& packet = static_cast<const SentPacket&>(*sent_model);
  const std::size_t parameters = training.objective().parameters(), buffers = training.objective().buffers();
  const Sent sent = sent_of(message.slice, training.objective());
  const CellPtr words = packet.parameters;
  const auto decode_into = [=, number = Step{message.kept}](std::span<float> values) {
    decode(*compressor, words, number, values.subspan(sent.begin, sent.size));
  };
  const auto copy_statistics = [=](std::span<float> values) {
    std::ranges::copy(std::as_const(words->value).span().last(sent.statistics), values.begin());
  };
  if (message.kind == Message::Kind::gradient) {
    const auto fill = [=](float* out) {
      std::fill_n(out, parameters + buffers, 0.0f);
      decode_into({out, parameters});
      copy_statistics({out + parameters, buffers});
    };
    const CellPtr read[] = {words};
    message.gradient = training.promised(message.gradient.micro_batches(), packet.carried, read, fill,
                                         message.gradient.compute_time());
    return;
  }
  auto difference = std::make_shared<ModelState>();
  difference->id = new_state_id();
  difference->parameters = computed(training, {words}, parameters, decode_into);
  if (buffers > 0) difference->buffers = computed(training, {words}, buffers, copy_statistics);
  message.model = std::move(difference);
}

Packet CompressedSum::first_packet(const Gradient& gradient, Step step, double rate, const ModelStatePtr& model) {
  const std::vector<Exchange> exchanges = this->exchanges(step);
  const Exchange& exchange = exchanges.front();
  Packet packet{.words = {}, .size = exchange.packet};
  if (training_.time_only()) return packet;
  packet.carried = training_.travelling(gradient);
  const CompressionOptions& options = compressor_->options();
  of_memory_ = options.estimates()      ? 0
               : options.error_feedback ? options.of_residual()
                                        : static_cast<float>(options.momentum);
  double of_gradient = options.error_feedback ? 1 : 1 - options.momentum;
  moment_ = options.of_moments() ? model->moments[0].values : nullptr;
  if (options.of_moments())
    of_gradient = (1 - options.beta1) / static_cast<double>(std::max<std::int64_t>(1, gradient.micro_batches()));
  const bool changes_units = options.error_feedback && options.units == CompressionOptions::Units::step;
  if (changes_units && rate_ != 0 && rate != 0) of_memory_ *= static_cast<float>(rate_ / rate);
  if (rate != 0) rate_ = rate;
  const bool is_last = exchanges.size() == 1;
  const bool sends = exchange.operation != Operation::broadcast || compressor_->root(step) == worker_;
  if (!memory_) memory_ = new_cell();
  const ProcessSet places = training_.place();
  const CellPtr common = common_cell();
  const CellPtr read[] = {memory_, common, moment_};
  std::vector<std::shared_ptr<Task>> prerequisites = training_.brought(read, places);

  if (sends) packet.words = new_cell();
  if (!is_last) statistics_ = new_cell();
  const std::size_t words = words_of(exchange.packet), parameters = training_.objective().parameters();
  const std::size_t buffers = training_.objective().buffers();
  const std::size_t of_compressor = compressor_->vectors() * parameters;
  const std::size_t remembered = of_compressor + options.vectors_of_estimate() * parameters;
  const auto encode = [=, compressor = compressor_, memory = memory_, worker = worker_, moment = moment_,
                       beta1 = static_cast<float>(options.beta1), of_memory = of_memory_,
                       micro_batches = gradient.micro_batches(), out = packet.words, estimates = options.estimates(),
                       momentum = static_cast<float>(options.momentum),
                       apart = is_last ? nullptr : statistics_](const GradientSum& sum, double scale) {
    const bool is_first = memory->value.empty();
    if (is_first) memory->value = zeros(remembered);
    const std::span<float> own = memory->value.span().first(of_compressor);
    accumulate(*compressor, sum, scale * of_gradient, of_memory, parameters, micro_batches, own);
    if (estimates) OwnEstimate(memory->value.span(), of_compressor, parameters).subtract_from(own, momentum, is_first);
    if (moment) add_scaled(own.data(), beta1, values_of(moment), parameters);
    FlatVector values(words + (is_last ? buffers : 0)), statistics(is_last ? 0 : buffers);
    if (out) compressor->encode(worker, step, values_of(common), own, values.data());
    const std::span<float> of_sum = is_last ? values.span().subspan(words) : statistics.span();
    std::ranges::fill(of_sum, 0.0f);
    if (buffers > 0) add_buffers(sum, of_sum);
    if (apart) apart->value = std::move(statistics);
    if (out) out->value = std::move(values);
  };
  const std::array filled = {memory_, packet.words, is_last ? nullptr : statistics_};
  for (const CellPtr& cell : filled)
    if (cell) cell->at = places;
  training_.hold(gradient, std::move(prerequisites), encode, [filled](const std::shared_ptr<Task>& task) {
    for (const CellPtr& cell : filled)
      if (cell) cell->producer = task;
  });
  return packet;
}

CellPtr CompressedSum::between(const SharedPackets& first) const {
  if (training_.time_only()) return nullptr;
  const auto& [sum, size, carried] = first->front();
  const auto prepare = [compressor = compressor_, sum = sum](std::span<float> values) {
    std::copy_n(values_of(sum), values.size(), values.begin());
    compressor->prepare(values.data());
  };
  return computed(training_, {sum}, words_of(size), prepare);
}

Packet CompressedSum::second_packet(std::vector<MicroBatch> carried, Step step, const CellPtr& between) {
  Packet packet{.words = {}, .size = exchanges(step).back().packet, .carried = std::move(carried)};
  if (training_.time_only()) return packet;
  packet.words = new_cell();
  const CellPtr statistics = std::exchange(statistics_, nullptr);
  const auto encode = [=, compressor = compressor_, memory = memory_, words = words_of(packet.size), out = packet.words,
                       of_compressor = compressor_->vectors() * training_.objective().parameters()] {
    const std::span<float> own = memory->value.span().first(of_compressor);
    const bool follows_values = compressor->options().follows_values;
    FlatVector values =
        last_words(follows_values ? compressor->second_words(own) : words, statistics, statistics->value.size());
    compressor->encode_second(step, values_of(between), own, values.data());
    out->value = std::move(values);
  };
  training_.compute({.reads = {memory_, between, statistics}, .writes = {memory_, packet.words}, .work = encode});
  if (!compressor_->options().follows_values) return packet;
  // After the first exchange all workers have begun to compute, so this wait delays no worker's arithmetic.
  const auto wait = [&] {
    training_.executor().wait(packet.words->producer);
    return std::vector{static_cast<double>(std::as_const(packet.words->value).size())};
  };
  const double length = training_.agreed_numbers(1, packet.words->at, wait).front();
  packet.size = bytes_of_words(static_cast<std::size_t>(length) - training_.objective().buffers());
  return packet;
}

Packet CompressedSum::reduced_packet(std::vector<MicroBatch> carried, Step step, const SharedPackets& first,
                                     int chunk) {
  Packet packet{.words = {}, .size = exchanges(step).back().packet, .carried = std::move(carried)};
  if (!training_.time_only())
    packet.words = reduced(training_, compressor_, worker_, step, first, chunk, owned_, of_memory_,
                           std::exchange(statistics_, nullptr), training_.objective().buffers());
  return packet;
}

CompressedSum::Summed CompressedSum::sum(const Exchanged& exchanged, int workers) const {
  if (training_.time_only()) return {Gradient(nullptr, exchanged.micro_batches)};
  const auto& [packets, between, micro_batches, step] = exchanged;
  std::vector<MicroBatch> carried;
  for (const Packet& packet : *packets) carried.insert(carried.end(), packet.carried.begin(), packet.carried.end());
  std::vector<CellPtr> read = cells_of(packets);
  const std::size_t parameters = training_.objective().parameters(), buffers = training_.objective().buffers();
  const CellPtr common = common_cell();
  read.insert(read.end(), {between, moment_, common, estimates_});
  const auto decode = [compressor = compressor_, common, all = exchanged, workers](std::span<float> values) {
    const std::vector<const float*> words = words_of(all.packets);
    compressor->decode(received_of(all, words, common, workers), values);
  };
  CellPtr estimates;
  if (compressor_->options().estimates()) {
    const auto add = [decode, before = estimates_](std::span<float> values) {
      decode(values);
      if (before) add_scaled(values.data(), 1.0f, values_of(before), values.size());
    };
    estimates = computed(training_, read, parameters, add);
    read.push_back(estimates);
  }
  const auto fill = [=, compressor = compressor_, moment = moment_, all = exchanged](float* out) {
    std::fill_n(out, parameters + buffers, 0.0f);
    if (estimates)
      std::copy_n(values_of(estimates), parameters, out);
    else
      decode({out, parameters});
    if (compressor->options().of_moments())
      write_gradients_of_moments({out, parameters}, values_of(moment), compressor->options().beta1, workers,
                                 all.micro_batches);
    add_statistics(all.packets, {out + parameters, buffers});
  };
  return {training_.promised(micro_batches, std::move(carried), read, fill), estimates};
}

void CompressedSum::end(const Exchanged& exchanged, const Summed& summed, int workers) {
  if (training_.time_only()) return;
  if (summed.estimates) {
    estimates_ = summed.estimates;
    const auto add = [memory = memory_, parameters = training_.objective().parameters(),
                      of_compressor = compressor_->vectors() * training_.objective().parameters()] {
      const std::span<float> all = memory->value.span();
      OwnEstimate(all, of_compressor, parameters).add_sent(all.first(parameters));
    };
    training_.compute({.reads = {memory_}, .writes = {memory_}, .work = add});
  }
  moment_ = nullptr;  // so that the optimizer can write the next moment in place
  const CellPtr common = common_cell();
  if (compressor_->follows_common()) common_ = exchanged.packets;
  if (!compressor_->corrects_residual()) return;
  const auto correct = [compressor = compressor_, memory = memory_, common, all = exchanged, workers] {
    const std::vector<const float*> words = words_of(all.packets);
    compressor->correct(received_of(all, words, common, workers), memory->value.span());
  };
  std::vector<CellPtr> read = cells_of(exchanged.packets);
  read.insert(read.end(), {memory_, exchanged.between, common});
  training_.compute({.reads = std::move(read), .writes = {memory_}, .work = correct});
}

void CompressedSum::fold(const Gradient& dropped) {
  if (training_.time_only() || compressor_->options().dropped != CompressionOptions::Dropped::folded) return;
  const auto add = [compressor = compressor_, memory = memory_, parameters = training_.objective().parameters(),
                    micro_batches = dropped.micro_batches()](const GradientSum& sum, double scale) {
    const std::span<float> values = memory->value.span();
    for_clipped(*compressor, sum, scale, parameters, micro_batches,
                [&](std::span<const float> piece, std::size_t at) { compressor->fold(piece, at, values); });
  };
  memory_->producer = training_.submit_on(dropped, {memory_->producer}, add);
}

}  // namespace syncopate
