// Asks `lockstep serve` as fast as it answers: CLIENTS connections, each with one request at a time
// of one image of noise, as a binary tensor.
//
//   serve_load PORT MODEL HEIGHT WIDTH CHANNELS CLIENTS SECONDS
//
// Prints requests/s and the latencies of half, 99 % and all of the requests.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include <fmt/core.h>

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

/// Reads one response. `bytes` keeps what was read.
void read_response(const Socket& client, std::string& bytes) {
  bytes.clear();
  std::size_t whole = std::string::npos;
  while (bytes.size() < whole) {
    char part[8192];
    const ssize_t got = ::recv(client.get(), part, sizeof part, 0);
    require(got > 0, "the server closed a connection");
    bytes.append(part, static_cast<std::size_t>(got));
    const std::size_t head = bytes.find("\r\n\r\n");
    if (whole != std::string::npos || head == std::string::npos) continue;
    const std::size_t length = bytes.find("Content-Length: ");
    require(bytes.starts_with("HTTP/1.1 200 ") && length < head, bytes.substr(0, 300));
    whole = head + 4 + std::strtoul(bytes.c_str() + length + 16, nullptr, 10);
  }
}

std::vector<double> ask(const Plan& plan) {
  const Socket client = dial(plan.port);
  std::vector<double> took_ms;
  std::string bytes;
  for (double began_s = now_s(); began_s < plan.until_s;) {
    require(::send(client.get(), plan.request.data(), plan.request.size(), MSG_NOSIGNAL) ==
                static_cast<ssize_t>(plan.request.size()),
            "a request could not be sent");
    read_response(client, bytes);
    const double ended_s = now_s();
    took_ms.push_back(1e3 * (ended_s - began_s));
    began_s = ended_s;
  }
  return took_ms;
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
  require(words.size() == 7, "serve_load PORT MODEL HEIGHT WIDTH CHANNELS CLIENTS SECONDS");
  const auto number = [&](std::size_t at) { return parse_count(words[at], "a number", 1, 65535); };
  const double seconds = static_cast<double>(number(6));
  const Plan plan{.port = static_cast<std::uint16_t>(number(0)),
                  .request = make_request(words[1], {number(2), number(3), number(4)}),
                  .until_s = now_s() + seconds};
  std::vector<std::vector<double>> each(number(5));
  std::vector<std::thread> clients;
  std::atomic<bool> failed{false};
  for (auto& took_ms : each)
    clients.emplace_back([&] {
      try {
        took_ms = ask(plan);
      } catch (const Error& error) {
        failed = true;
        std::fprintf(stderr, "%s\n", error.what());
      }
    });
  for (std::thread& client : clients) client.join();
  std::vector<double> all;
  for (const auto& some : each) all.insert(all.end(), some.begin(), some.end());
  require(!all.empty(), "no request was answered");
  std::sort(all.begin(), all.end());
  const auto share = [&](double of) {
    return all[static_cast<std::size_t>(of * static_cast<double>(all.size() - 1))];
  };
  fmt::print("{} clients: {:.0f} requests/s, p50 {:.2f} ms, p99 {:.2f} ms, most {:.2f} ms\n",
             each.size(), static_cast<double>(all.size()) / seconds, share(0.5), share(0.99),
             all.back());
  return failed ? 1 : 0;
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
