#include "lockstep/comm/control.hpp"

#include <fmt/format.h>

#include <climits>
#include <cstdint>
#include <cstring>
#include <functional>
#include <optional>

#include "lockstep/device/idle.hpp"
#include "mpi/call.hpp"
#include "mpi/factories.hpp"
#include "mpi/patience.hpp"
#include "mpi/rank_list.hpp"

namespace lockstep::comm {
namespace {

enum Tag : int { arrival, release };
constexpr char agreed = 'y', refused = 'n';  // a release's first byte

template <class Value>
std::string as_bytes(const std::vector<Value>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(Value)};
}

std::vector<double> as_doubles(std::string_view bytes) {
  std::vector<double> values(bytes.size() / sizeof(double));
  std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

/// One meeting of all ranks, five uses: every rank sends its part to rank 0, which combines them
/// and releases everybody with the result. Rank 0 hears from each rank directly, so that it can
/// name those that are absent; the result goes down a binomial tree, because by then all are there.
/// A refusal goes directly to those that came.
class MpiControl final : public Control {
 public:
  MpiControl(MPI_Comm comm, double deadline_s) : comm_(comm), deadline_s_(deadline_s) {
    must(MPI_Comm_rank(comm_, &rank_));
    must(MPI_Comm_size(comm_, &world_));
  }

  int rank() const override { return rank_; }
  int world() const override { return world_; }

  void barrier(std::string_view phase) override {
    meet("", phase, [](const Parts&) { return std::string(); });
  }

  std::vector<std::string> gather(const std::string& mine, std::string_view phase) override {
    const std::string all = meet(mine, phase, [](const Parts& parts) {
      std::vector<std::uint64_t> sizes;
      std::string text;
      for (const std::string& part : parts) {
        sizes.push_back(part.size());
        text += part;
      }
      return as_bytes(sizes) + text;
    });
    std::vector<std::uint64_t> sizes(static_cast<std::size_t>(world_));
    std::memcpy(sizes.data(), all.data(), sizes.size() * sizeof(std::uint64_t));
    std::vector<std::string> parts;
    std::size_t offset = sizes.size() * sizeof(std::uint64_t);
    for (const std::uint64_t size : sizes) {
      parts.push_back(all.substr(offset, size));
      offset += size;
    }
    return parts;
  }

  std::string broadcast(const std::string& from_root, std::string_view phase) override {
    return meet(rank_ == 0 ? from_root : "", phase, [](const Parts& parts) { return parts[0]; });
  }

  std::vector<double> sum(const std::vector<double>& values, std::string_view phase) override {
    return fold(values, phase, [](double a, double b) { return a + b; });
  }

  std::vector<double> max(const std::vector<double>& values, std::string_view phase) override {
    return fold(values, phase, [](double a, double b) { return a > b || a != a ? a : b; });
  }

 private:
  using Parts = std::vector<std::string>;
  using Combine = std::function<std::string(const Parts&)>;
  struct Message {
    int from;
    std::string text;
  };

  std::vector<double> fold(const std::vector<double>& values, std::string_view phase,
                           const std::function<double(double, double)>& operation) {
    return as_doubles(meet(as_bytes(values), phase, [&](const Parts& parts) {
      std::vector<double> total = as_doubles(parts[0]);
      for (std::size_t r = 1; r < parts.size(); ++r) {
        const std::vector<double> one = as_doubles(parts[r]);
        check(one.size() == total.size(), fmt::format("{}: rank 0 has {} values, rank {} has {}",
                                                      phase, total.size(), r, one.size()));
        for (std::size_t i = 0; i < one.size(); ++i) total[i] = operation(total[i], one[i]);
      }
      return as_bytes(total);
    }));
  }

  std::string meet(const std::string& mine, std::string_view phase, const Combine& combine) {
    const std::string result =
        rank_ == 0 ? agreed + combine(collect(mine, phase)) : arrive(mine, phase);
    std::vector<int> children;
    for (int step = 1; rank_ + step < world_ && (rank_ & step) == 0; step *= 2)
      children.push_back(rank_ + step);
    send(children, result, phase);
    return result.substr(1);
  }

  /// Rank 0: everybody's part, in rank order.
  Parts collect(const std::string& mine, std::string_view phase) {
    Parts parts(static_cast<std::size_t>(world_));
    parts[0] = mine;
    std::vector<int> here{0};
    std::string disorder;
    Patience patience(deadline_s_);
    for (Idle idle; here.size() < parts.size(); idle()) {
      while (std::optional<Message> message = receive(arrival)) {
        const std::size_t end = message->text.find('\0');
        const std::string theirs = message->text.substr(0, end);
        here.push_back(message->from);
        if (theirs != phase && disorder.empty())
          disorder = fmt::format("rank {} is in the phase '{}' while rank 0 is in '{}'",
                                 message->from, theirs, phase);
        parts[static_cast<std::size_t>(message->from)] = message->text.substr(end + 1);
      }
      if (here.size() < parts.size() && patience.over())
        refuse(here, disorder.empty() ? fmt::format("{}: {} did not arrive within {} s", phase,
                                                    rank_list(all_but(here, world_)), deadline_s_)
                                      : disorder);
    }
    // Said only now, so that everybody hears it.
    if (!disorder.empty()) refuse(here, disorder);
    return parts;
  }

  /// The other ranks: what rank 0 made of all parts.
  std::string arrive(const std::string& mine, std::string_view phase) {
    outgoing_ = std::string(phase) + '\0' + mine;
    MPI_Request sent = start_sending(outgoing_, 0, arrival);
    // Rank 0 has its own deadline, and if it is there it knows better who is not.
    Patience patience(1.1 * deadline_s_ + 1);
    for (Idle idle;; idle()) {
      const bool gone = finished(sent);
      if (std::optional<Message> answer = receive(release)) {
        if (answer->text[0] == refused) throw Error(answer->text.substr(1));
        if (!gone) must(MPI_Wait(&sent, MPI_STATUS_IGNORE));
        return answer->text;
      }
      if (patience.over())
        throw Error(fmt::format("{}: rank 0 did not answer within {} s", phase, deadline_s_));
    }
  }

  [[noreturn]] void refuse(const std::vector<int>& here, const std::string& why) {
    send({here.begin() + 1, here.end()}, refused + why, why);
    throw Error(why);
  }

  void send(const std::vector<int>& ranks, const std::string& text, std::string_view phase) {
    outgoing_ = text;
    std::vector<MPI_Request> requests;
    for (const int rank : ranks) requests.push_back(start_sending(outgoing_, rank, release));
    Patience patience(deadline_s_);
    Idle idle;
    for (MPI_Request& request : requests) {
      while (!finished(request)) {
        if (patience.over()) throw Error(fmt::format("{}: a rank stopped listening", phase));
        idle();
      }
    }
  }

  MPI_Request start_sending(const std::string& text, int rank, Tag tag) {
    check(text.size() <= INT_MAX, "a control message is larger than 2 GiB");
    MPI_Request request = MPI_REQUEST_NULL;
    must(MPI_Isend(text.data(), static_cast<int>(text.size()), MPI_BYTE, rank, tag, comm_,
                   &request));
    return request;
  }

  std::optional<Message> receive(Tag tag) {
    int found = 0, size = 0;
    MPI_Message handle = MPI_MESSAGE_NULL;
    MPI_Status status;
    must(MPI_Improbe(MPI_ANY_SOURCE, tag, comm_, &found, &handle, &status));
    if (found == 0) return std::nullopt;
    must(MPI_Get_count(&status, MPI_BYTE, &size));
    Message message{status.MPI_SOURCE, std::string(static_cast<std::size_t>(size), '\0')};
    must(MPI_Mrecv(message.text.data(), size, MPI_BYTE, &handle, MPI_STATUS_IGNORE));
    return message;
  }

  MPI_Comm comm_;
  double deadline_s_;
  int rank_ = 0, world_ = 1;
  std::string outgoing_;  // what MPI may still be sending, also after an Error
};

}  // namespace

std::unique_ptr<Control> make_mpi_control(MPI_Comm comm, double deadline_s) {
  return std::make_unique<MpiControl>(comm, deadline_s);
}

}  // namespace lockstep::comm
