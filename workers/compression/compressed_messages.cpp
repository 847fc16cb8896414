#include "workers/compression/compressed_messages.hpp"

#include <algorithm>
#include <utility>

#include "workers/process/run_failure.hpp"
#include "workers/training/course_log.hpp"
#include "workers/training/flat_arithmetic.hpp"
#include "workers/training/gradient_sum.hpp"

namespace syncopate {
namespace {

constexpr std::size_t block_size = 2048;

// What of a flat vector goes in a message, and how many statistics behind its words.
struct Sent {
  std::size_t begin = 0;
  std::size_t size = 0;
  std::size_t statistics = 0;
};

Sent sent_of(Slice slice, const Objective& objective) {
  const auto parameters = static_cast<std::int64_t>(objective.parameters());
  const auto begin = static_cast<std::size_t>(slice.begin(parameters));
  return {begin, static_cast<std::size_t>(slice.end(parameters)) - begin, slice.index == 0 ? objective.buffers() : 0};
}

const float* values_of(const CellPtr& cell) { return std::as_const(cell->value).data(); }

// Adds what the packet stands for to `out`, of the slice.
void decode(const Compressor& compressor, const CellPtr& words, Step number, std::span<float> out) {
  const float* const packet = values_of(words);
  compressor.decode({.packets = {&packet, 1}, .workers = 1, .micro_batches = 1, .step = number}, out);
}

// The residual, before what is sent next comes to it.
std::span<float> begin_with(const CellPtr& residual, bool is_first, bool keeps, std::size_t size) {
  if (is_first) residual->value = FlatVector(size);
  const std::span<float> p = residual->value.span();
  if (is_first || !keeps) std::ranges::fill(p, 0.0f);
  return p;
}

}  // namespace

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
    else if (is_gradient)
      encode_gradient(own, message, number, *made);
    else
      encode_difference(own, message, number, *made);
    packet = std::move(made);
  }
  message.gradient = Gradient(nullptr, message.gradient.micro_batches(), message.gradient.compute_time());
  if (own.compressor->options().returns_rejected && packet->parameters)
    there.unanswered[number] = {message.slice.index, packet->parameters};
  message.model = std::move(packet);
}

void CompressedMessages::encode_gradient(OfSlice& own, const Message& message, Step number, SentPacket& packet) {
  packet.parameters = new_cell();
  packet.carried = training_.travelling(message.gradient);
  const Sent sent = sent_of(message.slice, training_.objective());
  const bool is_first = !own.residual;
  if (is_first) own.residual = new_cell();
  const auto encode = [=, compressor = own.compressor, residual = own.residual, worker = worker_,
                       size = static_cast<std::size_t>(packet.size.value()) / 4,
                       out = packet.parameters](const GradientSum& sum, double scale) {
    const std::span<float> p = begin_with(residual, is_first, compressor->options().error_feedback, sent.size);
    float block[block_size];
    for (std::size_t at = 0; at < sent.size; at += block_size) {
      const std::span<float> piece(block, std::min(block_size, sent.size - at));
      write_block(sum, scale, sent.begin + at, piece);
      add_scaled(p.data() + at, 1.0f, piece.data(), piece.size());
    }
    FlatVector words(size + sent.statistics);
    compressor->encode(worker, number, nullptr, p, words.data());
    const std::span<float> statistics = words.span().subspan(size);
    std::ranges::fill(statistics, 0.0f);
    if (!statistics.empty()) add_buffers(sum, statistics);
    out->value = std::move(words);
  };
  const ProcessSet places = training_.place();
  const CellPtr read[] = {is_first ? nullptr : own.residual};
  std::vector<std::shared_ptr<Task>> prerequisites = training_.brought(read, places);
  own.residual->at = packet.parameters->at = places;
  own.residual->producer = packet.parameters->producer =
      training_.submit_on(message.gradient, std::move(prerequisites), encode);
}

