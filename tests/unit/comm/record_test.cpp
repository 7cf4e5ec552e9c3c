#include <catch2/catch.hpp>

#include <limits>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/base/error.hpp"
#include "lockstep/base/text/json_fields.hpp"
#include "lockstep/comm/record.hpp"

using namespace lockstep;
using comm::read_record;
using comm::write_record;

namespace {

struct Inner {
  std::string text;
  double number = 0;
  bool operator==(const Inner&) const = default;
  static void fields(auto& self, auto&& visit) { visit(self.text, self.number); }
};

struct Outer {
  int count = 0;
  bool flag = false;
  std::optional<Inner> maybe;
  std::vector<Inner> list;
  std::map<std::string, std::string> facts;
  std::array<std::uint8_t, 3> key{};
  bool operator==(const Outer&) const = default;
  static void fields(auto& self, auto&& visit) {
    visit(self.count, self.flag, self.maybe, self.list, self.facts, self.key);
  }
};

/// As one that JSON is written of, too.
struct Named {
  int count = 0;
  double time_ms = 0;
  std::optional<Inner> maybe, group;
  std::string text;
  std::uint64_t stamp = 0;
  bool operator==(const Named&) const = default;
  static void fields(auto& self, auto&& visit) {
    visit.stamp("named", self.stamp);
    visit("count", self.count);
    visit.later("time_ms", self.time_ms, Form::ms);
    visit.nullable("maybe", self.maybe);
    visit.group("group", self.group);
    visit.unless_empty("text", self.text);
  }
};

const Outer full{.count = -7,
                 .flag = true,
                 .maybe = Inner{"line\nline\xff" + std::string(1, '\0'), 0.1},
                 .list = {{"", 1e-300}, {"+-", std::numeric_limits<double>::infinity()}},
                 .facts = {{"kernel", "6.1"}, {"", ""}},
                 .key = {1, 2, 255}};

}  // namespace

TEST_CASE("what is read from a record is what was written, whatever bytes its texts have",
          "[record]") {
  CHECK(read_record<Outer>(write_record(full)) == full);
  CHECK(read_record<Outer>(write_record(Outer{})) == Outer{});
  CHECK(read_record<std::vector<std::string>>(write_record(std::vector<std::string>{"a\nb", ""})) ==
        std::vector<std::string>{"a\nb", ""});
}

TEST_CASE("of fields with names all are sent, unrounded, also those that JSON leaves out",
          "[record]") {
  const Named named{.count = 3,
                    .time_ms = 0.12345678,
                    .maybe = Inner{"there", 1},
                    .group = std::nullopt,
                    .text = "",
                    .stamp = 7};
  CHECK(read_record<Named>(write_record(named)) == named);
  CHECK(read_record<Named>(write_record(Named{})) == Named{});
}

TEST_CASE("a record that is cut or has more after it is an error", "[record]") {
  const std::string bytes = write_record(full);
  for (std::size_t size = 0; size < bytes.size(); ++size)
    CHECK_THROWS_AS(read_record<Outer>(std::string_view(bytes).substr(0, size)), Error);
  CHECK_THROWS_AS(read_record<Outer>(bytes + "x"), Error);
  CHECK_THROWS_AS(read_record<std::string>(std::string(8, '\xff')), Error);
}
