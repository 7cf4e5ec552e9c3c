// Which node is the slow or different one: measurements in, verdict out.
#include <cstdio>
#include <filesystem>
#include <set>

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.hpp"
#include "lockstep/cluster/nodes/node_measure.hpp"
#include "lockstep/cluster/topology/bind.hpp"
#include "lockstep/cluster/topology/machine.hpp"
#include "lockstep/comm/record.hpp"
#include "tests/support/folder_fixture.hpp"

namespace {

using namespace lockstep;
using Catch::Matchers::Contains;
using cluster::judge_nodes;
using cluster::LinkFigures;
using cluster::NodeFigures;
using cluster::NodeFindings;
using Texts = std::vector<std::string>;

/// Good nodes n1, n2, ..., which differ only as measurements do.
std::vector<NodeFigures> nodes(std::size_t count) {
  std::vector<NodeFigures> all(count);
  for (std::size_t i = 0; i < count; ++i) {
    const double noise = i % 2 == 0 ? 1.05 : 0.95;
    all[i].host = "n" + std::to_string(i + 1);
    all[i].flops_per_s = 20e9 * noise;
    all[i].cpu_share = 0.98;
    all[i].copy_bytes_per_s = 100e9 * noise;
    all[i].memory_bytes = 512e9;
    all[i].disk = cluster::DiskFigures{500e6 * noise, 1e12, ""};
    all[i].facts = {{"kernel", "6.1"}, {"limit of locked memory", "unlimited"}};
  }
  return all;
}

/// All pairs, at 10 GB/s and 20 us; slower by `factor` where `bad` says so.
template <class Bad>
std::vector<LinkFigures> links(std::size_t count, double factor, Bad bad) {
  std::vector<LinkFigures> all;
  for (std::size_t a = 0; a < count; ++a)
    for (std::size_t b = a + 1; b < count; ++b) {
      const double rate = 10e9 * (1 + 0.1 * static_cast<double>((a + b) % 3));
      all.push_back({a, b, bad(a, b) ? rate / factor : rate, 20e-6});
    }
  return all;
}
std::vector<LinkFigures> good_links(std::size_t count) {
  return links(count, 1, [](std::size_t, std::size_t) { return false; });
}

std::string text(const NodeFindings& found) {
  std::string all;
  for (const std::string& finding : found.findings) all += finding + "\n";
  return all;
}

}  // namespace

TEST_CASE("equal nodes pass, however many", "[preflight]") {
  for (const std::size_t count : {1, 2, 3, 16}) {
    const NodeFindings found = judge_nodes(nodes(count), good_links(count));
    INFO(count << ": " << text(found));
    CHECK(found.findings.empty());
    CHECK(found.exclude.empty());
  }
}

TEST_CASE("a node that is slow in one thing is named with its figure and the others'",
          "[preflight]") {
  for (const std::size_t count : {2, 3, 8}) {
    const auto judged = [&](auto change) {
      std::vector<NodeFigures> all = nodes(count);
      change(all[1]);
      const NodeFindings found = judge_nodes(all, good_links(count));
      CHECK(found.exclude == Texts{"n2"});
      CHECK(found.findings.size() == 1);
      return text(found);
    };
    CHECK_THAT(judged([](NodeFigures& node) { node.flops_per_s = 9e9; }),
               Contains("n2: arithmetic 9.0 Gflop/s per core, on the other nodes 21.0"));
    CHECK_THAT(
        judged([](NodeFigures& node) { node.cpu_share = 0.3; }),
        Contains("n2: the measuring threads got 30 % of their cores, on the other nodes 98"));
    CHECK_THAT(judged([](NodeFigures& node) { node.copy_bytes_per_s = 50e9; }),
               Contains("n2: memory copies 50.0 GB/s"));
    CHECK_THAT(judged([](NodeFigures& node) { node.memory_bytes = 448e9; }),
               Contains("n2: memory 448.0 GB, on the other nodes 512.0 GB"));
    CHECK_THAT(judged([](NodeFigures& node) { node.disk->write_bytes_per_s = 5e6; }),
               Contains("n2: the disk writes 5.0 MB/s"));
    CHECK_THAT(judged([](NodeFigures& node) { node.disk->error = "/scratch: no space"; }),
               Contains("n2: /scratch: no space"));
  }
}

TEST_CASE("a figure that is not a number does not pass", "[preflight]") {
  std::vector<NodeFigures> all = nodes(3);
  all[2].flops_per_s = 0;
  CHECK(judge_nodes(all, {}).exclude == Texts{"n3"});
}

TEST_CASE("several slow nodes are all named, as long as most are good", "[preflight]") {
  std::vector<NodeFigures> all = nodes(12);
  for (const std::size_t slow : {1, 9, 10}) all[slow].flops_per_s = 5e9;
  CHECK(judge_nodes(all, good_links(12)).exclude == Texts{"n2", "n10", "n11"});
}

