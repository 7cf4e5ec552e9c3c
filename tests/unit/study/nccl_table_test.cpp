#include "lockstep/study/machine/nccl_table.hpp"

#include <catch2/catch.hpp>

using namespace lockstep::study;

namespace {

// The forms in which NCCL logs its table: the headings in one line, with PCIe's rates, and in two.
constexpr const char* one_line = R"(
node1:9373:9456 [0] NCCL INFO Latency/AlgBw |    Tree/    LL |    Tree/ LL128 |    Tree/Simple |    Ring/    LL |    Ring/ LL128 |    Ring/Simple |
node1:9373:9456 [0] NCCL INFO  Max NThreads |            512 |            640 |            512 |            512 |            640 |            256 |
node1:9373:9456 [0] NCCL INFO     Broadcast |     0.0/   0.0 |     0.0/   0.0 |     0.0/   0.0 |     6.3/   0.8 |    14.0/   0.0 |    18.0/   3.0 |
node1:9373:9456 [0] NCCL INFO     AllReduce |    11.8/   0.6 |    14.0/   0.0 |    72.0/   2.4 |    22.6/   0.7 |    14.0/   0.0 |    64.4/   3.2 |
node1:9373:9456 [0] NCCL INFO 2 coll channels, 0 collnet channels, 2 p2p channels)";

constexpr const char* two_lines = R"(
n1:1214:1263 [0] NCCL INFO NCCL_ALGO set by environment to Tree
n1:1214:1263 [0] NCCL INFO   Algorithm   |                            Tree                  |                            Ring                  |
n1:1214:1263 [0] NCCL INFO   Protocol    |             LL |          LL128 |         Simple |             LL |          LL128 |         Simple |
n1:1214:1263 [0] NCCL INFO  Max NThreads |            512 |            640 |            512 |            512 |            640 |            512 |
n1:1214:1263 [0] NCCL INFO     AllReduce |    46.2/  20.0 |    81.5/  68.0 |   148.0/  80.0 |   120.0/  11.0 |   220.0/  60.0 |  1200.0/  92.0 |
n1:1214:1263 [0] NCCL INFO   Algorithm   |                    CollNetDirect                 |                            NVLS                  |
n1:1214:1263 [0] NCCL INFO   Protocol    |             LL |          LL128 |         Simple |             LL |          LL128 |         Simple |
n1:1214:1263 [0] NCCL INFO     AllReduce |     0.0/   0.0 |     0.0/   0.0 |     0.0/   0.0 |     0.0/   0.0 |     0.0/   0.0 |    25.0/ 200.0 |)";

// NCCL 2.8.3, eight T4 in each of two nodes: one line of headings, and a third algorithm.
constexpr const char* nccl_2_8 = R"(
n018:1802:1851 [0] NCCL INFO Latency/AlgBw |    Tree/    LL |    Tree/ LL128 |    Tree/Simple |    Ring/    LL |    Ring/ LL128 |    Ring/Simple | CollNet/    LL | CollNet/ LL128 | CollNet/Simple |
n018:1802:1851 [0] NCCL INFO  Max NThreads |            512 |            640 |            512 |            512 |            640 |            256 |            512 |            640 |            512 |
n018:1802:1851 [0] NCCL INFO     Broadcast |     0.0/   0.0 |     0.0/   0.0 |     0.0/   0.0 |     6.3/   0.0 |    14.0/   0.0 |    18.0/   9.0 |     0.0/   0.0 |     0.0/   0.0 |     0.0/   0.0 |)";

