#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <random>
#include <sstream>

#include <unistd.h>
#include <catch2/catch.hpp>

#include "lockstep/base/error.hpp"
#include "lockstep/cluster/identity/ask_slurm.hpp"

namespace {

using namespace lockstep;
using Catch::Matchers::Contains;
using Names = std::vector<std::string>;

std::string refusal(const std::string& list) {
  try {
    cluster::expand_hosts(list);
  } catch (const InputError& error) {
    return error.what();
  }
  return "accepted";
}

/// Lists that Slurm accepts, in every form: padded or not, one or two bracket groups, plain names.
class Generator {
 public:
  std::string list() {
    std::string text = name();
    for (int more = upto(4); more > 0; --more) text += "," + name();
    return text;
  }

 private:
  int upto(int limit) { return std::uniform_int_distribution<int>(0, limit)(random_); }

  std::string number(int value, int width) {
    std::ostringstream text;
    text.fill('0');
    text.width(width);
    text << value;
    return text.str();
  }

  std::string bracket(int ranges) {
    const int width = 1 + upto(3);
    std::string text;
    for (; ranges > 0; --ranges) {
      const int first = upto(120);
      text += (text.empty() ? "[" : ",") + number(first, width);
      if (upto(2) > 0) text += "-" + number(first + upto(12), upto(1) * width);
    }
    return text + "]";
  }

  std::string name() {
    const char* const prefixes[] = {"gpu", "node", "r1n", "c-", "login", "x10-"};
    const std::string prefix = prefixes[upto(5)];
    switch (upto(5)) {
      case 0:
        return prefix;
      case 1:
        return prefix + number(upto(30), 1 + upto(2));
      case 2:
        return prefix + bracket(1) + (upto(1) == 0 ? "" : "n") + bracket(1 + upto(1));
      default:
        return prefix + bracket(1 + upto(3));
    }
  }

  std::mt19937 random_{20240229};
};

/// What `scontrol show WORD LIST` says to each list, in order; it needs no running cluster. One
/// scontrol answers all: it reads commands, says them again after a prompt, and answers; a list of
/// one name, which is shown as it is, separates the answers.
std::vector<Names> ask_scontrol(const std::string& word, const Names& lists) {
  const std::string end = "end-of-answer", prompt = "scontrol: ";
  const std::filesystem::path folder =
      std::filesystem::temp_directory_path() / ("hostlist." + std::to_string(getpid()));
  std::filesystem::create_directory(folder);
  std::ofstream(folder / "slurm.conf") << "ClusterName=x\nSlurmctldHost=x\nNodeName=x\n";
  std::ofstream questions(folder / "ask");
  for (const std::string& list : lists)
    questions << "show " << word << " " << list << "\nshow hostlist " << end << "\n";
  questions.close();
  const std::string conf = "SLURM_CONF=" + (folder / "slurm.conf").string();
  std::FILE* pipe = popen((conf + " scontrol <" + (folder / "ask").string()).c_str(), "r");
  REQUIRE(pipe);
  std::vector<Names> answers(1);
  char line[65536];
  while (std::fgets(line, sizeof line, pipe)) {
    std::string text = std::string(line, std::string_view(line).find('\n'));
    while (text.starts_with(prompt)) text.erase(0, prompt.size());
    if (text.starts_with("\r<")) continue;  // the end of a long question, again
    if (text == end)
      answers.emplace_back();
    else if (!text.empty() && !text.starts_with("show "))
      answers.back().push_back(text);
  }
  pclose(pipe);
  answers.pop_back();
  std::filesystem::remove_all(folder);
  REQUIRE(answers.size() == lists.size());
  return answers;
}

bool no_scontrol() {
  if (std::system("command -v scontrol >/dev/null") == 0) return false;
  std::printf("SKIPPED: scontrol is not installed\n");
  return true;
}

}  // namespace

