#include "ports/tcp/mesh/link.hpp"

#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

namespace lockstep::tcp {
namespace {

constexpr std::size_t most_at_once = 16;  // messages in one call to the system
constexpr std::size_t few_bytes = 4096;   // not worth a block

/// The oldest one of this tag.
auto first(auto& messages, const comm::MessageTag& tag) {
  const auto found = messages.lower_bound(tag);
  return found != messages.end() && found->first == tag ? found : messages.end();
}

}  // namespace

Arrival::Arrival(std::size_t bytes, comm::Staging& staging) : bytes_(bytes) {
  if (bytes > few_bytes)
    block_ = staging.take();
  else
    few_.resize(bytes);
}

void Arrival::give_back(comm::Staging& staging) {
  if (block_) staging.give_back(std::move(block_));
}

/// It is in the hands of its operation; the link knows of it until it is done.
class LinkMessage final : public comm::Message {
 public:
  /// `to` is null for one that stays in its own memory, as does one of another size.
  LinkMessage(Link& link, void* to, std::size_t wanted)
      : link_(link), to_(static_cast<std::byte*>(to)), wanted_(wanted) {}
  ~LinkMessage() override {
    if (!done_) link_.forget(this);
    arrival_.give_back(link_.staging_);
  }
  bool done() override { return done_; }

  void finish() { done_ = true; }
  void finish(std::size_t got) {
    bytes = got;
    data = arrival_.data();
    done_ = true;
  }
  std::byte* place(std::size_t size) {
    if (to_ && size == wanted_) return to_;
    arrival_ = Arrival(size, link_.staging_);
    return arrival_.data();
  }
  void accept(Arrival& arrival) {
    const std::size_t got = arrival.bytes();
    if (to_ && got == wanted_) {
      if (got > 0) std::memcpy(to_, arrival.data(), got);
      arrival.give_back(link_.staging_);
    } else {
      arrival_ = std::move(arrival);
    }
    finish(got);
  }

