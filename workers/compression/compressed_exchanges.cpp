#include "workers/compression/compressed_sum.hpp"

#include <algorithm>
#include <array>
#include <utility>

#include "workers/compression/packet_sizes.hpp"
#include "workers/training/course_log.hpp"
#include "workers/training/flat_arithmetic.hpp"
#include "workers/training/gradient_sum.hpp"

namespace syncopate {
namespace {

constexpr std::size_t block_size = 2048;

// Piece by piece, so that it goes from the gradient's pieces to the memory without a vector between them; what stands in
// memory as it is asked for is not copied.
template <typename Use>
void for_blocks(const GradientSum& sum, double scale, std::size_t size, const Use& use) {
  float block[block_size];
  for (std::size_t at = 0; at < size; at += block_size) {
    const std::span<float> piece(block, std::min(block_size, size - at));
    const float* const there = block_in_memory(sum, scale, at, piece.size());
    if (!there) write_block(sum, scale, at, piece);
    use(std::span(there ? there : block, piece.size()), at);
  }
}

// Calls use(values, where they begin) with the gradient of so many micro-batches, clipped as a whole or piece by piece.
template <typename Use>
void for_clipped(const Compressor& compressor, const GradientSum& sum, double scale, std::size_t size,
                 std::int64_t micro_batches, const Use& use) {
  if (!compressor.clips()) return for_blocks(sum, scale, size, use);
  FlatVector whole(size);
  for_blocks(sum, scale, size,
             [&](std::span<const float> piece, std::size_t at) { std::ranges::copy(piece, whole.data() + at); });
  compressor.clip(whole.span(), micro_batches);
  use(std::as_const(whole).span(), 0);
}

// Of a sum whose values nobody has made yet, their addition to what the memory holds spares making them.
void take_in(const Compressor& compressor, const GradientSum& sum, double scale, float of_memory, std::size_t size,
             std::int64_t micro_batches, std::span<float> memory) {
  if (compressor.takes_in_by_adding() && is_kept_of_pass(sum, scale)) {
    const std::span<float> p = memory.first(size);
    if (of_memory == 0)
      std::ranges::fill(p, 0.0f);
    else if (of_memory != 1)
      syncopate::scale(p.data(), of_memory, size);
    return add_kept_of_pass(sum, p.data());
  }
  for_clipped(compressor, sum, scale, size, micro_batches,
              [&](std::span<const float> piece, std::size_t at) { compressor.take_in(piece, at, of_memory, memory); });
}

// From the sum of what was sent of first moments, the sum of gradients that makes their mean of the moment before.
void write_gradients_of_moments(std::span<float> sum, const float* moment, double beta1, int workers,
                                std::int64_t micro_batches) {
  const double of_all = static_cast<double>(micro_batches) / (1 - beta1);
  for (std::size_t i = 0; i < sum.size(); ++i) {
    const double mean = static_cast<double>(sum[i]) / workers;
    sum[i] = static_cast<float>(of_all * (mean - (moment ? beta1 * static_cast<double>(moment[i]) : 0)));
  }
}

std::size_t words_of(const Exchange& exchange) { return static_cast<std::size_t>(exchange.packet.value()) / 4; }

std::vector<CellPtr> cells_of(const SharedPackets& packets) {
  std::vector<CellPtr> cells;
  for (const Packet& packet : *packets) cells.push_back(packet.words);
  return cells;
}

// What tasks see of an exchange, for as long as they hold it.
std::vector<const float*> words_of(const SharedPackets& packets) {
  std::vector<const float*> words;
  for (const Packet& packet : *packets) words.push_back(std::as_const(packet.words->value).data());
  return words;
}

// A packet's words, behind them the sums of normalisation statistics, which go with the last packet.
FlatVector last_words(std::size_t words, const CellPtr& statistics) {
  const auto behind = std::as_const(statistics->value).span();
  FlatVector values(words + behind.size());
  std::ranges::copy(behind, values.data() + words);
  return values;
}

}  // namespace

Packet CompressedSum::first_packet(const Gradient& gradient, Step step, double rate, const ModelStatePtr& model) {
  const std::vector<Exchange> exchanges = this->exchanges(step);
  const Exchange& exchange = exchanges.front();
  Packet packet{.words = {}, .size = exchange.packet};
  if (training_.time_only()) return packet;
  packet.carried = training_.travelling(gradient);
  const CompressionOptions& options = compressor_->options();
  of_memory_ = options.error_feedback ? 1 : static_cast<float>(options.momentum);
  double of_gradient = options.error_feedback ? 1 : 1 - options.momentum;
  moment_ = options.of_moments ? model->moments[0].values : nullptr;
  if (options.of_moments)
    of_gradient = (1 - options.beta1) / static_cast<double>(std::max<std::int64_t>(1, gradient.micro_batches()));
  const bool changes_units = options.error_feedback && options.units == CompressionOptions::Units::step;
  if (changes_units && rate_ != 0 && rate != 0) of_memory_ = static_cast<float>(rate_ / rate);
  if (rate != 0) rate_ = rate;
  const bool is_first = !memory_, is_last = exchanges.size() == 1;
  const bool sends = exchange.operation != Operation::broadcast || compressor_->root(step) == worker_;
  if (is_first) memory_ = new_cell();
  const ProcessSet places = training_.place();
  const CellPtr read[] = {is_first ? nullptr : memory_, common_ ? common_->front().words : nullptr, moment_};
  std::vector<std::shared_ptr<Task>> prerequisites = training_.brought(read, places);

  if (sends) packet.words = new_cell();
  if (!is_last) statistics_ = new_cell();
  const std::size_t words = words_of(exchange), parameters = training_.objective().parameters();
  const std::size_t buffers = training_.objective().buffers();
  const std::size_t remembered = compressor_->vectors() * parameters;
  const auto encode = [=, compressor = compressor_, memory = memory_, common = common_, worker = worker_,
                       moment = moment_, beta1 = static_cast<float>(options.beta1), of_memory = of_memory_,
                       micro_batches = gradient.micro_batches(), out = packet.words,
                       apart = is_last ? nullptr : statistics_](const GradientSum& sum, double scale) {
    if (is_first) memory->value = FlatVector(remembered);
    if (is_first) std::ranges::fill(memory->value.span(), 0.0f);
    const std::span<float> own = memory->value.span();
    take_in(*compressor, sum, scale * of_gradient, of_memory, parameters, micro_batches, own);
    if (moment) add_scaled(own.data(), beta1, std::as_const(moment->value).data(), parameters);
    FlatVector values(words + (is_last ? buffers : 0)), statistics(is_last ? 0 : buffers);
    if (out)
      compressor->encode(worker, step, common ? std::as_const(common->front().words->value).data() : nullptr, own,
                         values.data());
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
  auto cell = new_cell();
  const CellPtr sum = first->front().words;
  const auto prepare = [compressor = compressor_, sum, cell] {
    FlatVector values(sum->value.size());
    std::ranges::copy(sum->value.span(), values.data());
    compressor->prepare(values.data());
    cell->value = std::move(values);
  };
  training_.compute({.reads = {sum}, .writes = {cell}, .work = prepare}, ProcessSet::everywhere());
  return cell;
}

Packet CompressedSum::second_packet(std::vector<MicroBatch> carried, Step step, const CellPtr& between) {
  const Exchange exchange = exchanges(step).back();
  Packet packet{.words = {}, .size = exchange.packet, .carried = std::move(carried)};
  if (training_.time_only()) return packet;
  packet.words = new_cell();
  const CellPtr statistics = std::exchange(statistics_, nullptr);
  const auto encode = [=, compressor = compressor_, memory = memory_, words = words_of(exchange), out = packet.words] {
    const std::span<float> own = memory->value.span();
    FlatVector values = last_words(compressor->has_own_sizes() ? compressor->second_words(own) : words, statistics);
    compressor->encode_second(step, std::as_const(between->value).data(), own, values.data());
    out->value = std::move(values);
  };
  training_.compute({.reads = {memory_, between, statistics}, .writes = {memory_, packet.words}, .work = encode});
  if (!compressor_->has_own_sizes()) return packet;
  // All have begun to compute by the first exchange, so that nobody's arithmetic waits for this one's.
  const auto wait = [&] {
    training_.executor().wait(packet.words->producer);
    return std::vector{static_cast<double>(std::as_const(packet.words->value).size())};
  };
  const double length = training_.told(1, packet.words->at, wait).front();
  packet.size = bytes_of_words(static_cast<std::size_t>(length) - training_.objective().buffers());
  return packet;
}

Packet CompressedSum::reduced_packet(std::vector<MicroBatch> carried, Step step, const SharedPackets& first,
                                     int chunk) {
  const Exchange exchange = exchanges(step).back();
  Packet packet{.words = {}, .size = exchange.packet, .carried = std::move(carried)};
  if (training_.time_only()) return packet;
  const bool is_first = !owned_;
  if (is_first) owned_ = new_cell();
  const CellPtr statistics = std::exchange(statistics_, nullptr);
  std::vector<CellPtr> read = cells_of(first);
  read.insert(read.end(), {statistics, is_first ? nullptr : owned_});
  packet.words = new_cell();
  const auto reduce = [=, compressor = compressor_, owned = owned_, words = words_of(exchange), of_memory = of_memory_,
                       worker = worker_, out = packet.words] {
    if (is_first) owned->value = FlatVector(compressor->owned(worker));
    const std::span<float> residual = owned->value.span();
    if (is_first || of_memory == 0)
      std::ranges::fill(residual, 0.0f);
    else if (of_memory != 1)
      for (float& value : residual) value *= of_memory;
    std::vector<const float*> chunks = words_of(first);
    for (const float*& begin : chunks) begin += static_cast<std::size_t>(chunk) * words;
    FlatVector values = last_words(words, statistics);
    compressor->reduce(worker, step, chunks, residual, values.data());
    out->value = std::move(values);
  };
  training_.compute({.reads = std::move(read), .writes = {owned_, packet.words}, .work = reduce});
  return packet;
}

Gradient CompressedSum::sum(const Exchanged& exchanged, int workers) const {
  if (training_.time_only()) return Gradient(nullptr, exchanged.micro_batches);
  const auto& [packets, between, micro_batches, step] = exchanged;
  std::vector<MicroBatch> carried;
  for (const Packet& packet : *packets) carried.insert(carried.end(), packet.carried.begin(), packet.carried.end());
  std::vector<CellPtr> read = cells_of(packets);
  const std::size_t parameters = training_.objective().parameters(), buffers = training_.objective().buffers();
  const CellPtr common = common_ ? common_->front().words : nullptr;
  read.insert(read.end(), {between, moment_, common});
  const auto fill = [compressor = compressor_, moment = moment_, common, all = exchanged, workers, parameters,
                     buffers](float* out) {
    std::fill_n(out, parameters + buffers, 0.0f);
    const std::vector<const float*> words = words_of(all.packets);
    compressor->decode({.packets = words,
                        .between = all.between ? std::as_const(all.between->value).data() : nullptr,
                        .common = common ? std::as_const(common->value).data() : nullptr,
                        .workers = workers,
                        .micro_batches = all.micro_batches,
                        .step = all.step},
                       {out, parameters});
    if (compressor->options().of_moments)
      write_gradients_of_moments({out, parameters}, moment ? std::as_const(moment->value).data() : nullptr,
                                 compressor->options().beta1, workers, all.micro_batches);
    for (const Packet& packet : *all.packets) {
      const auto statistics = std::as_const(packet.words->value).span().last(buffers);
      for (std::size_t i = 0; i < buffers; ++i) out[parameters + i] += statistics[i];
    }
  };
  return training_.promised(micro_batches, std::move(carried), read, fill);
}

void CompressedSum::end(const Exchanged& exchanged, int workers) {
  if (training_.time_only()) return;
  moment_ = nullptr;  // so that the step may go on in its place
  const CellPtr common = common_ ? common_->front().words : nullptr;
  if (compressor_->follows_common()) common_ = exchanged.packets;
  if (!compressor_->corrects_residual()) return;
  const auto correct = [compressor = compressor_, memory = memory_, common, all = exchanged, workers] {
    const std::vector<const float*> words = words_of(all.packets);
    compressor->correct({.packets = words,
                         .between = all.between ? std::as_const(all.between->value).data() : nullptr,
                         .common = common ? std::as_const(common->value).data() : nullptr,
                         .workers = workers,
                         .micro_batches = all.micro_batches,
                         .step = all.step},
                        memory->value.span());
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
