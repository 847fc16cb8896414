#include "workers/mpi/mpi_mailbox.hpp"

#include <algorithm>
#include <utility>

#include "workers/mpi/mpi_reduction.hpp"

namespace syncopate {
namespace {

// One tag per part: MPI keeps the order of messages between two ranks with one tag, so the n-th
// header of a sender that announces a body belongs to its n-th body.
constexpr int header_tag = 1;
constexpr int body_tag = 2;

// A model travels as parameters and normalisation buffers; the receiver keeps its own moments.
constexpr AveragePolicy travels{.moments = StatePolicy::keep, .buffers = StatePolicy::average};

}  // namespace

MpiMailbox::MpiMailbox(MPI_Comm communicator, int participants, Training& training)
    : communicator_(communicator), training_(training), ended_(static_cast<std::size_t>(participants), false) {
  MPI_Comm_rank(communicator_, &self_.value);
}

std::shared_ptr<const FlatVector> MpiMailbox::body_of(const Message& message) {
  if (message.carries_model && message.model && message.model->id == last_model_id_) return last_body_;
  std::shared_ptr<FlatVector> body;
  if (training_.time_only()) {
    body = std::make_shared<FlatVector>(time_only_payload(training_));
  } else if (message.carries_model) {
    body = std::make_shared<FlatVector>(training_.averaged_size(travels));
    training_.write_averaged(message.model, travels, body->data());
    last_model_id_ = message.model->id;
    last_body_ = body;
  } else {
    body = std::make_shared<FlatVector>(training_.gradient_size());
    training_.write_values(message.gradient, body->data());
  }
  return body;
}

void MpiMailbox::send(Rank to, const Message& message, Time sent) {
  const bool has_values = message.carries_model || message.gradient.micro_batches() > 0;
  auto body = has_values ? body_of(message) : nullptr;
  post(to,
       {.kind = message.carries_model ? Kind::model : Kind::gradient,
        .from = self_.value,
        .step = message.step.value(),
        .micro_batches = message.gradient.micro_batches(),
        .compute_ns = message.gradient.compute_time().count(),
        .sent_ns = sent.time_since_epoch().count(),
        .floats = body ? static_cast<std::int64_t>(body->size()) : 0},
       body);
}

void MpiMailbox::announce_end() {
  for (int rank = 0; rank < static_cast<int>(ended_.size()); ++rank)
    if (rank != self_.value) post(Rank{rank}, {.kind = Kind::end, .from = self_.value}, nullptr);
}

void MpiMailbox::post(Rank to, const Header& header, std::shared_ptr<const FlatVector> body) {
  Outgoing& letter = outbox_.emplace_back(Outgoing{.header = header, .body = std::move(body)});
  MPI_Isend(&letter.header, sizeof(Header), MPI_BYTE, to.value, header_tag, communicator_, &letter.requests[0]);
  if (header.floats > 0)
    MPI_Isend(letter.body->data(), mpi_count(letter.body->size()), MPI_FLOAT, to.value, body_tag, communicator_,
              &letter.requests[1]);
}

void MpiMailbox::progress() {
  accept_headers();
  outbox_.remove_if([](Outgoing& letter) {
    int sent = 0;
    MPI_Testall(2, letter.requests, &sent, MPI_STATUSES_IGNORE);
    return sent != 0;
  });
}

void MpiMailbox::accept_headers() {
  while (true) {
    int arrived = 0;
    MPI_Status status;
    MPI_Iprobe(MPI_ANY_SOURCE, header_tag, communicator_, &arrived, &status);
    if (!arrived) return;
    Header header;
    MPI_Recv(&header, sizeof(Header), MPI_BYTE, status.MPI_SOURCE, header_tag, communicator_, MPI_STATUS_IGNORE);
    if (header.kind == Kind::end) {
      ended_.at(static_cast<std::size_t>(header.from)) = true;
      continue;
    }
    Incoming& letter = inbox_.emplace_back();
    letter.header = header;
    if (header.floats == 0) continue;
    letter.body = FlatVector(static_cast<std::size_t>(header.floats));
    MPI_Irecv(letter.body.data(), mpi_count(letter.body.size()), MPI_FLOAT, header.from, body_tag, communicator_,
              &letter.request);
  }
}

std::optional<MpiMailbox::Delivery> MpiMailbox::take() {
  if (inbox_.empty()) return std::nullopt;
  int complete = 0;
  MPI_Test(&inbox_.front().request, &complete, MPI_STATUS_IGNORE);
  if (!complete) return std::nullopt;
  Incoming letter = std::move(inbox_.front());
  inbox_.pop_front();
  const Time sent{Duration{letter.header.sent_ns}};
  return Delivery{open(std::move(letter)), sent};
}

Message MpiMailbox::open(Incoming letter) {
  const Header& header = letter.header;
  Message message{.from = Rank{header.from}, .step = Step{header.step}, .gradient = {}, .model = nullptr};
  if (header.kind == Kind::model) {
    message.carries_model = true;
    message.model = training_.from_averaged(std::make_shared<ModelState>(), travels, letter.body.data());
  } else if (header.micro_batches > 0) {
    const Duration compute{header.compute_ns};
    message.gradient = training_.time_only()
                           ? Gradient(nullptr, header.micro_batches, compute)
                           : training_.gradient_from(std::move(letter.body), header.micro_batches, compute);
  }
  return message;
}

bool MpiMailbox::all_others_ended() const {
  for (std::size_t rank = 0; rank < ended_.size(); ++rank)
    if (static_cast<int>(rank) != self_.value && !ended_[rank]) return false;
  return true;
}

}  // namespace syncopate
