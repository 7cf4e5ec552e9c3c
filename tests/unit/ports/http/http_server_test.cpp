#include "tests/unit/ports/http/http_fixture.hpp"

using namespace lockstep;
using namespace lockstep::test;
using Catch::Matchers::Contains;
using Catch::Matchers::StartsWith;

TEST_CASE("a response may come later, from another thread, and in any order", "[http]") {
  Later later;
  const auto server = make_http_server({.most_body_bytes = 100}, later);
  const Socket first = dial(*server), second = dial(*server);
  say(first, request("POST /a", "Content-Length: 3\r\n") + "one");
  std::string body;
  const auto to_first = later.wait_for(0, &body);
  CHECK(body == "one");
  say(second, request("GET /b"));
  const auto to_second = later.wait_for(1);
  CHECK(server->open_requests() == 2);
  std::thread([&] { to_second({.body = "second"}); }).join();
  CHECK_THAT(heard(second), Contains("\r\n\r\nsecond"));
  to_first({.status = 201, .body = "first"});
  to_first({.status = 500, .body = "again"});
  CHECK_THAT(heard(first), StartsWith("HTTP/1.1 201 ") && Contains("\r\n\r\nfirst"));
  for (int i = 0; i < 2000 && server->open_requests() > 0; ++i) ::usleep(10'000);
  CHECK(server->open_requests() == 0);
}

TEST_CASE("a service's visit lasts until its response has left, or its connection has ended",
          "[http]") {
  Later later;
  const auto server = make_http_server({.most_body_bytes = 100}, later);
  const auto until_open = [&](int wanted) {
    for (int i = 0; i < 2000 && later.open != wanted; ++i) ::usleep(10'000);
    return later.open == wanted;
  };
  Socket gone = dial(*server);
  say(gone, request("POST /a", "Content-Length: 3\r\n") + "on");
  CHECK(until_open(1));
  gone = {};
  CHECK(until_open(0));
  const Socket stays = dial(*server);
  say(stays, "GET /b HTTP/1.1\r\nHost: here\r\n\r\n");
  later.wait_for(0)({.body = "answer"});
  CHECK(until_open(0));
}

TEST_CASE("a service refuses by the headers alone, and a server's own errors have its form",
          "[http]") {
  Later later;
  const auto server = make_http_server({.most_body_bytes = 10}, later);
  const std::string long_body = request("POST /refused", "Content-Length: 50\r\n");
  CHECK_THAT(asked(*server, long_body + std::string(50, 'x')), StartsWith("HTTP/1.1 403 "));
  CHECK_THAT(
      asked(*server, request("POST /refused", "Expect: 100-continue\r\nContent-Length: 9\r\n")),
      StartsWith("HTTP/1.1 403 ") && Contains("not here"));
  CHECK_THAT(asked(*server, request("POST /", "Content-Length: 11\r\n") + std::string(11, 'x')),
             StartsWith("HTTP/1.1 413 ") && Contains("a body has at most 10 bytes"));
}

TEST_CASE("a server that ends answers what waits, and a response after that is lost", "[http]") {
  Later later;
  auto server = make_http_server({}, later);
  const Socket client = dial(*server);
  say(client, request("GET /"));
  const auto respond = later.wait_for(0);
  server.reset();
  respond({.body = "late"});
  CHECK_THAT(heard(client), !Contains("late"));
}

TEST_CASE("bodies that are too many together get 503, and are taken again when some have left",
          "[http]") {
  Later later;
  const auto server = make_http_server(
      {.most_body_bytes = 100, .budget = std::make_shared<ByteBudget>(150)}, later);
  const std::string hundred = request("POST /", "Content-Length: 100\r\n") + std::string(100, 'x');
  const Socket first = dial(*server);
  say(first, hundred);
  const auto respond = later.wait_for(0);
  CHECK_THAT(asked(*server, hundred), StartsWith("HTTP/1.1 503 ") && Contains("Retry-After: 1"));
  respond({.body = "done"});
  CHECK_THAT(heard(first), Contains("done"));
  for (int i = 0; i < 2000 && server->open_requests() > 0; ++i) ::usleep(10'000);
  const Socket again = dial(*server);
  say(again, hundred);
  later.wait_for(1)({.body = "done again"});
  CHECK_THAT(heard(again), Contains("done again"));
}

TEST_CASE("a Unix socket is for its owner, answers, replaces a dead one, and goes with its server",
          "[http]") {
  const test::Folder folder;
  const std::string path = folder.path / "socket";
  {
    const auto server = make_http_server({.socket = path}, echo);
    CHECK((std::filesystem::status(path).permissions() & std::filesystem::perms::all) ==
          (std::filesystem::perms::owner_read | std::filesystem::perms::owner_write));
    CHECK_THAT(asked_locally(path, request("GET /")), StartsWith("HTTP/1.1 200 "));
    CHECK(server->port() == 0);
    CHECK_THROWS_WITH(make_http_server({.socket = path}, echo), Contains("another server"));
    CHECK_THAT(asked_locally(path, request("GET /")), StartsWith("HTTP/1.1 200 "));
  }
  CHECK(!std::filesystem::exists(path));
  {
    Socket dead(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_un address = {};
    address.sun_family = AF_UNIX;
    path.copy(address.sun_path, sizeof address.sun_path - 1);
    REQUIRE(::bind(dead.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0);
  }
  const auto server = make_http_server({.socket = path}, echo);
  CHECK_THAT(asked_locally(path, request("GET /")), StartsWith("HTTP/1.1 200 "));
  test::write_file(folder.path / "file", "x");
  CHECK_THROWS_WITH(make_http_server({.socket = folder.path / "file"}, echo),
                    Contains("not a socket"));
  CHECK_THROWS_WITH(make_http_server({.socket = std::string(200, 'x')}, echo),
                    Contains("1 to 107 bytes"));
}

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
          "[http][waits]") {
  const auto server = make_http_server({.most_body_bytes = 10, .silence_s = 2}, echo);
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

TEST_CASE("a header of which a byte comes now and then does not keep a connection",
          "[http][waits]") {
  const auto server = make_http_server({.silence_s = 1}, echo);
  const Socket slow = dial(*server), again = dial(*server);
  say(again, "GET / HTTP/1.1\r\nHost: here\r\n\r\n");
  say(slow, "GET / HTTP/1.1\r\nX: ");
  char first;
  REQUIRE(::recv(again.get(), &first, 1, 0) == 1);
  int sent = 0;  // a byte each 0.2 s, for up to a minute
  const auto drips = [](const Socket& to) {
    return ::send(to.get(), "x", 1, MSG_NOSIGNAL | MSG_DONTWAIT) == 1;
  };
  bool open = true, open_again = true;
  for (; sent < 300 && (open || open_again); ++sent, ::usleep(200'000)) {
    open = open && drips(slow);
    open_again = open_again && drips(again);
  }
  CHECK((!open && !open_again));
  CHECK_THAT(asked(*server, request("GET /")), StartsWith("HTTP/1.1 200 "));
}

TEST_CASE("a body that drips, or comes for too long, does not keep a connection", "[http][waits]") {
  const HttpSpec drips{.most_body_bytes = 1000, .silence_s = 1};
  const HttpSpec lasts{
      .most_body_bytes = 1000, .silence_s = 100, .body_bytes_per_s = 1, .body_s = 1};
  const auto server = make_http_server(GENERATE_COPY(drips, lasts), echo);
  const Socket slow = dial(*server);
  say(slow, request("POST /", "Content-Length: 900\r\n"));
  int sent = 0;  // a byte each 0.2 s, for up to a minute
  while (sent < 300 && ::send(slow.get(), "x", 1, MSG_NOSIGNAL | MSG_DONTWAIT) == 1)
    ++sent, ::usleep(200'000);
  CHECK(sent < 300);
  CHECK_THAT(asked(*server, request("POST /", "Content-Length: 5\r\n") + "hello"),
             StartsWith("HTTP/1.1 201 "));
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
