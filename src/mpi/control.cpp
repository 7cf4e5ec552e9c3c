#include "lockstep/comm/control.hpp"

#include <fmt/format.h>

#include <cstdint>
#include <cstring>
#include <functional>
#include <optional>

#include "lockstep/device/idle.hpp"
#include "mpi/factories.hpp"
#include "mpi/mail.hpp"
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

/// One meeting of all ranks, five uses: every rank sends its part to rank 0, which combines them in
/// rank order and releases everybody with the result. The result goes down a binomial tree, because
/// by then all are there; a refusal goes to all directly.
class MpiControl final : public Control {
 public:
  MpiControl(MPI_Comm comm, double deadline_s, RollCall& roll_call)
      : mail_(comm), deadline_s_(deadline_s), roll_call_(roll_call) {
    must(MPI_Comm_rank(comm, &rank_));
    must(MPI_Comm_size(comm, &world_));
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
    send(children, release, result, phase);
    return result.substr(1);
  }

  /// Rank 0: everybody's part, in rank order.
  Parts collect(const std::string& mine, std::string_view phase) {
    Parts parts(static_cast<std::size_t>(world_));
    parts[0] = mine;
    std::string disorder;
    Patience patience(roll_call_, deadline_s_, phase);
    Idle idle;
    for (int here = 1; here < world_;) {
      const std::optional<Mail::Letter> letter = mail_.take(arrival);
      if (!letter) {
        patience.strain();
        idle();
        continue;
      }
      ++here;
      const std::size_t end = letter->text.find('\0');
      const std::string theirs = letter->text.substr(0, end);
      if (theirs != phase && disorder.empty())
        disorder = fmt::format("rank {} is in the phase '{}' while rank 0 is in '{}'", letter->from,
                               theirs, phase);
      parts[static_cast<std::size_t>(letter->from)] = letter->text.substr(end + 1);
    }
    // Said only now, so that everybody hears it.
    if (!disorder.empty()) refuse(disorder);
    return parts;
  }

  /// The other ranks: what rank 0 made of all parts.
  std::string arrive(const std::string& mine, std::string_view phase) {
    send({0}, arrival, std::string(phase) + '\0' + mine, phase);
    Patience patience(roll_call_, deadline_s_, phase);
    Idle idle;
    std::optional<Mail::Letter> answer;
    for (; !(answer = mail_.take(release)); idle()) patience.strain();
    if (answer->text[0] == refused) throw Error(answer->text.substr(1));
    return answer->text;
  }

  [[noreturn]] void refuse(const std::string& why) {
    send(all_but({0}, world_), release, refused + why, why);
    throw Error(why);
  }

  void send(const std::vector<int>& ranks, Tag tag, const std::string& text,
            std::string_view phase) {
    mail_.send(ranks, tag, text);
    Patience patience(roll_call_, deadline_s_, phase);
    for (Idle idle; !mail_.sent(); idle()) patience.strain();
  }

  Mail mail_;
  double deadline_s_;
  RollCall& roll_call_;
  int rank_ = 0, world_ = 1;
};

}  // namespace

std::unique_ptr<Control> make_mpi_control(MPI_Comm comm, double deadline_s, RollCall& roll_call) {
  return std::make_unique<MpiControl>(comm, deadline_s, roll_call);
}

}  // namespace lockstep::comm
