// Traps of clusters: recorded facts in, findings out, and the line that cures each.
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>

#include <catch2/catch.hpp>

#include "lockstep/base/clock.hpp"
#include "lockstep/base/error.hpp"
#include "lockstep/base/text/numbers.hpp"
#include "lockstep/base/text/words.hpp"
#include "lockstep/cluster/traps/traps.hpp"
#include "tests/support/folder_fixture.hpp"

namespace {

using namespace lockstep;
using cluster::find_traps;
using cluster::NodeLook;
using cluster::TrapFinding;
using cluster::TrapScope;
using test::Folder;
namespace fs = std::filesystem;

const fs::path fixtures = "tests/fixtures/traps";

/// A case of a list, whose first lines say what it is.
struct TrapCase {
  std::string what, node, trap, line, launch;
  cluster::Variables env;
  std::string files;  ///< as in a node's file
};

std::vector<TrapCase> read_cases(const std::string& name) {
  std::vector<TrapCase> cases;
  std::ifstream in(fixtures / name);
  std::string* text = nullptr;
  for (std::string line; std::getline(in, line);) {
    if (line.starts_with("### ")) {
      cases.emplace_back().what = line.substr(4);
      text = nullptr;
      continue;
    }
    if (cases.empty()) continue;
    TrapCase& one = cases.back();
    const std::size_t blank = std::min(line.find(' '), line.size());
    const std::string rest = blank < line.size() ? line.substr(blank + 1) : "";
    if (line.starts_with("== ")) text = &one.files;
    if (text != nullptr) {
      *text += line + '\n';
    } else if (line.starts_with("env ")) {
      const std::size_t equals = rest.find('=');
      one.env[rest.substr(0, equals)] = rest.substr(equals + 1);
    } else {
      for (auto [key, value] : {std::pair{"node", &one.node},
                                {"trap", &one.trap},
                                {"line", &one.line},
                                {"launch", &one.launch}})
        if (line.substr(0, blank) == key) *value = rest;
    }
  }
  return cases;
}

/// Makes the tree that a recording describes; "library" lines have no file.
void make_tree(const std::string& recording, const fs::path& root,
               std::map<std::string, std::string>& libraries) {
  std::istringstream lines(recording);
  fs::path file;
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with("== ")) {
      if (!file.empty()) std::ofstream(file, std::ios::app) << line << '\n';
      continue;
    }
    file.clear();
    std::istringstream words(line.substr(3));
    std::string first, second, arrow, target;
    words >> first >> second >> arrow >> target;
    const auto below = [&](const std::string& path) {
      return root / fs::path(path).relative_path();
    };
    if (first == "library") {
      libraries[second] = arrow;
    } else if (first == "dir") {
      fs::create_directories(below(second));
    } else if (first == "link") {
      fs::create_directories(below(second).parent_path());
      fs::create_symlink(target, below(second));
    } else {
      file = below(first);
      test::write_file(file, "");
    }
  }
}

std::string text_of(const fs::path& path) {
  std::ifstream in(path);
  return {std::istreambuf_iterator<char>(in), {}};
}

/// A recorded node, and the files that it is judged by.
struct RecordedNode {
  Folder root{"traps"};
  NodeLook look;
};

std::vector<TrapFinding> find_on(const RecordedNode& node, TrapScope scope = TrapScope::all) {
  return find_traps(node.look, scope);
}

RecordedNode look_at(const TrapCase& one) {
  RecordedNode node;
  const Folder& root = node.root;
  NodeLook& look = node.look;
  std::map<std::string, std::string> libraries;
  make_tree(text_of(fixtures / (one.node + ".node")), root.path, libraries);
  make_tree(one.files, root.path, libraries);
  look = cluster::look_at_node(one.env, root.path);
  look.libraries = libraries;
  const auto number = [&](const std::string& name) {
    const std::string rest = one.launch.substr(one.launch.find(name + "=") + name.size() + 1);
    return whole_number<int>(rest.substr(0, rest.find(' '))).value();
  };
  look.world = number("world"), look.nodes = number("nodes"), look.ranks_here = number("ranks");
  look.mpi = one.launch.substr(one.launch.find("mpi=") + 4);
  return node;
}

