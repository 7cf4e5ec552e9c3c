// Asks `lockstep serve`, or another server of the Open Inference Protocol, as fast as it answers:
// CLIENTS connections, each with one request at a time of one image of noise, as a binary tensor;
// next to IDLE connections that hardly ask. With RATE, at random times, that often a second (a
// Poisson process): then a latency counts from the time at which the request should have been sent.
//
//   serve_load PORT MODEL HEIGHT WIDTH CHANNELS CLIENTS SECONDS [IDLE [RATE]]
//
// Prints requests/s, the latencies of half, 99 % and all of the requests, and how many cores the
// clients themselves took, which a server on the same cores does not have.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <iterator>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "lockstep/base/clock.hpp"
#include "lockstep/base/error.hpp"
#include "lockstep/base/owned.hpp"
#include "lockstep/base/rng.hpp"
#include "lockstep/base/text/numbers.hpp"

using namespace lockstep;

namespace {

using Socket = Owned<int, ::close, -1>;

struct Plan {
  std::uint16_t port = 0;
  std::string request;
  double until_s = 0;
  double rate = 0;  ///< requests a second; 0: as fast as they are answered
};

/// When requests are due, which the clients that are free send.
class Arrivals {
 public:
  explicit Arrivals(const Plan& plan) : plan_(plan), next_s_(now_s() + gap_s()) {}
  /// The time of one that is due, and takes it.
  std::optional<double> take() {
    if (plan_.rate == 0) next_s_ = now_s();
    if (over() || left_s() > 0) return std::nullopt;
    return std::exchange(next_s_, next_s_ + gap_s());
  }
  bool over() const { return next_s_ >= plan_.until_s; }
  double left_s() const { return std::max(0.0, next_s_ - now_s()); }

