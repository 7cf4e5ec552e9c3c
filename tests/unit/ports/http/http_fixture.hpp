#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>
#include <catch2/catch.hpp>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <filesystem>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <fmt/format.h>

#include "lockstep/base/error.hpp"
#include "lockstep/base/http.hpp"
#include "lockstep/base/owned.hpp"
#include "tests/support/folder_fixture.hpp"

// Clients of a server on this machine, and a service that answers when the test wants.
namespace lockstep::test {

using Socket = Owned<int, ::close, -1>;

/// A connection to a server on this machine, which gives up after 20 s.
inline Socket dial(const HttpServer& server) {
  Socket client(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const timeval patience{.tv_sec = 20, .tv_usec = 0};
  ::setsockopt(client.get(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_port = htons(server.port());
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  REQUIRE(::connect(client.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) ==
          0);
  return client;
}

inline void say(const Socket& client, const std::string& text) {
  REQUIRE(::send(client.get(), text.data(), text.size(), MSG_NOSIGNAL) ==
          static_cast<ssize_t>(text.size()));
}

/// All that comes until the server closes the connection.
inline std::string heard(const Socket& client) {
  std::string all;
  char part[4096];
  for (;;) {
    const ssize_t got = ::recv(client.get(), part, sizeof part, 0);
    if (got == 0 || (got < 0 && errno == ECONNRESET)) return all;
    REQUIRE(got > 0);
    all.append(part, static_cast<std::size_t>(got));
  }
}

inline std::string asked(const HttpServer& server, const std::string& request) {
  const Socket client = dial(server);
  say(client, request);
  return heard(client);
}

inline std::string request(const std::string& line, const std::string& more = "") {
  return line + " HTTP/1.1\r\nHost: here\r\nConnection: close\r\n" + more + "\r\n";
}

inline HttpResponse echo(const HttpRequest& request) {
  if (request.path == "/broken") throw std::runtime_error("a fault");
  const auto colour = request.headers.find("x-colour");
  return {.status = request.method == "POST" ? 201u : 200u,
          .type = "text/x-echo",
          .body = fmt::format("{} {} {} {}", request.method, request.path,
                              colour == request.headers.end() ? "-" : colour->second, request.body),
          .headers = {{"X-More", "yes"}}};
}

/// Keeps requests until the test answers them.
class Later final : public HttpService {
 public:
  std::atomic<int> open{0};  ///< visits
  Begun begin(const HttpRequest& request) override {
    if (request.path == "/refused") return HttpResponse{.status = 403, .body = "not here"};
    return std::make_unique<Visit>(*this);
  }
  HttpVisit::Respond wait_for(std::size_t number, std::string* body = nullptr) {
    std::unique_lock lock(mutex_);
    REQUIRE(
        came_.wait_for(lock, std::chrono::seconds(20), [&] { return waiting_.size() > number; }));
    if (body != nullptr) *body = waiting_[number].first.body;
    return waiting_[number].second;
  }

 private:
  class Visit final : public HttpVisit {
   public:
    explicit Visit(Later& later) : later_(later) { ++later_.open; }
    ~Visit() override { --later_.open; }
    Visit(const Visit&) = delete;
    Visit& operator=(const Visit&) = delete;
    void answer(HttpRequest request, Respond respond) override {
      const std::scoped_lock lock(later_.mutex_);
      later_.waiting_.push_back({std::move(request), std::move(respond)});
      later_.came_.notify_all();
    }

   private:
    Later& later_;
  };
  std::mutex mutex_;
  std::condition_variable came_;
  std::vector<std::pair<HttpRequest, HttpVisit::Respond>> waiting_;
};

/// The server, asked through a Unix socket.
inline std::string asked_locally(const std::string& path, const std::string& request) {
  Socket client(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  path.copy(address.sun_path, sizeof address.sun_path - 1);
  REQUIRE(::connect(client.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) ==
          0);
  say(client, request);
  return heard(client);
}

}  // namespace lockstep::test
