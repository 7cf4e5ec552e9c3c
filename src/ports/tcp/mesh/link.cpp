#include "ports/tcp/mesh/link.hpp"

#include <fmt/core.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "lockstep/base/error.hpp"

namespace lockstep::comm {
namespace {

constexpr std::size_t most_at_once = 16;  // messages in one call to the system
constexpr std::size_t few_bytes = 4096;   // not worth a block

}  // namespace

Arrival::Arrival(std::size_t bytes, Staging& staging) : bytes_(bytes) {
  if (bytes > few_bytes)
    block_ = staging.take();
  else
    few_.resize(bytes);
}

void Arrival::give_back(Staging& staging) {
  if (block_) staging.give_back(std::move(block_));
}

void Link::send(const MessageName& name, const void* data, std::size_t bytes, std::size_t& unsent) {
  ++unsent;
  put({{name, static_cast<std::uint32_t>(bytes)},
       static_cast<const std::byte*>(data),
       &unsent,
       {}});
}

void Link::notify(Notice kind, std::uint32_t number, std::string_view text) {
  Outgoing notice;
  notice.text = text.substr(0, piece_bytes);
  notice.head = {{notice_group, number, static_cast<std::uint32_t>(kind)},
                 static_cast<std::uint32_t>(notice.text.size())};
  put(std::move(notice));
}

void Link::put(Outgoing message) {
  outgoing_.push_back(std::move(message));
  if (outgoing_.size() == 1) write();
}

void Link::expect(const MessageName& name, void* data, std::size_t bytes, std::size_t& missing,
                  const std::string& phase) {
  const auto arrived = arrived_.find(name);
  if (arrived == arrived_.end()) {
    ++missing;
    expected_[name] = {static_cast<std::byte*>(data), bytes, &missing, &phase};
    return;
  }
  check_size(arrived->second.bytes(), bytes, phase);
  if (bytes > 0) std::memcpy(data, arrived->second.data(), bytes);
  arrived->second.give_back(staging_);
  arrived_.erase(arrived);
}

std::optional<Arrival> Link::take(const MessageName& name, std::size_t bytes,
                                  const std::string& phase) {
  const auto arrived = arrived_.find(name);
  if (arrived == arrived_.end()) return std::nullopt;
  check_size(arrived->second.bytes(), bytes, phase);
  std::optional<Arrival> arrival = std::move(arrived->second);
  arrived_.erase(arrived);
  return arrival;
}

void Link::forget(const std::size_t* counter) {
  const bool arriving = left_ > 0 && missing_ == counter;
  const bool leaving = written_ > 0 && outgoing_.front().unsent == counter;
  if (arriving || leaving) end();
  std::erase_if(outgoing_, [&](const Outgoing& message) { return message.unsent == counter; });
  std::erase_if(expected_, [&](const auto& entry) { return entry.second.missing == counter; });
}

void Link::connect(Socket socket, bool speaks_first) {
  socket_ = std::move(socket);
  written_ = head_got_ = left_ = 0;
  confirmed_ = speaks_first;
  may_write_ = speaks_first;
  if (!speaks_first) return;
  Outgoing notice;
  notice.head.name = {notice_group, 0, static_cast<std::uint32_t>(Notice::here)};
  outgoing_.push_front(std::move(notice));
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
      add(message.unsent ? message.data : static_cast<const void*>(message.text.data()),
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
    if (first.unsent) --*first.unsent;
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
  missing_ = nullptr;
  if (left_ > piece_bytes) return end();  // not a message of ours
  const auto expected = expected_.find(arriving_.name);
  if (expected != expected_.end()) {
    check_size(left_, expected->second.bytes, *expected->second.phase);
    to_ = expected->second.data;
    missing_ = expected->second.missing;
    expected_.erase(expected);
  } else {
    arrival_ = Arrival(left_, staging_);
    to_ = arrival_.data();
  }
  if (left_ == 0) end_message();
}

void Link::end_message() {
  if (missing_) {
    --*std::exchange(missing_, nullptr);
  } else if (arriving_.name.group == notice_group) {
    hear();
    arrival_.give_back(staging_);
  } else if (const auto late = expected_.find(arriving_.name); late != expected_.end()) {
    // It became expected while it arrived.
    check_size(arriving_.bytes, late->second.bytes, *late->second.phase);
    if (arriving_.bytes > 0) std::memcpy(late->second.data, arrival_.data(), arriving_.bytes);
    --*late->second.missing;
    expected_.erase(late);
    arrival_.give_back(staging_);
  } else {
    arrived_[arriving_.name] = std::move(arrival_);
  }
}

void Link::check_size(std::size_t got, std::size_t wanted, const std::string& phase) const {
  if (got != wanted) [[unlikely]]
    throw Error(fmt::format("{}: rank {} sent {} elements than this rank receives", phase, peer_,
                            got < wanted ? "fewer" : "more"));
}

void Link::hear() {
  const std::string_view text(reinterpret_cast<const char*>(arrival_.data()), arriving_.bytes);
  switch (static_cast<Notice>(arriving_.name.part)) {
    case Notice::question:
      return notify(Notice::answer, arriving_.name.operation, mine_);
    case Notice::answer:
      answered_ = arriving_.name.operation;
      answer_ = text;
      return;
    case Notice::finding:
      finding_.text = text;
      finding_.outside = arriving_.name.operation != 0;
      return;
    case Notice::here:
      return;
  }
}

}  // namespace lockstep::comm
