#include "workers/mpi/mpi_post.hpp"

#include <algorithm>
#include <utility>

#include "workers/mpi/mpi_collectives.hpp"
#include "workers/training/checkpoint_log.hpp"

namespace syncopate {

namespace {

// One tag per part: MPI keeps the order of messages between two ranks with one tag, so the n-th
// envelope of a sender that announces a body belongs to its n-th body.
constexpr int envelope_tag = 1;
constexpr int body_tag = 2;

}  // namespace

MpiPost::MpiPost(MPI_Comm communicator, int participants) : communicator_(communicator), participants_(participants) {
  MPI_Comm_rank(communicator_, &self_.value);
  for (auto& ranks : said_) ranks.assign(participants, std::nullopt);
  for (auto* const counts : {&sent_to_, &received_from_}) counts->assign(participants, 0);
}

void MpiPost::send(Kind kind, Rank to, std::vector<std::byte> contents, std::shared_ptr<const FlatVector> body) {
  post(static_cast<std::int32_t>(kind), to, contents, std::move(body));
}

void MpiPost::announce(News news, std::int64_t value) {
  const auto kind = static_cast<std::int32_t>(kinds + index(news));
  for (int rank = 0; rank < participants_; ++rank)
    if (rank != self_.value) post(kind, Rank{rank}, bytes_of(value), nullptr);
}

void MpiPost::post(std::int32_t kind, Rank to, std::span<const std::byte> contents,
                   std::shared_ptr<const FlatVector> body) {
  ++letters_sent_;
  ++sent_to_[to];
  const Header header{.kind = kind, .from = self_.value, .floats = body ? static_cast<std::int64_t>(body->size()) : 0};
  Outgoing& letter = outbox_.emplace_back(Outgoing{.envelope = bytes_of(header), .body = std::move(body)});
  append_bytes(letter.envelope, contents);
  MPI_Isend(letter.envelope.data(), mpi_count(letter.envelope.size()), MPI_BYTE, to.value, envelope_tag, communicator_,
            &letter.requests[0]);
  if (header.floats > 0)
    MPI_Isend(letter.body->data(), mpi_count(letter.body->size()), MPI_FLOAT, to.value, body_tag, communicator_,
              &letter.requests[1]);
}

void MpiPost::progress() {
  while (true) {
    int arrived = 0;
    MPI_Status status;
    MPI_Iprobe(MPI_ANY_SOURCE, envelope_tag, communicator_, &arrived, &status);
    if (!arrived) break;
    accept(status);
  }
  outbox_.remove_if([](Outgoing& letter) {
    int sent = 0;
    MPI_Testall(2, letter.requests, &sent, MPI_STATUSES_IGNORE);
    return sent != 0;
  });
}

void MpiPost::accept(const MPI_Status& status) {
  ++letters_received_;
  ++received_from_[Rank{status.MPI_SOURCE}];
  int size = 0;
  MPI_Get_count(&status, MPI_BYTE, &size);
  std::vector<std::byte> envelope(static_cast<std::size_t>(size));
  MPI_Recv(envelope.data(), size, MPI_BYTE, status.MPI_SOURCE, envelope_tag, communicator_, MPI_STATUS_IGNORE);
  const auto header = read_bytes<Header>(envelope);
  const auto kind = static_cast<std::size_t>(header.kind);
  if (kind >= kinds) {
    said_.at(kind - kinds)[Rank{header.from}] = read_bytes<std::int64_t>(std::span(envelope).subspan(sizeof(Header)));
    return;
  }
  Incoming& incoming = inboxes_[kind].emplace_back();
  incoming.letter.from = Rank{header.from};
  incoming.letter.contents.assign(envelope.begin() + sizeof(Header), envelope.end());
  if (header.floats == 0) return;
  FlatVector& body = incoming.letter.body = FlatVector(static_cast<std::size_t>(header.floats));
  MPI_Irecv(body.data(), mpi_count(body.size()), MPI_FLOAT, header.from, body_tag, communicator_, &incoming.request);
}

bool MpiPost::Incoming::is_complete() {
  int complete = 0;
  MPI_Test(&request, &complete, MPI_STATUS_IGNORE);
  return complete != 0;
}

std::optional<MpiPost::Letter> MpiPost::take(Kind kind, std::optional<Rank> from) {
  auto& inbox = inboxes_[index(kind)];
  const auto first =
      std::find_if(inbox.begin(), inbox.end(), [&](const Incoming& i) { return !from || i.letter.from == *from; });
  if (first == inbox.end() || !first->is_complete()) return std::nullopt;
  Letter letter = std::move(first->letter);
  inbox.erase(first);
  return letter;
}

bool MpiPost::has_first(Kind kind) {
  auto& inbox = inboxes_[index(kind)];
  return !inbox.empty() && inbox.front().is_complete();
}

bool MpiPost::is_arriving(Kind kind, std::optional<Rank> from) const {
  const auto& inbox = inboxes_[index(kind)];
  return std::any_of(inbox.begin(), inbox.end(), [&](const Incoming& i) { return !from || i.letter.from == *from; });
}

int MpiPost::count_announced(News news, int begin, int end) const {
  const auto& ranks = said_[index(news)];
  return static_cast<int>(
      std::count_if(ranks.begin() + begin, ranks.begin() + end, [](const auto& said) { return said.has_value(); }));
}

void MpiPost::keep(StateArchive& archive) {
  for (auto& inbox : inboxes_) {
    std::uint64_t letters = inbox.size();
    archive(letters);
    if (archive.reads()) inbox.clear();
    for (std::uint64_t i = 0; i < letters; ++i) {
      Letter& letter = archive.reads() ? inbox.emplace_back().letter : inbox[i].letter;
      archive(letter.from, letter.contents, letter.body);
    }
  }
  for (auto& ranks : said_) archive(ranks);
}

bool MpiPost::nothing_under_way() const {
  return outbox_.empty() &&
         std::all_of(inboxes_.begin(), inboxes_.end(), [](const auto& inbox) { return inbox.empty(); });
}

bool MpiPost::has_nothing_half_way() {
  return outbox_.empty() && std::ranges::all_of(inboxes_, [](auto& inbox) {
           return std::ranges::all_of(inbox, [](Incoming& incoming) { return incoming.is_complete(); });
         });
}

}  // namespace syncopate
