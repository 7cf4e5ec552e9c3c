#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>
#include <catch2/catch.hpp>

#include <stdexcept>
#include <string>
#include <vector>

#include <fmt/core.h>

#include "lockstep/base/error.hpp"
#include "lockstep/base/http.hpp"
#include "lockstep/base/owned.hpp"

using namespace lockstep;
using Catch::Matchers::Contains;
using Catch::Matchers::StartsWith;

namespace {

using Socket = Owned<int, ::close, -1>;

/// A connection to a server on this machine, which gives up after 20 s.
Socket dial(const HttpServer& server) {
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

void say(const Socket& client, const std::string& text) {
  REQUIRE(::send(client.get(), text.data(), text.size(), MSG_NOSIGNAL) ==
          static_cast<ssize_t>(text.size()));
}

/// All that comes until the server closes the connection.
std::string heard(const Socket& client) {
  std::string all;
  char part[4096];
  for (;;) {
    const ssize_t got = ::recv(client.get(), part, sizeof part, 0);
    if (got == 0 || (got < 0 && errno == ECONNRESET)) return all;
    REQUIRE(got > 0);
    all.append(part, static_cast<std::size_t>(got));
  }
}

std::string asked(const HttpServer& server, const std::string& request) {
  const Socket client = dial(server);
  say(client, request);
  return heard(client);
}

std::string request(const std::string& line, const std::string& more = "") {
  return line + " HTTP/1.1\r\nHost: here\r\nConnection: close\r\n" + more + "\r\n";
}

HttpResponse echo(const HttpRequest& request) {
  if (request.path == "/broken") throw std::runtime_error("a fault");
  const auto colour = request.headers.find("x-colour");
  return {.status = request.method == "POST" ? 201u : 200u,
          .type = "text/x-echo",
          .body = fmt::format("{} {} {} {}", request.method, request.path,
                              colour == request.headers.end() ? "-" : colour->second, request.body),
          .headers = {{"X-More", "yes"}}};
}

}  // namespace

TEST_CASE("a request's method, path, headers and body come to the answer, which goes back whole",
          "[http]") {
  const auto server = make_http_server({.most_body_bytes = 100}, echo);
  const std::string got = asked(*server, request("GET /a/b?c=d", "X-Colour: red\r\n"));
  CHECK_THAT(got, StartsWith("HTTP/1.1 200 "));
  CHECK_THAT(got, Contains("Content-Type: text/x-echo\r\n") && Contains("X-More: yes\r\n") &&
                      Contains("\r\n\r\nGET /a/b red "));
  CHECK_THAT(asked(*server, request("POST /", "Content-Length: 5\r\n") + "hello"),
             StartsWith("HTTP/1.1 201 ") && Contains("\r\n\r\nPOST / - hello"));
}

TEST_CASE("an answer that fails is status 500, and the server continues", "[http]") {
  const auto server = make_http_server({}, echo);
  CHECK_THAT(asked(*server, request("GET /broken")), StartsWith("HTTP/1.1 500 "));
  CHECK_THAT(asked(*server, request("GET /")), StartsWith("HTTP/1.1 200 "));
}

TEST_CASE("a request that is too long, or no request at all, is an error, and the server continues",
          "[http]") {
  const auto server = make_http_server({.most_body_bytes = 10}, echo);
  CHECK_THAT(asked(*server, request("POST /", "Content-Length: 11\r\n") + std::string(11, 'x')),
             StartsWith("HTTP/1.1 413 "));
  const Socket endless = dial(*server);
  const std::string header = "GET / HTTP/1.1\r\nX: " + std::string(1000, 'x');
  say(endless, header);
  for (int i = 0; i < 60; ++i)
    if (::send(endless.get(), header.data(), header.size(), MSG_NOSIGNAL) < 0) break;
  CHECK_THAT(heard(endless), StartsWith("HTTP/1.1 4") || Catch::Equals(""));
  CHECK_THAT(asked(*server, std::string(64, '\0') + "\r\n\r\n"), !Contains("200 OK"));
  CHECK_THAT(asked(*server, request("GET /")), StartsWith("HTTP/1.1 200 "));
}

TEST_CASE("a connection that says nothing, or half a request, is closed", "[http][waits]") {
  const auto server = make_http_server({.silence_s = 1}, echo);
  const Socket silent = dial(*server), half = dial(*server);
  say(half, "POST / HTTP/1.1\r\nHost: here\r\nContent-Length: 9\r\n\r\nha");
  CHECK(heard(silent).empty());
  CHECK_THAT(heard(half), !Contains("201"));
}

TEST_CASE("more connections than allowed get no answer before others end, and do no harm",
          "[http]") {
  const auto server = make_http_server({.most_connections = 2}, echo);
  std::vector<Socket> held;
  for (int i = 0; i < 2; ++i) {
    held.push_back(dial(*server));
    say(held.back(), "GET / HTTP/1.1\r\nHost: here\r\n\r\n");
    char one;
    REQUIRE(::recv(held.back().get(), &one, 1, 0) == 1);
  }
  // It waits to be accepted, or is closed.
  const Socket third = dial(*server);
  say(third, request("GET /"));
  char one;
  ::usleep(300'000);
  CHECK(::recv(third.get(), &one, 1, MSG_DONTWAIT) <= 0);
  held.clear();
  CHECK_THAT(heard(third), StartsWith("HTTP/1.1 200 ") || Catch::Equals(""));
  std::string last;
  for (int i = 0; i < 1000 && !last.starts_with("HTTP/1.1 200 "); ++i, ::usleep(10'000)) {
    const Socket client = dial(*server);
    const std::string text = request("GET /");
    if (::send(client.get(), text.data(), text.size(), MSG_NOSIGNAL) > 0) last = heard(client);
  }
  CHECK_THAT(last, StartsWith("HTTP/1.1 200 "));
}

TEST_CASE("a port in use, and an address of another machine, are named", "[http]") {
  const auto server = make_http_server({}, echo);
  CHECK_THROWS_WITH(
      make_http_server({.port = server->port()}, echo),
      StartsWith(fmt::format("127.0.0.1:{}: ", server->port())) && Contains("already in use"));
  CHECK_THROWS_AS(make_http_server({.host = "192.0.2.1"}, echo), InputError);
  CHECK_THROWS_WITH(make_http_server({.host = "here"}, echo), Contains("'here'"));
}