std::string all_of(const std::vector<TrapFinding>& findings) {
  std::string text;
  for (const TrapFinding& one : findings) text += to_string(one) + '\n';
  return text;
}

/// The variables after this line, by a real shell.
cluster::Variables after_line(const cluster::Variables& before, const std::string& line) {
  std::string command = "env -i";
  for (const auto& [name, value] : before) command += ' ' + shell_word(name + '=' + value);
  command += " bash --norc -c " + shell_word(line + "; exec env -0");
  FILE* pipe = popen(command.c_str(), "r");
  REQUIRE(pipe != nullptr);
  std::string text;
  for (int c = 0; (c = std::fgetc(pipe)) != EOF;) text += static_cast<char>(c);
  REQUIRE(pclose(pipe) == 0);
  cluster::Variables after;
  for (std::istringstream all(text); std::getline(all, text, '\0');) {
    const std::string name = text.substr(0, text.find('='));
    if (name != "PWD" && name != "SHLVL" && name != "_")
      after[name] = text.substr(std::min(name.size() + 1, text.size()));
  }
  return after;
}

/// The same facts after the line: variables, or both values of a limit.
TrapCase cured(TrapCase one) {
  std::istringstream words(one.line);
  std::string command, flag, value;
  words >> command >> flag >> value;
  if (command != "ulimit") {
    one.env = after_line(one.env, one.line);
    return one;
  }
  const std::string row(flag == "-l" ? cluster::locked_memory : cluster::open_files);
  const std::size_t at = one.files.find(row), end = one.files.find('\n', at);
  REQUIRE(end != std::string::npos);
  one.files.replace(at, end - at, row + std::string(26 - row.size(), ' ') + value + ' ' + value);
  return one;
}

TEST_CASE("recorded facts of trapped users name the trap alone, with the line to write",
          "[traps]") {
  for (const TrapCase& one : read_cases("trapped.txt")) {
    INFO(one.what << " (" << one.trap << ")");
    const auto found = find_on(look_at(one));
    INFO(all_of(found));
    REQUIRE(found.size() == 1);
    CHECK(found[0].trap == one.trap);
    CHECK(found[0].line == one.line);
  }
}

TEST_CASE("a trap's line, written in a shell, leaves no trap in the same facts", "[traps]") {
  for (const TrapCase& one : read_cases("trapped.txt")) {
    INFO(one.what << " (" << one.trap << "): " << one.line);
    const auto left = find_on(look_at(cured(one)));
    INFO(all_of(left));
    CHECK(left.empty());
  }
}

TEST_CASE("each trap has recorded facts, and names a public thread", "[traps]") {
  std::set<std::string> recorded;
  for (const TrapCase& one : read_cases("trapped.txt")) {
    recorded.insert(one.trap);
    for (const TrapFinding& found : find_on(look_at(one))) {
      const std::size_t slash = found.report.find('/'), hash = found.report.find('#');
      INFO(found.report);
      CHECK((slash < hash && whole_number<int>(found.report.substr(hash + 1))));
    }
  }
  for (const std::string& name : cluster::trap_names()) {
    INFO(name);
    CHECK(recorded.contains(name));
  }
  CHECK(cluster::trap_names().size() >= 30);
}

TEST_CASE("sound launches show no trap", "[traps]") {
  const auto cases = read_cases("sound.txt");
  CHECK(cases.size() >= 12);
  for (const TrapCase& one : cases) {
    const auto found = find_on(look_at(one));
    INFO(one.what << ":\n" << all_of(found));
    CHECK(found.empty());
  }
}

TEST_CASE("settings alone are judged without a node's files", "[traps]") {
  NodeLook elsewhere;
  elsewhere.env = {{"UCX_NET_DEVICES", "mlx5_9:1"}, {"NCCL_SOCKET_IFNAME", "eth7"}};
  elsewhere.gpus = 4, elsewhere.world = 8, elsewhere.nodes = 2;
  CHECK(find_traps(elsewhere, TrapScope::settings).empty());
  elsewhere.env["CUDA_LAUNCH_BLOCKING"] = "1";
  CHECK(all_of(find_traps(elsewhere, TrapScope::settings)) ==
        "CUDA_LAUNCH_BLOCKING=1, which is for debugging: the host waits for each kernel, so that "
        "nothing overlaps: unset CUDA_LAUNCH_BLOCKING [blocking-launches, "
        "horenbergerb/BernoulliDiffusion#23]\n");
}

