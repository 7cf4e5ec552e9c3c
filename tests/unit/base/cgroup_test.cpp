#include "lockstep/base/cgroup.hpp"

#include <catch2/catch.hpp>
#include <cmath>
#include <fstream>

#include "tests/support/folder_fixture.hpp"

using namespace lockstep;
using lockstep::test::Folder;

namespace {

void write(const std::filesystem::path& path, const std::string& text) {
  std::filesystem::create_directories(path.parent_path());
  std::ofstream(path) << text;
}

}  // namespace

TEST_CASE("the smallest quota and limit of a group and its parents count, in both versions",
          "[cgroup]") {
  const Folder folder;
  const std::filesystem::path root = folder.path;
  const bool second = GENERATE(true, false);
  const std::filesystem::path cpu = root / "sys/fs/cgroup" / (second ? "" : "cpu,cpuacct"),
                              memory = root / "sys/fs/cgroup" / (second ? "" : "memory");
  const auto quota = [&](const std::string& group, const char* value) {
    if (second) return write(cpu / group / "cpu.max", std::string(value) + " 100000\n");
    write(cpu / group / "cpu.cfs_quota_us",
          std::string(value == std::string("max") ? "-1" : value));
    write(cpu / group / "cpu.cfs_period_us", "100000");
  };
  const auto limit = [&](const std::string& group, const char* most, const char* used) {
    write(memory / group / (second ? "memory.max" : "memory.limit_in_bytes"), most);
    write(memory / group / (second ? "memory.current" : "memory.usage_in_bytes"), used);
    write(memory / group / "memory.stat",
          second ? "anon 1\ninactive_file 300\n" : "inactive_file 7\ntotal_inactive_file 300\n");
  };
  write(root / "proc/self/cgroup", second ? "0::/job/task\n"
                                          : "4:memory:/job/task\n2:cpu,cpuacct:/job/task\n"
                                            "0::/job/task\n");
  SECTION("nothing is said") {
    const GroupLimits none = look_at_group(root);
    CHECK((std::isinf(none.cores) && none.group == 0));
    CHECK((!none.memory_bytes && !none.free_bytes && !none.throttled_s));
  }
  SECTION("no limits") {
    quota("job/task", "max");
    limit("job/task", second ? "max" : "9223372036854771712", "1000");
    const GroupLimits none = look_at_group(root);
    CHECK(std::isinf(none.cores));
    CHECK(!none.memory_bytes);
  }
  SECTION("of a parent") {
    quota("job/task", "800000");
    quota("job", "150000");
    limit("job/task", "5000", "1000");
    limit("job", "2000", "1500");
    const GroupLimits found = look_at_group(root);
    CHECK(found.cores == 1.5);
    CHECK(found.group != 0);
    CHECK(found.memory_bytes == 2000);
    CHECK(found.free_bytes == 800);  // copies of files make room
  }
  SECTION("in a container, whose own group is the top, whatever the host calls it") {
    quota("", "250000");
    limit("", "2000", "4000");
    const GroupLimits found = look_at_group(root);
    CHECK(found.cores == 2.5);
    CHECK(found.memory_bytes == 2000);
    CHECK(found.free_bytes == 0);
  }
}