TEST_CASE("a host list is expanded in its order, with its padding", "[hostlist]") {
  CHECK(cluster::expand_hosts("gpu[01-03,20],login1") ==
        Names{"gpu01", "gpu02", "gpu03", "gpu20", "login1"});
  CHECK(cluster::expand_hosts("a[9-11]") == Names{"a9", "a10", "a11"});
  CHECK(cluster::expand_hosts("a[09-011]") == Names{"a09", "a10", "a11"});
  CHECK(cluster::expand_hosts("r[0-1]n[1-2]") == Names{"r0n1", "r0n2", "r1n1", "r1n2"});
  CHECK(cluster::expand_hosts("r[0-1]-ib0") == Names{"r0-ib0", "r1-ib0"});
  CHECK(cluster::expand_hosts("b,a,,a") == Names{"b", "a", "a"});
  CHECK(cluster::expand_hosts("").empty());
  CHECK(cluster::expand_hosts("n[0-65535]").size() == cluster::max_hosts);
}

TEST_CASE("a bad host list is an error that says what is wrong", "[hostlist]") {
  for (const auto& [list, why] : std::vector<std::pair<std::string, std::string>>{
           {"a[1-2", "not closed"},
           {"a]", "not opened"},
           {"a[]", "'' is neither"},
           {"a[1,,2]", "'' is neither"},
           {"a[[1-2]]", "'[1-2' is neither"},
           {"a[x-y]", "'x-y'"},
           {"a[-1]", "'-1'"},
           {"a[1-2-3]", "'1-2-3'"},
           {"a[3-1]", "3-1 runs backward"},
           {"a[9999999999999999999]", "is neither"},
           {"n[0-999999999]", "more than 65536"},
           {"n[0-65536]", "more than 65536"},
           {"n[0-255]x[0-256]", "more than 65536"},
           {"n[0-65535],m", "more than 65536"},
           {"n[0-60000,0-60000]", "more than 65536"},
           {std::string(300, 'n') + "[0-9]", "longer than 255"}}) {
    INFO(list);
    CHECK_THAT(refusal(list), Contains(list.substr(0, 100)) && Contains(why));
  }
}

TEST_CASE("names are compressed in their order", "[hostlist]") {
  CHECK(cluster::compress_hosts({}).empty());
  CHECK(cluster::compress_hosts({"a09", "a10", "a100", "b1", "b"}) == "a[09-10,100],b1,b");
  CHECK(cluster::compress_hosts({"a3", "a2", "a1", "a1"}) == "a[3,2,1,1]");
  CHECK(cluster::compress_hosts({"10", "11", "x"}) == "[10-11],x");
}

TEST_CASE("compressing loses no name", "[hostlist]") {
  Generator generator;
  for (int round = 0; round < 1000; ++round) {
    const Names names = cluster::expand_hosts(generator.list());
    CHECK(cluster::expand_hosts(cluster::compress_hosts(names)) == names);
  }
}

TEST_CASE("names are sorted by text, padding and number", "[hostlist]") {
  CHECK(cluster::sorted_hosts({"b", "a10", "a9", "a", "a09", "a1"}) ==
        Names{"a", "a1", "a9", "a09", "a10", "b"});
  CHECK(cluster::sorted_hosts({"a10", "a9"}) == Names{"a9", "a10"});
}

TEST_CASE("a thousand host lists are expanded and compressed as by scontrol", "[hostlist][slow]") {
  if (no_scontrol()) return;
  Generator generator;
  Names lists;
  for (int i = 0; i < 1000; ++i) lists.push_back(generator.list());
  const std::vector<Names> expanded = ask_scontrol("hostnames", lists);
  Names plain;
  for (const Names& names : expanded) {
    std::string text;
    for (const std::string& name : names) text += (text.empty() ? "" : ",") + name;
    plain.push_back(text);
  }
  const std::vector<Names> compressed = ask_scontrol("hostlist", plain);
  for (std::size_t i = 0; i < lists.size(); ++i) {
    INFO(lists[i]);
    CHECK(cluster::expand_hosts(lists[i]) == expanded[i]);
    REQUIRE(compressed[i].size() == 1);
    CHECK(cluster::compress_hosts(expanded[i]) == compressed[i][0]);
  }
}