// NCCL 2.29.7, two ranks over sockets: seven algorithms in blocks of three. The last block has one,
// but headings for three. Then what NCCL chose.
constexpr const char* nccl_2_29 = R"(
n1:3984:3984 [0] NCCL INFO NCCL version 2.29.7+cuda12.9
n1:3984:3984 [0] NCCL INFO TUNER/Plugin: Could not find: libnccl-tuner.so
n1:3984:3984 [0] NCCL INFO   Algorithm   |                            Tree                  |                            Ring                  |                   CollNetDirect                  |
n1:3984:3984 [0] NCCL INFO   Protocol    |             LL |          LL128 |         Simple |             LL |          LL128 |         Simple |             LL |          LL128 |         Simple |
n1:3984:3984 [0] NCCL INFO  Max NThreads |            512 |            640 |            512 |            512 |            640 |            256 |              0 |              0 |            640 |
n1:3984:3984 [0] NCCL INFO     Broadcast |     0.0/   0.0 |     0.0/   0.0 |     0.0/   0.0 |     9.3/   1.2 |    18.0/   0.0 |    22.4/   2.4 |     0.0/   0.0 |     0.0/   0.0 |     0.0/   0.0 |
n1:3984:3984 [0] NCCL INFO     AllGather |     0.0/   0.0 |     0.0/   0.0 |     0.0/   0.0 |    11.6/   2.4 |    22.5/   0.0 |    22.4/   4.8 |     5.0/   0.0 |     8.5/   0.0 |    14.0/   0.0 |
n1:3984:3984 [0] NCCL INFO     AllReduce |    16.8/   0.5 |    31.0/   0.0 |    36.4/   1.9 |    16.6/   1.2 |    31.0/   0.0 |    36.4/   2.4 |     5.0/   0.0 |     8.5/   0.0 |    14.0/   0.0 |
n1:3984:3984 [0] NCCL INFO   Algorithm   |                    CollNetChain                  |                            NVLS                  |                        NVLSTree                  |
n1:3984:3984 [0] NCCL INFO   Protocol    |             LL |          LL128 |         Simple |             LL |          LL128 |         Simple |             LL |          LL128 |         Simple |
n1:3984:3984 [0] NCCL INFO  Max NThreads |              0 |              0 |            640 |              0 |              0 |            640 |              0 |              0 |            640 |
n1:3984:3984 [0] NCCL INFO     AllReduce |     5.0/   0.0 |     8.5/   0.0 |    14.0/   0.0 |     0.0/   0.0 |     0.0/   0.0 |     0.0/   0.0 |     0.0/   0.0 |     0.0/   0.0 |     0.0/   0.0 |
n1:3984:3984 [0] NCCL INFO   Algorithm   |                             PAT                  |
n1:3984:3984 [0] NCCL INFO   Protocol    |             LL |          LL128 |         Simple |             LL |          LL128 |         Simple |             LL |          LL128 |         Simple |
n1:3984:3984 [0] NCCL INFO  Max NThreads |              0 |              0 |              0 |
n1:3984:3984 [0] NCCL INFO     AllGather |     0.0/   0.0 |     0.0/   0.0 |    17.6/   3.6 |
n1:3984:3984 [0] NCCL INFO     AllReduce |     0.0/   0.0 |     0.0/   0.0 |     0.0/   0.0 |
n1:3984:3984 [0] NCCL INFO Broadcast: 1024 Bytes -> Algo RING proto LL channel{Lo..Hi}={0..0}
n1:3984:3984 [0] NCCL INFO Broadcast: 16384 Bytes -> Algo RING proto LL channel{Lo..Hi}={0..1}
n1:3984:3984 [0] NCCL INFO Broadcast: 32768 Bytes -> Algo RING proto SIMPLE channel{Lo..Hi}={0..0}
n1:3984:3984 [0] NCCL INFO Broadcast: 67108864 Bytes -> Algo RING proto SIMPLE channel{Lo..Hi}={0..3})";

}  // namespace

TEST_CASE("a table with one line of headings is read", "[nccl_table]") {
  const auto choices = parse_nccl_table(one_line);
  REQUIRE(choices.size() == 6);  // those without bandwidth are no choices
  CHECK(choices[0].function == "Broadcast");
  CHECK(choices[0].algorithm == "Ring");
  CHECK(choices[0].protocol == "LL");
  CHECK(choices[0].latency_us == 6.3);
  const auto small = nccl_choice(choices, "AllReduce", 1024);
  REQUIRE(small);
  CHECK((small->algorithm == "Tree" && small->protocol == "LL"));
  const auto large = nccl_choice(choices, "AllReduce", 1e9);
  REQUIRE(large);
  CHECK((large->algorithm == "Ring" && large->protocol == "Simple"));
  CHECK(seconds_of(*large, 1e9) == Approx(64.4e-6 + 1 / 3.2));
}