TEST_CASE("what is right on some machines is not among the certain traps", "[traps]") {
  for (const TrapCase& one : read_cases("trapped.txt")) {
    const RecordedNode node = look_at(one);
    const auto all = find_on(node);
    REQUIRE(all.size() == 1);
    CHECK(find_on(node, TrapScope::certain).size() == (all[0].certain ? 1 : 0));
  }
}

TEST_CASE("a look at this machine and its traps take less than 50 ms", "[traps]") {
  double fastest_s = 1;
  for (int i = 0; i < 5; ++i) {
    const double began_s = now_s();
    const NodeLook look = cluster::look_at_node(cluster::process_variables());
    find_traps(look, TrapScope::all);
    fastest_s = std::min(fastest_s, now_s() - began_s);
    CHECK_FALSE(look.allowed.empty());
    CHECK_FALSE(look.mount_of("/").type.empty());
    CHECK(look.limit(cluster::open_files) > 0);
  }
  CHECK(fastest_s < 0.05);
}

// Lines of the threads NVIDIA/nccl#352 (2.4), nccl-tests#373, nccl#1059 and 527, and of 2.27.
TEST_CASE("NCCL's own lines say which network it took", "[traps]") {
  using cluster::nccl_network_in;
  CHECK(nccl_network_in("").empty());
  CHECK(nccl_network_in("a:1:1 [0] NCCL INFO Bootstrap : Using [0]lo:127.0.0.1<0>\n"
                        "a:1:1 [0] NCCL INFO NET/IB : No device found.\n"
                        "a:1:1 [0] NCCL INFO NET/Socket : Using [0]lo:127.0.0.1<0>\n") == "Socket");
  CHECK(nccl_network_in("a:1:1 [0] NCCL INFO NET/IB : Using [0]mlx5_2:1/RoCE [RO]; OOB bond0:1<0>\n"
                        "a:1:1 [0] NCCL INFO Using network IBext_v8\n") == "IBext_v8");
  CHECK(nccl_network_in("a:1:1 [0] NCCL INFO NET/OFI Selected Provider is efa\n"
                        "a:1:1 [0] NCCL INFO Using network AWS Libfabric\n") == "AWS Libfabric");
  CHECK(nccl_network_in("a:1:2 [0] NCCL INFO Initialized NET plugin Socket\n"
                        "a:1:2 [0] NCCL INFO Assigned NET plugin Socket to comm\n"
                        "a:1:2 [0] NCCL INFO Using network Socket\n") == "Socket");
  CHECK(nccl_network_in("a user's line: Using network IB\n").empty());
}

TEST_CASE("sockets are a finding where a node has a better network, and nodes to reach",
          "[traps]") {
  using cluster::judge_nccl_network;
  const auto on = [](const std::string& node, const char* launch) {
    TrapCase one;
    one.node = node, one.launch = launch;
    return look_at(one).look;
  };
  const char* two = "world=8 nodes=2 ranks=4 mpi=";
  CHECK(judge_nccl_network(on("infiniband", two), "Socket")->line == "export NCCL_NET=IB");
  CHECK(judge_nccl_network(on("slingshot", two), "Socket")->line ==
        "export NCCL_NET='AWS Libfabric'");
  CHECK(judge_nccl_network(on("efa", two), "Socket")->line == "export NCCL_NET_PLUGIN=ofi");
  CHECK_FALSE(judge_nccl_network(on("infiniband", two), "IB"));
  CHECK_FALSE(judge_nccl_network(on("ethernet", two), "Socket"));
  CHECK_FALSE(judge_nccl_network(on("infiniband", "world=4 nodes=1 ranks=4 mpi="), "Socket"));
}

}  // namespace