void CompressedMessages::encode_difference(OfSlice& own, const Message& message, Step number, SentPacket& packet) {
  packet.parameters = new_cell();
  const Sent sent = sent_of(message.slice, training_.objective());
  const bool is_first = !own.residual;
  if (is_first) own.residual = new_cell();
  const CellPtr difference = message.model->parameters, buffers = message.model->buffers;
  const auto encode = [=, compressor = own.compressor, residual = own.residual, worker = worker_,
                       size = static_cast<std::size_t>(packet.size.value()) / 4, out = packet.parameters] {
    const std::span<float> p = begin_with(residual, is_first, compressor->options().error_feedback, sent.size);
    add_scaled(p.data(), 1.0f, values_of(difference) + sent.begin, sent.size);
    FlatVector words(size + sent.statistics);
    compressor->encode(worker, number, nullptr, p, words.data());
    if (sent.statistics > 0) std::copy_n(values_of(buffers), sent.statistics, words.data() + size);
    out->value = std::move(words);
  };
  training_.compute({.reads = {is_first ? nullptr : own.residual, difference, buffers},
                     .writes = {own.residual, packet.parameters},
                     .work = encode});
}

void CompressedMessages::hear(Message& from_server) {
  std::map<Step, Unanswered>& unanswered = servers_[from_server.from].unanswered;
  const auto answers = std::span(from_server.numbers).last(from_server.answers);
  const auto as_number = [](double told) { return Step{static_cast<Step::Rep>(told)}; };
  for (const double rejected : answers.first(answers.size() - 1))
    if (const auto sent = unanswered.find(as_number(rejected)); sent != unanswered.end())
      put_back(sent->first, sent->second);
  unanswered.erase(unanswered.begin(), unanswered.lower_bound(as_number(answers.back())));
  from_server.numbers.resize(from_server.numbers.size() - answers.size());
}

// A worker that has lost its state since knows of none that it had sent, so that there is a residual.
void CompressedMessages::put_back(Step number, const Unanswered& packet) {
  const OfSlice& own = slices_[static_cast<std::size_t>(packet.slice)];
  const auto add = [=, compressor = own.compressor, residual = own.residual, words = packet.words] {
    const std::span<float> p = residual->value.span();
    FlatVector sent(p.size());
    std::ranges::fill(sent.span(), 0.0f);
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
  const auto decode_into = [=, number = Step{message.kept}](float* out) {
    std::fill_n(out, parameters, 0.0f);
    decode(*compressor, words, number, {out + sent.begin, sent.size});
  };
  const auto copy_statistics = [=](float* out) {
    std::ranges::copy(std::as_const(words->value).span().last(sent.statistics), out);
  };
  if (message.kind == Message::Kind::gradient) {
    const auto fill = [=](float* out) {
      decode_into(out);
      std::fill_n(out + parameters, buffers, 0.0f);
      copy_statistics(out + parameters);
    };
    const std::int64_t micro_batches = message.gradient.micro_batches();
    const CellPtr read[] = {words};
    const Gradient values = training.promised(micro_batches, packet.carried, read, fill);
    message.gradient = Gradient(values.terms().front().sum, micro_batches, message.gradient.compute_time());
    return;
  }
  constexpr ProcessSet for_all = ProcessSet::everywhere();
  auto difference = std::make_shared<ModelState>();
  difference->id = new_state_id();
  difference->parameters = new_cell();
  const auto fill = [=, out = difference->parameters] {
    FlatVector values(parameters);
    decode_into(values.data());
    out->value = std::move(values);
  };
  training.compute({.reads = {words}, .writes = {difference->parameters}, .work = fill}, for_all);
  if (buffers > 0) {
    difference->buffers = new_cell();
    const auto take = [=, out = difference->buffers] {
      FlatVector values(buffers);
      std::ranges::fill(values.span(), 0.0f);
      copy_statistics(values.data());
      out->value = std::move(values);
    };
    training.compute({.reads = {words}, .writes = {difference->buffers}, .work = take}, for_all);
  }
  message.model = std::move(difference);
}

}  // namespace syncopate