TEST_CASE("a table with two lines of headings, in blocks, is read as one", "[nccl_table]") {
  const auto choices = parse_nccl_table(two_lines);
  REQUIRE(choices.size() == 7);
  CHECK(choices.back().algorithm == "NVLS");
  CHECK(nccl_choice(choices, "AllReduce", 1e6)->algorithm == "NVLS");
  CHECK_FALSE(nccl_choice(choices, "Broadcast", 1e6));
}

TEST_CASE("three recorded tables give the choice that NCCL made", "[nccl_table]") {
  const auto old = parse_nccl_table(nccl_2_8);
  REQUIRE(old.size() == 1);  // of Broadcast, all others have no bandwidth
  CHECK(nccl_choice(old, "Broadcast", 1024)->protocol == "Simple");

  const auto choices = parse_nccl_table(nccl_2_29);
  const auto protocol = [&](double bytes) {
    const auto choice = nccl_choice(choices, "Broadcast", bytes);
    CHECK(choice->algorithm == "Ring");
    return choice->protocol;
  };
  CHECK(protocol(1024) == "LL");
  CHECK(protocol(16384) == "LL");
  CHECK(protocol(32768) == "Simple");
  CHECK(protocol(67108864) == "Simple");
  CHECK(choices.size() == 2 + 3 + 4);
  CHECK(choices.back().algorithm == "PAT");
  CHECK(choices.back().latency_us == 17.6);
  CHECK(nccl_choice(choices, "AllReduce", 1e9)->algorithm == "Ring");

  // NCCL_ALGO=Tree in the environment: a table without other bandwidths.
  std::string tree_only = two_lines;
  tree_only.replace(tree_only.find("120.0/  11.0"), 12, "120.0/   0.0");
  tree_only.replace(tree_only.find("220.0/  60.0"), 12, "220.0/   0.0");
  tree_only.replace(tree_only.find("1200.0/  92.0"), 13, "1200.0/   0.0");
  tree_only.replace(tree_only.find("25.0/ 200.0"), 11, "25.0/   0.0");
  CHECK(nccl_choice(parse_nccl_table(tree_only), "AllReduce", 1e9)->algorithm == "Tree");
}

TEST_CASE("a later communicator's table replaces the first one's", "[nccl_table]") {
  std::string later = one_line;
  later.replace(later.find("64.4"), 4, "70.4");
  CHECK(parse_nccl_table(one_line + later).size() == 6);
  CHECK(nccl_choice(parse_nccl_table(one_line + later), "AllReduce", 1e9)->latency_us == 70.4);
}

TEST_CASE("trees reach less of their bandwidth at medium sizes", "[nccl_table]") {
  const NcclChoice tree{"AllReduce", "Tree", "Simple", 10, 80};
  CHECK(tree_share("Simple", 512e6) == 1);
  CHECK(tree_share("Simple", 1 << 20) == 0.5);
  CHECK(tree_share("LL", 8) == 1);
  CHECK(seconds_of(tree, 1 << 20) == Approx(10e-6 + (1 << 20) / 40e9));
}

TEST_CASE("what is no table gives no choices", "[nccl_table]") {
  CHECK(parse_nccl_table("").empty());
  CHECK(parse_nccl_table("NCCL INFO Bootstrap : Using eth0\n| | |\nAlgorithm | |\nProtocol |\n")
            .empty());
  CHECK(parse_nccl_table("NCCL INFO AllReduce | 1.0/ 2.0 |").empty());
  CHECK(parse_nccl_table("Latency/AlgBw | Tree/LL |\nAllReduce | x/ 2.0 |").empty());
}