TEST_CASE("a disk that no node can use, or that is nearly full, excludes no node", "[preflight]") {
  std::vector<NodeFigures> all = nodes(3);
  for (NodeFigures& node : all) node.disk->error = "/data: Permission denied";
  CHECK(judge_nodes(all, {}).exclude.empty());
  CHECK(judge_nodes(all, {}).findings.size() == 3);
  all = nodes(3);
  all[0].disk->free_bytes = 1e6;
  CHECK(text(judge_nodes(all, {})) == "n1: only 1.0 MB of disk is free\n");
  CHECK(judge_nodes(all, {}).exclude.empty());
  all[0].disk->write_bytes_per_s = 120e6;  // an eighth of a fast disk is fast enough
  all[1].disk->write_bytes_per_s = all[2].disk->write_bytes_per_s = 900e6;
  CHECK(judge_nodes(all, {}).exclude.empty());
}

TEST_CASE("a node that differs from most in a fact is excluded, two camps are only reported",
          "[preflight]") {
  std::vector<NodeFigures> all = nodes(4);
  all[3].facts["limit of locked memory"] = "65536";
  NodeFindings found = judge_nodes(all, {});
  CHECK(text(found) == "n4: limit of locked memory 65536, on 3 other nodes unlimited\n");
  CHECK(found.exclude == Texts{"n4"});

  all[2].facts["limit of locked memory"] = "65536";
  found = judge_nodes(all, {});
  CHECK(text(found) == "limit of locked memory: 65536 on n[3-4], unlimited on n[1-2]\n");
  CHECK(found.exclude.empty());

  all = nodes(3);
  all[0].facts.erase("kernel");
  CHECK(text(judge_nodes(all, {})) == "n1: kernel none, on 2 other nodes 6.1\n");
}

TEST_CASE("a node with slow links is named, and its partners are not", "[preflight]") {
  for (const std::size_t count : {3, 4, 9}) {
    const NodeFindings found = judge_nodes(
        nodes(count), links(count, 20, [](std::size_t, std::size_t b) { return b == 2; }));
    // In `links` b is the larger index: the node 2 has slow links to 0 and 1 only.
    INFO(count << ": " << text(found));
    if (count == 3) CHECK(found.exclude == Texts{"n3"});
    const NodeFindings all_slow = judge_nodes(
        nodes(count),
        links(count, 20, [](std::size_t a, std::size_t b) { return a == 2 || b == 2; }));
    CHECK(all_slow.exclude == Texts{"n3"});
    CHECK(all_slow.findings.size() == 1);
    CHECK_THAT(text(all_slow), Contains("links are slow"));
  }
}

TEST_CASE("two nodes with slow links are both named, also to each other", "[preflight]") {
  const NodeFindings found = judge_nodes(
      nodes(6), links(6, 10, [](std::size_t a, std::size_t b) { return a == 1 || b >= 5; }));
  INFO(text(found));
  CHECK(found.exclude == Texts{"n2", "n6"});
}

TEST_CASE("one slow link among good ones is reported and excludes no node", "[preflight]") {
  const NodeFindings found = judge_nodes(
      nodes(5), links(5, 10, [](std::size_t a, std::size_t b) { return a == 1 && b == 3; }));
  CHECK(found.exclude.empty());
  REQUIRE(found.findings.size() == 1);
  CHECK_THAT(found.findings[0], Contains("between n2 and n4: 1.1 GB/s") && Contains("elsewhere"));
}

TEST_CASE("a link that is fast but late is slow", "[preflight]") {
  std::vector<LinkFigures> all = good_links(4);
  for (LinkFigures& link : all)
    if (link.a == 3 || link.b == 3) link.round_trip_s = 40e-3;
  CHECK(judge_nodes(nodes(4), all).exclude == Texts{"n4"});
  for (LinkFigures& link : all) link.round_trip_s = link.b == 3 ? 1e-3 : 20e-6;
  CHECK(judge_nodes(nodes(4), all).exclude.empty());  // a time slice, not the network
}

TEST_CASE("between two nodes a slow link excludes none, and is slow for any cluster",
          "[preflight]") {
  const NodeFindings found = judge_nodes(nodes(2), {{0, 1, 10e6, 1e-3}});
  CHECK(found.exclude.empty());
  CHECK_THAT(text(found), Contains("between all nodes: 10.0 MB/s") && Contains("the right one"));
}

