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

/// Publishes rows in parts of 3, 3 and 1.
std::vector<std::filesystem::path> publish_parts(const std::filesystem::path& folder,
                                                 const PredictionColumns& columns) {
  std::vector<std::filesystem::path> parts;
  for (const std::size_t first : {0u, 3u, 6u}) {
    parts.push_back(folder / std::to_string(first));
    publish_part(parts.back(), some(first, first == 6 ? 1 : 3, columns));
  }
  return parts;
}

}  // namespace

TEST_CASE("a part is read as it was written, and never replaced", "[predictions]") {
  for (const PredictionColumns& columns : {everything, PredictionColumns{}}) {
    const Folder folder;
    const Predictions part = some(3, 4, columns);
    CHECK(publish_part(folder.path / "part", part));
    CHECK_FALSE(publish_part(folder.path / "part", some(0, 2, columns)));
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
      publish_merged(folder.path / name, parts, columns, 7, {"a", "b", "c"});
    require_equal(read_part(folder.path / "all", columns), some(0, 7, columns));
    CHECK(read_text(folder.path / "all") == read_text(folder.path / "again"));
  }
}

TEST_CASE("rows are counted, and rows without a class are never right", "[predictions]") {
  const Folder folder;
  const auto parts = publish_parts(folder.path, everything);
  publish_merged(folder.path / "all", parts, everything, 7, {"a", "b", "c"});
  const PredictionCounts counts = count_predictions(folder.path / "all", everything);
  CHECK(counts.rows == 7);
  CHECK(counts.labelled == 7);
  CHECK(counts.right == 3);  // rows 0, 1, 2
  CHECK(counts.unread == 1);
  CHECK(counts.no_numbers == 0);
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

TEST_CASE("parts that are damaged, or not all of them, are named and nothing is merged",
          "[predictions]") {
  const Folder folder;
  auto parts = publish_parts(folder.path, everything);
  const auto merge = [&] {
    publish_merged(folder.path / "all", parts, everything, 7, {"a", "b", "c"});
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
