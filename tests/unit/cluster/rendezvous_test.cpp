#include <atomic>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <functional>
#include <future>
#include <map>
#include <optional>
#include <thread>

#include <sys/stat.h>
#include <unistd.h>
#include <catch2/catch.hpp>

#include "lockstep/base/clock.hpp"
#include "lockstep/base/error.hpp"
#include "lockstep/comm/control_plane.hpp"
#include "lockstep/comm/worlds/tcp.hpp"
#include "ports/tcp/meeting/handshake.hpp"
#include "ports/tcp/wire.hpp"
#include "tests/support/folder_fixture.hpp"
#include "tests/support/tcp_client.hpp"

namespace {

using namespace lockstep;
using Catch::Matchers::Contains;
using cluster::Variables;
using test::Folder;

cluster::RankInfo rank_of(int rank, int world) {
  cluster::RankInfo info;
  info.rank = rank;
  info.world = world;
  info.host = "localhost";
  info.authority = cluster::Authority::slurm;
  return info;
}

/// Like meeting_place()'s for step 7.0 on two nodes, but all on this machine.
cluster::MeetingPlace place_in(const Folder& folder, const std::string& job = "test/7.0/0") {
  cluster::MeetingPlace place;
  place.job = job;
  place.file = folder.path / "private" / "meeting";
  for (std::uint16_t port = 28100; port < 28200; ++port) place.ports.push_back(port);
  place.node = "localhost";
  place.nodes = {"localhost"};
  place.ranks_on_node = {4};
  return place;
}

/// What a rank reports about its meetings, or the error that ended them.
using Talk = std::function<std::string(comm::Control&)>;

std::string attend(const cluster::MeetingPlace& place, int rank, int world,
                   const comm::MeetingSpec& spec, const Talk& talk) {
  try {
    comm::ControlPlane plane(comm::meet_over_tcp(place, rank_of(rank, world), spec),
                             spec.deadline_s);
    return talk(plane.control());
  } catch (const Error& error) {
    return error.what();
  }
}

std::vector<std::string> all_attend(const cluster::MeetingPlace& place, int world, const Talk& talk,
                                    double deadline_s = 20) {
  std::vector<std::future<std::string>> ranks;
  for (int rank = 0; rank < world; ++rank)
    ranks.push_back(std::async(
        std::launch::async, [&, rank] { return attend(place, rank, world, {deadline_s}, talk); }));
  std::vector<std::string> said;
  for (auto& rank : ranks) said.push_back(rank.get());
  return said;
}

std::string silent(comm::Control&) { return "met"; }

/// Waits for rank 0's card, as long as a test may.
cluster::MeetingCard card_at(const cluster::MeetingPlace& place) {
  for (const double end = now_s() + 60; now_s() < end;) {
    if (const auto card = cluster::read_card(place.file)) return *card;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  throw Error("rank 0 left no card");
}

tcp::Wire dial(const cluster::MeetingCard& card) {
  return tcp::Wire(test::connect_to(card.port), tcp::handshake_limit);
}

/// The next message, or nothing when the other side hangs up.
std::optional<std::string> next(tcp::Wire& wire) { return test::next_message(wire, 30); }

/// Does the handshake with this secret and hello. Returns rank 0's refusal, "welcome", or "unheard"
/// when it hangs up.
std::string knock(const cluster::MeetingCard& card, const tcp::Key& secret,
                  const tcp::Hello& hello) {
  tcp::Wire wire = dial(card);
  const auto host = tcp::read_greeting(next(wire).value_or(""));
  if (!host) return "no greeting";
  const tcp::Nonce mine = tcp::new_nonce();
  wire.send(tcp::make_hello(secret, *host, mine, hello));
  const auto answer = next(wire);
  if (!answer) return "unheard";
  const auto refusal = tcp::read_answer(card.secret, *host, mine, *answer);
  if (!refusal) return "a false answer";
  return refusal->empty() ? "welcome" : *refusal;
}

}  // namespace

TEST_CASE("SipHash gives its authors' tag", "[rendezvous]") {
  tcp::Key key;
  std::string message;
  for (std::uint8_t i = 0; i < 16; ++i) key[i] = i;
  for (char i = 0; i < 15; ++i) message += i;
  CHECK(tcp::siphash(key, message) == 0xa129ca6149be45e5);
}

TEST_CASE("the meeting place is the step's own", "[rendezvous]") {
  Variables variables{{"SLURM_CLUSTER_NAME", "c"},
                      {"SLURM_JOB_ID", "12"},
                      {"SLURM_STEP_ID", "3"},
                      {"SLURM_STEP_NODELIST", "n[1-2]"},
                      {"SLURM_STEP_TASKS_PER_NODE", "1,3"},
                      {"SLURMD_NODENAME", "n2"},
                      {"HOME", "/home/u"}};
  const auto place = [&] {
    return *cluster::meeting_place(
        [&](std::string_view name) -> std::optional<std::string> {
          const auto found = variables.find(name);
          return found == variables.end() ? std::nullopt : std::optional(found->second);
        },
        rank_of(1, 4));
  };
  const cluster::MeetingPlace first = place();
  CHECK(first.job == "c/12.3/0");
  CHECK(first.file == "/home/u/.lockstep/meeting-c-12.3-0");
  CHECK(first.node == "n2");
  CHECK(first.nodes == std::vector<std::string>{"n1", "n2"});
  CHECK(first.ranks_on_node == std::vector<int>{1, 3});
  for (const std::uint16_t port : first.ports) CHECK((port >= 20000 && port < 28000));
  CHECK(place().ports == first.ports);
  variables["SLURM_RESTART_COUNT"] = "1";
  variables["LOCKSTEP_RENDEZVOUS_DIR"] = "/shared";
  CHECK(place().file == "/shared/meeting-c-12.3-1");
  cluster::RankInfo alone;
  CHECK_FALSE(cluster::meeting_place([](auto) { return std::nullopt; }, alone));
}

TEST_CASE("a card comes back as it was left, and is this user's alone", "[rendezvous]") {
  const Folder folder;
  const auto file = folder.path / "private" / "card";
  CHECK_FALSE(cluster::read_card(file));
  const cluster::MeetingCard card =
      cluster::MeetingCard{tcp::new_nonce(), {"n1", "host.domain"}, 20123};
  CHECK(card.secret != tcp::new_nonce());
  cluster::leave_card(file, card);
  const auto read = cluster::read_card(file);
  REQUIRE(read);
  CHECK(read->secret == card.secret);
  CHECK(read->hosts == card.hosts);
  CHECK(read->port == card.port);
  struct stat facts {};
  REQUIRE(stat(file.c_str(), &facts) == 0);
  CHECK((facts.st_mode & 0777) == 0600);
  REQUIRE(stat(file.parent_path().c_str(), &facts) == 0);
  CHECK((facts.st_mode & 0777) == 0700);
  chmod(file.c_str(), 0640);
  CHECK_THROWS_AS(cluster::read_card(file), InputError);
  chmod(file.c_str(), 0600);
  std::ofstream(file) << "lockstep meeting 1\n00";
  CHECK_FALSE(cluster::read_card(file));
  CHECK_THROWS_AS(cluster::leave_card("/nowhere/at/all", card), InputError);
}

TEST_CASE("ranks without MPI agree, gather and broadcast", "[rendezvous]") {
  const Folder folder;
  const auto said = all_attend(place_in(folder), 4, [](comm::Control& control) {
    const std::string big(100000, static_cast<char>('a' + control.rank()));
    std::string text = control.broadcast(control.rank() == 0 ? "the id" : "not mine", "id");
    for (const std::string& part : control.gather(big, "parts")) text += part.substr(99999);
    control.barrier("wait");
    text += std::to_string(control.sum({1.0 * control.rank()}, "sum")[0]);
    text += std::to_string(control.max({1.0 * control.rank()}, "max")[0]);
    return text;
  });
  for (const std::string& text : said) CHECK(text == "the idabcd6.0000003.000000");
  CHECK_FALSE(std::filesystem::exists(place_in(folder).file));
}

TEST_CASE("a world of one rank meets itself", "[rendezvous]") {
  const Folder folder;
  CHECK(all_attend(place_in(folder), 1, silent) == std::vector<std::string>{"met"});
}

TEST_CASE("strangers, false secrets, other jobs and taken ranks do not come in", "[rendezvous]") {
  const Folder folder;
  const cluster::MeetingPlace place = place_in(folder);
  auto host = std::async(std::launch::async, [&] { return attend(place, 0, 3, {60}, silent); });
  const cluster::MeetingCard card = card_at(place);
  tcp::Key wrong = card.secret;
  wrong[3] ^= 1;
  CHECK(knock(card, wrong, {"test/7.0/0", 1, 3, "x"}) == "unheard");
  CHECK_THAT(knock(card, card.secret, {"test/6.0/0", 1, 3, "x"}), Contains("to test/6.0/0"));
  CHECK_THAT(knock(card, card.secret, {"test/7.0/0", 1, 4, "x"}), Contains("a world of 3"));
  CHECK_THAT(knock(card, card.secret, {"test/7.0/0", 3, 3, "x"}), Contains("no other rank 3"));
  CHECK_THAT(knock(card, card.secret, {"test/7.0/0", 0, 3, "x"}), Contains("no other rank 0"));
  tcp::Wire mute = dial(card), liar = dial(card);
  const tcp::Socket http = test::connect_to(card.port);
  REQUIRE(write(http.get(), "GET / HTTP/1.0\r\n\r\n", 18) == 18);
  REQUIRE(next(liar));
  liar.send(std::string(100, 'x'));
  CHECK_FALSE(next(liar));
  std::promise<void> here, leave;
  auto one = std::async(std::launch::async, [&] {
    return attend(place, 1, 3, {60}, [&](comm::Control&) {
      here.set_value();
      leave.get_future().wait();
      return "met";
    });
  });
  here.get_future().wait();
  CHECK_THAT(knock(card, card.secret, {"test/7.0/0", 1, 3, "x"}), Contains("is already here"));
  CHECK(attend(place, 2, 3, {60}, silent) == "met");
  CHECK(host.get() == "met");
  leave.set_value();
  CHECK(one.get() == "met");
}

TEST_CASE("a rank that comes and goes is named to all, without waiting", "[rendezvous]") {
  const Folder folder;
  const cluster::MeetingPlace place = place_in(folder);
  const auto barrier = [](comm::Control& control) {
    control.barrier("start");
    return "met";
  };
  auto host = std::async(std::launch::async, [&] { return attend(place, 0, 4, {60}, barrier); });
  // It may come after the end, and would then wait.
  std::stop_source off;
  std::atomic<bool> came = false;
  auto two = std::async(std::launch::async, [&] {
    return attend(place, 2, 4, {60, 60, off.get_token()}, [&](comm::Control& control) {
      came = true;
      return barrier(control);
    });
  });
  CHECK(attend(place, 1, 4, {60}, silent) == "met");
  CHECK_THAT(host.get(), Contains("rank 1 on localhost came, and its process has ended"));
  off.request_stop();
  const std::string said = two.get();
  if (came || said.find("was cancelled") == said.npos)
    CHECK_THAT(said, Contains("rank 1 on localhost") || Contains("localhost has gone"));
}

TEST_CASE("a rank whose mates are there is not waited for as long as a node",
          "[rendezvous][slow][waits]") {
  const Folder folder;
  cluster::MeetingPlace place = place_in(folder);
  const auto said = [&](std::vector<std::string> nodes, std::vector<int> ranks, double deadline) {
    place.nodes = std::move(nodes);
    place.ranks_on_node = std::move(ranks);
    return attend(place, 0, 2, {deadline, 0.4}, silent);
  };
  CHECK_THAT(said({"localhost"}, {2}, 60),
             Contains("rank 1 did not come") && Contains("within 0.4 s"));
  CHECK_THAT(said({"localhost", "other"}, {1, 1}, 1.5),
             Contains("rank 1 did not come") && Contains("within 1.5 s"));
}

TEST_CASE("a meeting that is cancelled ends at once, for ranks that wait and ranks that come",
          "[rendezvous]") {
  const Folder folder;
  for (const int rank : {0, 1}) {
    std::stop_source off;
    off.request_stop();
    CHECK_THROWS_WITH(
        comm::meet_over_tcp(place_in(folder), rank_of(rank, 2), {60, 60, off.get_token()}),
        Contains("was cancelled"));
  }
}

TEST_CASE("a recorded conversation lets no one in", "[rendezvous]") {
  const tcp::Key secret = tcp::new_nonce();
  const tcp::Nonce host = tcp::new_nonce(), later = tcp::new_nonce(), peer = tcp::new_nonce();
  const std::string hello = tcp::make_hello(secret, host, peer, {"job", 1, 2, "n"});
  CHECK(tcp::read_hello(secret, host, hello));
  CHECK_FALSE(tcp::read_hello(secret, later, hello));
  const std::string answer = tcp::make_answer(secret, host, peer, "");
  CHECK(tcp::read_answer(secret, host, peer, answer) == "");
  CHECK_FALSE(tcp::read_answer(secret, host, later, answer));
}

TEST_CASE("ranks that do not come are named, with their nodes, to all that came",
          "[rendezvous][waits]") {
  const Folder folder;
  cluster::MeetingPlace place = place_in(folder);
  place.nodes = {"localhost", "other"};
  place.ranks_on_node = {1, 3};
  // The missing ranks' second starts when rank 2 has come from their node, however late.
  const auto come = [&](int rank, const char* node) {
    return std::async(std::launch::async, [&place, rank, node] {
      cluster::MeetingPlace mine = place;
      mine.node = node;
      return attend(mine, rank, 4, {60, 1}, [](comm::Control& control) {
        control.barrier("first");
        return "met";
      });
    });
  };
  auto host = come(0, "localhost"), two = come(2, "other");
  for (auto* rank : {&host, &two})
    CHECK_THAT(rank->get(), Contains("ranks 1, 3 did not come") && Contains("within 1 s") &&
                                Contains("from other came 1 of 3"));
}

TEST_CASE("a rank that finds no rank 0 says where it looked", "[rendezvous][slow][waits]") {
  const Folder folder;
  CHECK_THAT(attend(place_in(folder), 1, 2, {0.2}, silent),
             Contains("within 1.22 s by") && Contains("has not written this file") &&
                 Contains("LOCKSTEP_RENDEZVOUS_DIR"));
}

TEST_CASE("what an earlier start left is replaced, and no one follows it",
          "[rendezvous][slow][waits]") {
  const Folder folder;
  const cluster::MeetingPlace place = place_in(folder);
  const tcp::Listener stranger = tcp::listen_on(place.ports);  // where the old rank 0 was
  cluster::leave_card(place.file,
                      cluster::MeetingCard{tcp::new_nonce(), {"localhost"}, stranger.port});
  auto late = std::async(std::launch::async, [&] { return attend(place, 1, 2, {60}, silent); });
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  CHECK(attend(place, 0, 2, {60}, silent) == "met");
  CHECK(late.get() == "met");
}

TEST_CASE("a rank that has gone is named at once", "[rendezvous]") {
  const Folder folder;
  const auto said = all_attend(
      place_in(folder), 3,
      [](comm::Control& control) {
        control.barrier("first");
        if (control.rank() == 1) return std::string("left");
        control.barrier("second");
        return std::string("met");
      },
      60);
  CHECK(said[1] == "left");
  for (const int rank : {0, 2})
    CHECK_THAT(said[static_cast<std::size_t>(rank)],
               Contains("second: rank 1") && Contains("gone"));
}

TEST_CASE("ranks in different phases are told so", "[rendezvous]") {
  const Folder folder;
  for (const std::string& text : all_attend(place_in(folder), 2, [](comm::Control& control) {
         control.barrier(control.rank() == 0 ? "this" : "that");
         return "met";
       }))
    CHECK_THAT(text, Contains("phase 'that'") && Contains("'this'"));
}