 private:
  Link& link_;
  std::byte* const to_;
  const std::size_t wanted_;
  bool done_ = false;
  Arrival arrival_;
};

std::unique_ptr<comm::Message> Link::send(comm::MessageTag tag, const void* data,
                                          std::size_t bytes) {
  auto message = std::make_unique<LinkMessage>(*this, nullptr, 0);
  put({{tag, static_cast<std::uint32_t>(bytes)},
       static_cast<const std::byte*>(data),
       message.get(),
       {}});
  return message;
}

std::unique_ptr<comm::Message> Link::expect(comm::MessageTag tag, void* data, std::size_t bytes) {
  auto message = std::make_unique<LinkMessage>(*this, data, bytes);
  if (const auto arrived = first(arrived_, tag); arrived != arrived_.end()) {
    message->accept(arrived->second);
    arrived_.erase(arrived);
  } else {
    expected_.emplace(tag, message.get());
  }
  return message;
}

void Link::post(comm::LetterKind kind, std::shared_ptr<const std::string> text) {
  Outgoing letter;
  letter.head = {{static_cast<std::uint32_t>(kind), 0}, static_cast<std::uint32_t>(text->size())};
  letter.text = std::move(text);
  ++letters_;
  put(std::move(letter));
}

void Link::put(Outgoing message) {
  outgoing_.push_back(std::move(message));
  if (outgoing_.size() == 1) write();
}

void Link::forget(const LinkMessage* message) {
  const bool arriving = left_ > 0 && message_ == message;
  const bool leaving = written_ > 0 && outgoing_.front().message == message;
  if (arriving || leaving) end();
  std::erase_if(outgoing_, [&](const Outgoing& other) { return other.message == message; });
  std::erase_if(expected_, [&](const auto& entry) { return entry.second == message; });
}

void Link::connect(Socket socket, bool speaks_first) {
  socket_ = std::move(socket);
  written_ = head_got_ = left_ = 0;
  confirmed_ = speaks_first;
  may_write_ = speaks_first;
  if (!speaks_first) return;
  Outgoing first;
  first.head.tag = {here, 0};
  first.text = std::make_shared<const std::string>();
  ++letters_;
  outgoing_.push_front(std::move(first));
  write();
}

void Link::end() {
  socket_.reset();
  gone_ = confirmed_;
}

bool Link::write() {
  bool moved = false;
  while (open() && may_write_ && !outgoing_.empty()) {
    std::array<iovec, 2 * most_at_once> pieces;
    std::size_t count = 0, wanted = 0, skip = written_;
    const auto add = [&](const void* data, std::size_t bytes) {
      const std::size_t cut = std::min(skip, bytes);
      skip -= cut;
      if (bytes == cut) return;
      pieces[count++] = {const_cast<std::byte*>(static_cast<const std::byte*>(data)) + cut,
                         bytes - cut};
      wanted += bytes - cut;
    };
    for (std::size_t i = 0; i < std::min(outgoing_.size(), most_at_once); ++i) {
      const Outgoing& message = outgoing_[i];
      add(&message.head, sizeof(Head));
      add(message.message ? message.data : static_cast<const void*>(message.text->data()),
          message.head.bytes);
    }
    msghdr call{};
    call.msg_iov = pieces.data();
    call.msg_iovlen = count;
    const ssize_t sent = sendmsg(socket_.get(), &call, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0) {
      if (errno != EAGAIN) end();
      break;
    }
    moved = true;
    written(static_cast<std::size_t>(sent));
    if (static_cast<std::size_t>(sent) < wanted) break;  // the system tells when there is room
  }
  return moved;
}

void Link::written(std::size_t bytes) {
  for (written_ += bytes; !outgoing_.empty(); outgoing_.pop_front()) {
    const Outgoing& first = outgoing_.front();
    const std::size_t whole = sizeof(Head) + first.head.bytes;
    if (written_ < whole) return;
    written_ -= whole;
    if (first.message)
      first.message->finish();
    else
      --letters_;
  }
}

bool Link::read(bool ends) {
  bool moved = false;
  while (open()) {
    // The rest of this message, and the head of the next one.
    std::array<iovec, 2> pieces;
    std::size_t count = 0;
    const std::size_t head_left = sizeof(Head) - head_got_, wanted = left_ + head_left;
    if (left_ > 0) pieces[count++] = {to_, left_};
    pieces[count++] = {reinterpret_cast<std::byte*>(&head_) + head_got_, head_left};
    const ssize_t result = readv(socket_.get(), pieces.data(), static_cast<int>(count));
    if (result < 0 && errno == EINTR) continue;
    if (result < 0 && errno == EAGAIN) break;
    if (result <= 0) {
      end();
      break;
    }
    moved = confirmed_ = may_write_ = true;
    const auto got = static_cast<std::size_t>(result);
    const std::size_t payload = std::min(got, left_);
    to_ += payload;
    left_ -= payload;
    if (payload > 0 && left_ == 0) end_message();
    head_got_ += got - payload;
    if (head_got_ == sizeof(Head)) begin_message();
    if (got < wanted && !ends) break;  // there is no more
  }
  return moved;
}

void Link::begin_message() {
  arriving_ = head_;
  head_got_ = 0;
  left_ = arriving_.bytes;
  message_ = nullptr;
  const bool is_letter = arriving_.tag.kind < first_transport;
  if (left_ > (is_letter ? comm::letter_bytes : comm::piece_bytes))
    return end();  // not one of ours
  if (is_letter) {
    letter_.resize(left_);
    to_ = reinterpret_cast<std::byte*>(letter_.data());
    if (left_ == 0) end_message();
    return;
  }
  if (const auto expected = first(expected_, arriving_.tag); expected != expected_.end()) {
    message_ = expected->second;
    expected_.erase(expected);
    to_ = message_->place(left_);
  } else {
    arrival_ = Arrival(left_, staging_);
    to_ = arrival_.data();
  }
  if (left_ == 0) end_message();
}

void Link::end_message() {
  if (message_) {
    std::exchange(message_, nullptr)->finish(arriving_.bytes);
  } else if (arriving_.tag.kind < first_transport) {
    if (arriving_.tag.kind != here)
      hear_(static_cast<comm::LetterKind>(arriving_.tag.kind), std::exchange(letter_, {}));
  } else if (const auto late = first(expected_, arriving_.tag); late != expected_.end()) {
    late->second->accept(arrival_);  // it became expected while it arrived
    expected_.erase(late);
  } else {
    arrived_.emplace(arriving_.tag, std::move(arrival_));
  }
}

}  // namespace lockstep::tcp
