// What files of predictions hold: parts of a data set, and all of it.
#include "serve/predictions/predictions.hpp"

#include <catch2/catch.hpp>

#include <cmath>
#include <limits>

#include "lockstep/base/error.hpp"
#include "lockstep/base/files/files.hpp"
#include "tests/support/folder_fixture.hpp"

using namespace lockstep;
using namespace lockstep::test;
using namespace lockstep::serve;
using Catch::Matchers::Contains;

namespace {

constexpr PredictionColumns everything{
    .top = 2, .logits = 3, .features = 2, .labels = true, .name_bytes = 9};

/// Rows [first, first + rows), all of them different; row 4 is unread.
Predictions some(std::size_t first, std::size_t rows, const PredictionColumns& columns) {
  Predictions part;
  part.columns = columns;
  for (std::size_t row = first; row < first + rows; ++row) {
    const auto number = static_cast<float>(row);
    const bool unread = row == 4;
    part.row.push_back(row);
    if (columns.name_bytes > 0) part.name.push_back(row == 2 ? "" : "r\"" + std::to_string(row));
    if (columns.labels) part.label.push_back(static_cast<std::int32_t>(row % 3));
    for (std::size_t k = 0; k < columns.top; ++k) {
      part.top_class.push_back(unread ? -1 : static_cast<std::int32_t>((row + row / 3 + k) % 3));
      part.top_probability.push_back(unread ? std::numeric_limits<float>::quiet_NaN()
                                            : 1 / (number + static_cast<float>(k) + 2));
    }
    part.logits.insert(part.logits.end(), columns.logits, number * 3);
    part.features.insert(part.features.end(), columns.features, number * 5);
    if (unread) part.unread.push_back({row, "4.jpg: is cut"});
  }
  return part;
}

bool same(const std::vector<float>& a, const std::vector<float>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](float one, float other) {
    return one == other || (std::isnan(one) && std::isnan(other));
  });
}

void require_equal(const Predictions& got, const Predictions& want) {
  CHECK(got.row == want.row);
  CHECK(got.name == want.name);
  CHECK(got.label == want.label);
  CHECK(got.top_class == want.top_class);
  CHECK(same(got.top_probability, want.top_probability));
  CHECK(got.logits == want.logits);
  CHECK(got.features == want.features);
  REQUIRE(got.unread.size() == want.unread.size());
  for (std::size_t i = 0; i < got.unread.size(); ++i) {
    CHECK(got.unread[i].row == want.unread[i].row);
    CHECK(got.unread[i].reason == want.unread[i].reason);
  }
}

const PartOf all_rows{"job", 0, 7};

/// Publishes rows in parts of 3, 3 and 1.
std::vector<std::filesystem::path> publish_parts(const std::filesystem::path& folder,
                                                 const PredictionColumns& columns) {
  std::vector<std::filesystem::path> parts;
  for (const std::size_t first : {0u, 3u, 6u}) {
    parts.push_back(folder / std::to_string(first));
    publish_part(parts.back(), some(first, first == 6 ? 1 : 3, columns), "job");
  }
  return parts;
}

}  // namespace

TEST_CASE("a part is read as it was written, and never replaced", "[predictions]") {
  for (const PredictionColumns& columns : {everything, PredictionColumns{}}) {
    const Folder folder;
    const Predictions part = some(3, 4, columns);
    CHECK(publish_part(folder.path / "part", part, "job"));
    CHECK_FALSE(publish_part(folder.path / "part", some(0, 2, columns), "job"));
    require_equal(read_part(folder.path / "part", columns), part);
    CHECK(names_in(folder.path).size() == 1);
  }
}

TEST_CASE("the merged file holds the rows of all parts, and its bytes follow from them",
          "[predictions]") {
  for (const PredictionColumns& columns : {everything, PredictionColumns{}}) {
    const Folder folder;
    const auto parts = publish_parts(folder.path, columns);
    for (const char* name : {"all", "again"})
      publish_merged(folder.path / name, parts, columns, all_rows, {"a", "b", "c"});
    require_equal(read_part(folder.path / "all", columns), some(0, 7, columns));
    CHECK(read_text(folder.path / "all") == read_text(folder.path / "again"));
  }
}

TEST_CASE("rows are counted, and rows without a class are never right", "[predictions]") {
  const Folder folder;
  const auto parts = publish_parts(folder.path, everything);
  publish_merged(folder.path / "all", parts, everything, all_rows, {"a", "b", "c"});
  const PredictionCounts counts = count_predictions(folder.path / "all", everything, all_rows);
  CHECK(counts.rows == 7);
  CHECK(counts.labelled == 7);
  CHECK(counts.right == 3);  // rows 0, 1, 2
  CHECK(counts.unread == 1);
  CHECK(counts.no_numbers == 0);
  for (const PartOf& other : {PartOf{"other", 0, 7}, PartOf{"job", 0, 8}})
    CHECK_THROWS_WITH(count_predictions(folder.path / "all", everything, other),
                      Contains("all: has other rows, or is of another job"));
}