 private:
  double gap_s() {
    if (plan_.rate == 0) return 0;
    const double uniform = draw4(1, 1, ++count_, Draw::synth).word[0] / 4294967296.0;
    return -std::log(1 - uniform) / plan_.rate;
  }
  const Plan& plan_;
  std::uint64_t count_ = 0;
  double next_s_;
};

Socket dial(std::uint16_t port) {
  Socket client(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  require(::connect(client.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0,
          "nothing listens at this port");
  const int on = 1;
  ::setsockopt(client.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  return client;
}

/// One connection, which has one request at a time on its way.
struct Client {
  Socket socket;
  std::string answer = {};  ///< what has come of it
  double began_s = 0;
};

void ask(Client& client, const Plan& plan, double due_s) {
  client.answer.clear();
  client.began_s = due_s;
  require(::send(client.socket.get(), plan.request.data(), plan.request.size(), MSG_NOSIGNAL) ==
              static_cast<ssize_t>(plan.request.size()),
          "a request could not be sent");
}

/// Reads what has come; true when the response is complete.
bool has_answer(Client& client) {
  char part[8192];
  const ssize_t got = ::recv(client.socket.get(), part, sizeof part, 0);
  require(got > 0, "the server closed a connection");
  std::string& bytes = client.answer;
  bytes.append(part, static_cast<std::size_t>(got));
  const std::size_t head = bytes.find("\r\n\r\n");
  if (head == std::string::npos) return false;
  const std::size_t length = std::min(bytes.find("\nContent-Length: "),
                                      bytes.find("\ncontent-length: "));  // as the server has it
  require(bytes.starts_with("HTTP/1.1 200 ") && length < head, bytes.substr(0, 300));
  return bytes.size() >= head + 4 + std::strtoul(bytes.c_str() + length + 17, nullptr, 10);
}

/// What comes before the next request is due.
std::span<epoll_event> wait_for_answers(const Socket& ready, std::span<epoll_event> events,
                                        const Arrivals& arrivals, bool any_free) {
  const double wait_s = any_free && !arrivals.over() ? arrivals.left_s() : 60;
  timespec limit = {};
  limit.tv_sec = static_cast<time_t>(wait_s);
  limit.tv_nsec = static_cast<long>(1e9 * (wait_s - static_cast<double>(limit.tv_sec)));
  const int came =
      ::epoll_pwait2(ready.get(), events.data(), static_cast<int>(events.size()), &limit, nullptr);
  require(came > 0 || wait_s < 60, "no answer in a minute");
  return events.first(static_cast<std::size_t>(std::max(0, came)));
}

/// Milliseconds of each request. One thread for all clients: what they take of the cores is not
/// the server's.
std::vector<double> ask_all(const Plan& plan, std::size_t count) {
  std::vector<Client> clients;
  const Socket ready(::epoll_create1(EPOLL_CLOEXEC));
  for (std::size_t i = 0; i < count; ++i) {
    clients.push_back({.socket = dial(plan.port)});
    epoll_event wanted = {.events = EPOLLIN, .data = {.u64 = i}};
    require(::epoll_ctl(ready.get(), EPOLL_CTL_ADD, clients[i].socket.get(), &wanted) == 0,
            "epoll takes no more connections");
  }
  std::vector<Client*> free;
  for (Client& client : clients) free.push_back(&client);
  std::vector<double> took_ms;
  Arrivals arrivals(plan);
  for (;;) {
    while (!free.empty()) {
      const std::optional<double> due = arrivals.take();
      if (!due) break;
      ask(*free.back(), plan, *due);
      free.pop_back();
    }
    if (free.size() == count && arrivals.over()) return took_ms;
    epoll_event events[64];
    for (const epoll_event& event : wait_for_answers(ready, events, arrivals, !free.empty())) {
      Client& client = clients[event.data.u64];
      if (!has_answer(client)) continue;
      took_ms.push_back(1e3 * (now_s() - client.began_s));
      free.push_back(&client);
    }
  }
}

/// Keeps connections busy with nothing: each asks once in a few seconds, so that it stays.
class IdleCrowd {
 public:
  IdleCrowd(std::uint16_t port, std::size_t count)
      : thread_([this, port, count] {
          std::vector<Socket> sockets;
          while (!stop_) {
            for (std::size_t i = 0; i < count; ++i) {
              if (sockets.size() <= i) sockets.push_back(dial(port));
              constexpr std::string_view request =
                  "GET /v2/health/live HTTP/1.1\r\nHost: here\r\n\r\n";
              char answer[1024];
              if (::send(sockets[i].get(), request.data(), request.size(), MSG_NOSIGNAL) < 0 ||
                  ::recv(sockets[i].get(), answer, sizeof answer, 0) <= 0)
                sockets[i] = dial(port);  // the server was faster
            }
            here_ = true;
            for (int i = 0; i < 70 && !stop_; ++i) ::usleep(100'000);
          }
        }) {
    while (!here_) ::usleep(10'000);
  }
  ~IdleCrowd() {
    stop_ = true;
    thread_.join();
  }

 private:
  std::atomic<bool> stop_{false}, here_{false};
  std::thread thread_;
};

double cpu_s() {
  rusage used = {};
  ::getrusage(RUSAGE_SELF, &used);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
  };
  return seconds(used.ru_utime) + seconds(used.ru_stime);
}

std::string make_request(const std::string& model, const std::vector<std::uint64_t>& shape) {
  const std::size_t bytes = shape[0] * shape[1] * shape[2];
  const std::string json = fmt::format(
      R"({{"parameters":{{"binary_data_output":true}},"inputs":[{{"name":"images",)"
      R"("datatype":"UINT8","shape":[1,{},{},{}],"parameters":{{"binary_data_size":{}}}}}]}})",
      shape[0], shape[1], shape[2], bytes);
  std::string request = fmt::format(
      "POST /v2/models/{}/infer HTTP/1.1\r\nHost: here\r\nInference-Header-Content-Length: {}\r\n"
      "Content-Length: {}\r\n\r\n{}",
      model, json.size(), json.size() + bytes, json);
  for (std::size_t i = 0; i < bytes; ++i)
    request += static_cast<char>(draw4(1, 0, i, Draw::synth).word[0]);
  return request;
}

int run(const std::vector<std::string>& words) {
  require(words.size() >= 7 && words.size() <= 9,
          "serve_load PORT MODEL HEIGHT WIDTH CHANNELS CLIENTS SECONDS [IDLE [RATE]]");
  const auto number = [&](std::size_t at) {
    return parse_count(words[at], "a number", at == 7 ? 0 : 1, 65535);
  };
  const auto port = static_cast<std::uint16_t>(number(0));
  std::optional<IdleCrowd> idle;
  if (words.size() > 7 && number(7) > 0) idle.emplace(port, number(7));
  const Plan plan{.port = port,
                  .request = make_request(words[1], {number(2), number(3), number(4)}),
                  .until_s = now_s() + static_cast<double>(number(6)),
                  .rate = words.size() == 9 ? static_cast<double>(number(8)) : 0};
  const double began_s = now_s(), began_cpu_s = cpu_s();
  std::vector<double> all = ask_all(plan, number(5));
  const double took_s = now_s() - began_s, took_cpu_s = cpu_s() - began_cpu_s;
  std::sort(all.begin(), all.end());
  const auto share = [&](double of) {
    return all[static_cast<std::size_t>(of * static_cast<double>(all.size() - 1))];
  };
  fmt::print(
      "{} clients: {:.0f} requests/s, p50 {:.2f} ms, p99 {:.2f} ms, most {:.2f} ms, clients' "
      "cores {:.3f}\n",
      number(5), static_cast<double>(all.size()) / took_s, share(0.5), share(0.99), all.back(),
      took_cpu_s / took_s);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run({argv + 1, argv + argc});
  } catch (const Error& error) {
    std::fprintf(stderr, "serve_load: %s\n", error.what());
    return 2;
  }
}