TEST_CASE("in a tournament each pair meets once, and no one twice in a round", "[preflight]") {
  for (std::size_t count = 0; count <= 17; ++count) {
    std::set<std::pair<std::size_t, std::size_t>> met;
    for (std::size_t round = 0; round < cluster::tournament_rounds(count); ++round)
      for (std::size_t me = 0; me < count; ++me) {
        const auto partner = cluster::partner_in(round, me, count);
        if (!partner) continue;
        REQUIRE(*partner < count);
        REQUIRE(*partner != me);
        REQUIRE(cluster::partner_in(round, *partner, count) == me);
        if (me < *partner) REQUIRE(met.emplace(me, *partner).second);
      }
    CHECK(met.size() == count * (count - (count > 0)) / 2);
  }
}

TEST_CASE("the ranks of a node make one node: its slowest core, all its memory traffic",
          "[preflight]") {
  std::vector<NodeFigures> ranks = nodes(2);
  ranks[0].flops_per_s = 3;
  ranks[1].flops_per_s = 2;
  ranks[0].cpu_share = 0.5;
  ranks[1].cpu_share = 1;
  ranks[0].copy_bytes_per_s = ranks[1].copy_bytes_per_s = 7;
  ranks[1].disk.reset();
  ranks[1].facts.clear();
  const NodeFigures node = cluster::combine(ranks);
  CHECK(node.flops_per_s == 2);
  CHECK(node.cpu_share == 0.75);
  CHECK(node.copy_bytes_per_s == 14);
  CHECK(node.disk);
  CHECK(node.facts.size() == 2);
}

TEST_CASE("figures survive the way to the other ranks", "[preflight]") {
  const NodeFigures before = nodes(1)[0];
  const auto after = comm::read_record<NodeFigures>(comm::write_record(before));
  CHECK(comm::write_record(after) == comm::write_record(before));
  CHECK(after.facts == before.facts);
  CHECK(after.disk->write_bytes_per_s == before.disk->write_bytes_per_s);
  NodeFigures bare;
  CHECK_FALSE(comm::read_record<NodeFigures>(comm::write_record(bare)).disk);
  const auto json = nlohmann::json::parse(
      cluster::to_json(nodes(2), {{0, 1, 5e9, 1e-5}}, {{"a finding"}, {"n2"}}));
  CHECK(json["nodes"].size() == 2);
  CHECK(json["links"][0]["nodes"] == nlohmann::json{"n1", "n2"});
  CHECK(json["exclude"] == nlohmann::json{"n2"});
}

TEST_CASE("this machine can be measured", "[preflight]") {
  NodeFigures node;
  // It measures the share of the cores that others leave, which may be hardly any for a moment.
  for (int tries = 0; tries < 3 && !(node.copy_bytes_per_s > 1e8); ++tries) {
    if (tries > 0) std::puts("RETRIED measuring the cores");
    node = cluster::measure_cores({cluster::current_cpus()});
  }
  CHECK(node.flops_per_s > 1e8);
  CHECK(node.copy_bytes_per_s > 1e8);
  CHECK(node.cpu_share > 0);
  CHECK(node.cpu_share < 1.1);
  CHECK(node.memory_bytes > 1e8);
  CHECK_THROWS_AS(cluster::measure_cores({{9000}}), Error);
}

TEST_CASE("a disk is measured and nothing is left on it, a directory that refuses says why",
          "[preflight]") {
  const test::Folder own;
  const std::filesystem::path& folder = own.path;
  cluster::DiskFigures disk;
  // The measurement gives up after some seconds, which others may take from the disk.
  for (int tries = 0; tries < 3; ++tries) {
    if (tries > 0) std::puts("RETRIED measuring the disk");
    disk = cluster::measure_disk(folder / "not" / "there" / "yet");
    if (disk.error.find("was not written and read within") == disk.error.npos) break;
  }
  CHECK(disk.error.empty());
  CHECK(disk.write_bytes_per_s > 0);
  CHECK(disk.free_bytes > 0);
  CHECK(std::filesystem::is_empty(folder));
  CHECK_THAT(cluster::measure_disk("/proc").error, Contains("/proc/.lockstep-preflight-"));
}

TEST_CASE("a node's facts name its libraries with their builds, its limits, what can be read",
          "[preflight]") {
  const auto facts = cluster::node_facts(cluster::look_at_machine(), cluster::look_at_node({}),
                                         {"/etc/passwd", "/not/there", ""});
  CHECK(facts.at("/etc/passwd") == "can be read");
  CHECK(facts.at("/not/there") == "is not there");
  CHECK(facts.count("") == 0);
  CHECK_THAT(facts.at("library libc"), Contains("libc") && Contains("(build "));
  CHECK(facts.count("library libhwloc") == 1);
  CHECK(facts.at("lockstep's build").size() == 16);
  CHECK_FALSE(facts.at("kernel").empty());
  CHECK(facts.at("limit of open files (ulimit -n)") != "unknown");
}