TEST_CASE("a part that was cut, altered or is another one is told from what was published",
          "[predictions]") {
  const Folder folder;
  const std::filesystem::path path = folder.path / "part";
  const PartOf part{"job", 3, 4};
  publish_part(path, some(3, 4, everything), "job");
  const std::string whole = read_text(path);
  CHECK_FALSE(why_no_part(path, part));
  for (const PartOf& other : {PartOf{"bob", 3, 4}, PartOf{"job", 0, 4}, PartOf{"job", 3, 3}})
    CHECK_THAT(why_no_part(path, other).value_or(""), Contains("part: has other rows, or is of"));
  for (std::size_t at = 0; at < whole.size(); at += 97) {
    std::string altered = whole;
    altered[at] = static_cast<char>(altered[at] ^ 1);
    write_file(path, altered);
    REQUIRE(why_no_part(path, part));
    write_file(path, whole.substr(0, at));
    REQUIRE(why_no_part(path, part));
  }
  write_file(path, whole + "x");
  CHECK_THAT(why_no_part(path, part).value_or(""), Contains("part: is torn or was altered"));
  CHECK_THAT(why_no_part(folder.path / "none", part).value_or(""), Contains("No such file"));
}

TEST_CASE("names and reasons of any length come through parts into the merged file",
          "[predictions]") {
  const Folder folder;
  PredictionColumns columns = everything;
  columns.name_bytes = 5000;
  Predictions part = some(0, 5, columns);
  part.name[3] = std::string(5000, 'n');
  part.unread.at(0).reason = std::string(7000, 'r');
  publish_part(folder.path / "part", part, "job");
  publish_merged(folder.path / "all", {folder.path / "part"}, columns, {"job", 0, 5}, {"a", "b"});
  require_equal(read_part(folder.path / "all", columns), part);
}

TEST_CASE("a CSV file has a line for each row, in quotes where needed", "[predictions]") {
  const Folder folder;
  const auto parts = publish_parts(folder.path, everything);
  publish_csv(folder.path / "csv", parts, everything, {"a", "b,b", "c"});
  const std::string text = read_text(folder.path / "csv");
  CHECK(
      text.starts_with("row,file,label,class_1,probability_1,class_2,probability_2\n"
                       "0,\"r\"\"0\",a,a,0.5,\"b,b\",0.33333334\n"));
  CHECK_THAT(text, Contains("\n2,,c,c,0.25,a,0.2\n") && Contains("\n4,\"r\"\"4\",\"b,b\",,,,\n"));
  CHECK(std::count(text.begin(), text.end(), '\n') == 8);
}

TEST_CASE("no name makes a line of a CSV file that is no row, or commands a terminal",
          "[predictions]") {
  const Folder folder;
  const PredictionColumns columns{.top = 1, .labels = true, .name_bytes = 9};
  Predictions part = some(0, 3, columns);
  part.name = {"a\n1,b,c", "\r\x1B[2J\x7F", "=1+\"2\""};
  publish_part(folder.path / "part", part, "job");
  publish_csv(folder.path / "csv", {folder.path / "part"}, columns, {"x\ny", "b", "-c"});
  CHECK(read_text(folder.path / "csv") ==
        "row,file,label,class_1,probability_1\n"
        "0,\"a\\x0a1,b,c\",x\\x0ay,x\\x0ay,0.5\n"
        "1,\\x0d\\x1b[2J\\x7f,b,b,0.33333334\n"
        "2,\"=1+\"\"2\"\"\",-c,-c,0.25\n");
}

TEST_CASE("parts that are damaged, or not all of them, are named and nothing is merged",
          "[predictions]") {
  const Folder folder;
  auto parts = publish_parts(folder.path, everything);
  const auto merge = [&] {
    publish_merged(folder.path / "all", parts, everything, all_rows, {"a", "b", "c"});
  };
  std::swap(parts[0], parts[1]);
  CHECK_THROWS_WITH(merge(), Contains("3: does not begin at row 0"));
  std::swap(parts[0], parts[1]);
  std::filesystem::resize_file(parts[2], 700);
  CHECK_THROWS_WITH(merge(), Contains(parts[2].string()));
  parts.pop_back();
  CHECK_THROWS_WITH(merge(), Contains("the parts have 6 of 7 rows"));
  CHECK_FALSE(std::filesystem::exists(folder.path / "all"));
  CHECK(names_in(folder.path).size() == 3);
}
