// Where memory and threads really are.
#include <sys/mman.h>

#include <cstdlib>
#include <iostream>

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include "lockstep/base/room.hpp"
#include "lockstep/base/text/json_fields.hpp"
#include "lockstep/cluster/topology/bind.hpp"
#include "lockstep/cluster/topology/pages.hpp"
#include "lockstep/observe/binding_record.hpp"

namespace {

using namespace lockstep;
using Catch::Matchers::Contains;
using cluster::PagesOnNodes;

const std::size_t page = page_bytes();

/// Pages that were never touched.
class Mapping {
 public:
  explicit Mapping(std::size_t pages)
      : bytes_(pages * page),
        data_(mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)) {
    madvise(data_, bytes_, MADV_NOHUGEPAGE);  // touching a page must not bring in its neighbours
  }
  ~Mapping() { munmap(data_, bytes_); }
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;
  std::byte* data() { return static_cast<std::byte*>(data_); }
  cluster::Memory all() { return {data(), bytes_}; }

 private:
  std::size_t bytes_;
  void* data_;
};

std::size_t count(const PagesOnNodes& pages) {
  std::size_t sum = 0;
  for (const auto& [node, n] : pages) sum += n;
  return sum;
}

std::string verdict(const PagesOnNodes& pages, int node) {
  return cluster::judge_pages("pinned", pages, node).value_or("");
}

/// Emulators may not know the question.
bool are_located() {
  Mapping memory(1);
  const bool answered = count(cluster::locate_pages({memory.all()})) == 0;
  if (!answered) std::cout << "SKIPPED: the system does not say where pages are\n";
  return answered;
}

}  // namespace

TEST_CASE("only pages that were touched are found, each once") {
  if (!are_located()) return;
  Mapping memory(10);
  CHECK(count(cluster::locate_pages({memory.all()})) == 0);
  for (const std::size_t at : {0, 3, 9}) memory.data()[at * page] = std::byte{1};
  const PagesOnNodes pages = cluster::locate_pages({memory.all()});
  CHECK(count(pages) == 3);
  CHECK(pages.begin()->first >= 0);
}

TEST_CASE("memory that does not begin at a page's border counts its whole pages") {
  Mapping memory(4);
  for (std::size_t at = 0; at < 4; ++at) memory.data()[at * page] = std::byte{1};
  CHECK(count(cluster::locate_pages({{memory.data() + 1, 3 * page - 1}})) == 2);
  CHECK(count(cluster::locate_pages({{memory.data() + 1, page}})) == 0);
  CHECK(cluster::locate_pages({}).empty());
  CHECK(count(cluster::locate_pages({memory.all(), memory.all()})) == 8);
}

TEST_CASE("of large memory an evenly spread part is asked about") {
  if (!are_located()) return;
  Mapping memory(10'000);
  for (std::size_t at = 5'000; at < 10'000; ++at) memory.data()[at * page] = std::byte{1};
  const std::size_t found = count(cluster::locate_pages({memory.all()}));
  CHECK(found > 1000);
  CHECK(found <= 2048);
}

TEST_CASE("pages on other nodes fail a binding when they are more than a tenth") {
  CHECK(verdict({{0, 100}}, 0).empty());
  CHECK(verdict({{0, 90}, {1, 10}}, 0).empty());
  CHECK(verdict({}, 0).empty());
  CHECK(verdict({{0, 89}, {1, 11}}, 0) == "11 % of the pinned memory is on NUMA node 1, not on 0");
  CHECK(verdict({{1, 50}, {2, 50}}, 0) ==
        "100 % of the pinned memory is on NUMA node 1, 2, not on 0");
  CHECK(verdict({{-1, 5}, {3, 5}}, 3) ==
        "where 50 % of the pinned memory is cannot be read back (asked for NUMA node 3)");
}

TEST_CASE("a compute thread that does not run where it should fails the binding") {
  cluster::BindingReport report;
  report.ok = true;
  report.plan.compute = {cluster::current_cpus()};
  cluster::verify_threads(report);
  CHECK(report.ok);
  CHECK(report.threads.at(cluster::to_string(cluster::current_cpus())) >= 1);
  report.plan.compute = {{9000}, {9000}};
  cluster::verify_threads(report);
  CHECK_FALSE(report.ok);
  REQUIRE(report.failures.size() == 1);
  CHECK(report.failures[0] == "2 compute threads should run on CPUs 9000, and 0 do");
}

TEST_CASE("the report holds what was verified: threads, pages, the upload's rate") {
  cluster::BindingReport report;
  report.plan.network = "mlx5_0";
  report.threads = {{"0-3", 2}};
  report.pages = {{"loader", {{-1, 1}, {0, 7}}}};
  auto json =
      nlohmann::json::parse(fields_to_json(observe::rank_binding(report, cluster::RankInfo{})));
  CHECK(json["threads"] == nlohmann::json{{"0-3", 2}});
  CHECK(json["pages"] == nlohmann::json{{"loader", {{"unknown", 1}, {"0", 7}}}});
  CHECK(json["network"] == "mlx5_0");
  CHECK(json["upload_bytes_per_s"].is_null());
  report.upload_bytes_per_s = 5e9;
  CHECK(nlohmann::json::parse(fields_to_json(
            observe::rank_binding(report, cluster::RankInfo{})))["upload_bytes_per_s"] == 5e9);
}

TEST_CASE("a GPU that is fed at less than half of the fastest one's rate is named") {
  std::vector<observe::RankBinding> ranks;
  for (const double rate : {24.9e9, 12.3e9, 12.6e9, 0.0}) {
    cluster::BindingReport report;
    report.plan.gpu_pci_bus_id = "0000:10:00.0";
    if (rate > 0) report.upload_bytes_per_s = rate;
    cluster::RankInfo rank;
    rank.rank = static_cast<int>(ranks.size());
    rank.host = "gpu7";
    ranks.push_back(observe::rank_binding(report, rank));
  }
  CHECK(observe::slow_uploads(ranks) ==
        std::vector<std::string>{"rank 1 on gpu7 copies to its GPU 0000:10:00.0 at 12.3 GB/s, "
                                 "but the fastest rank at 24.9"});
  CHECK(observe::slow_uploads({ranks[3]}).empty());
}
