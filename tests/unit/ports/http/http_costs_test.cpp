// What clients may cost that do not wait, read or send.
#include "tests/unit/ports/http/http_fixture.hpp"

using namespace lockstep;
using namespace lockstep::test;
using Catch::Matchers::Contains;
using Catch::Matchers::StartsWith;

TEST_CASE("a visit whose client closes its connection ends, though it waits for its response",
          "[http]") {
  Later later;
  const auto server = make_http_server({}, later);
  Socket gone = dial(*server);
  const Socket stays = dial(*server);
  say(gone, request("GET /a"));
  later.wait_for(0);
  say(stays, request("GET /b"));
  const auto respond = later.wait_for(1);
  server->end_gone();
  CHECK(later.open == 2);
  gone = {};
  for (int i = 0; i < 2000 && later.open != 1; ++i, ::usleep(10'000)) server->end_gone();
  CHECK(later.open == 1);
  respond({.body = "answer"});
  CHECK_THAT(heard(stays), Contains("answer"));
}

TEST_CASE("a client that does not read its response loses its connection", "[http][waits]") {
  const auto large = [](const HttpRequest&) {
    return HttpResponse{.body = std::string(std::size_t{16} << 20, 'x')};
  };
  const auto server =
      make_http_server({.budget = std::make_shared<ByteBudget>(std::size_t{20} << 20),
                        .silence_s = 1,
                        .body_bytes_per_s = std::size_t{16} << 20},
                       large);
  const Socket slow = dial(*server);
  say(slow, request("GET /"));
  for (int i = 0; i < 2000 && server->open_requests() == 0; ++i) ::usleep(10'000);
  CHECK_THAT(asked(*server, request("GET /")), StartsWith("HTTP/1.1 503 "));
  for (int i = 0; i < 3000 && server->open_requests() > 0; ++i) ::usleep(10'000);
  CHECK(server->open_requests() == 0);
  CHECK_THAT(asked(*server, request("GET /")), StartsWith("HTTP/1.1 200 "));
}

TEST_CASE("what a client announces costs nothing before it comes", "[http]") {
  Later later;
  const auto server = make_http_server(
      {.most_body_bytes = 100, .budget = std::make_shared<ByteBudget>(150)}, later);
  std::vector<Socket> announced;
  for (int i = 0; i < 5; ++i) {
    announced.push_back(dial(*server));
    say(announced.back(), request("POST /", "Content-Length: 100\r\n") + "x");
  }
  const Socket whole = dial(*server);
  say(whole, request("POST /", "Content-Length: 100\r\n") + std::string(100, 'x'));
  later.wait_for(0)({.body = "taken"});
  CHECK_THAT(heard(whole), Contains("taken"));
}

TEST_CASE("a silent connection gives its place to a client that waits, a busy one does not",
          "[http][waits]") {
  Later later;
  const auto server = make_http_server({.most_connections = 3, .silence_s = 600}, later);
  const Socket busy = dial(*server);
  say(busy, request("GET /a"));
  const auto respond = later.wait_for(0);
  const Socket silent = dial(*server), other = dial(*server), waits = dial(*server);
  say(waits, request("GET /b"));
  later.wait_for(1)({.body = "second"});  // or it fails after a time
  CHECK_THAT(heard(waits), Contains("second"));
  respond({.body = "first"});
  CHECK_THAT(heard(busy), Contains("first"));
}
