#include <cmath>
#include <limits>

#include <catch2/catch.hpp>

#include "lockstep/data/loading/loader.hpp"
#include "tests/support/networks/host_device.hpp"
#include "tests/unit/data/external/external_fixture.hpp"

namespace fs = std::filesystem;
using namespace lockstep;
using namespace lockstep::data;
using namespace lockstep::test;
using Catch::Matchers::Contains;
using namespace lockstep::test::external;

namespace {

constexpr double not_a_number = std::numeric_limits<double>::quiet_NaN();

/// Label k of row r is bit k of r.
std::vector<double> bits(std::size_t columns) {
  std::vector<double> values;
  for (std::size_t row = 0; row < foreign_rows; ++row)
    for (std::size_t k = 0; k < columns; ++k) values.push_back(static_cast<double>(row >> k & 1));
  return values;
}

fs::path write_set(const Folder& folder, const std::vector<hsize_t>& shape,
                   const std::vector<double>& values, const char* name = "labels",
                   hid_t type = H5T_IEEE_F64LE) {
  Foreign file(folder.path / "a.h5");
  file.write_images();
  file.write(name, shape, values, type);
  return file.close();
}

}  // namespace

TEST_CASE("a matrix of 0 and 1 with rows of several labels is labels", "[external][task]") {
  const Folder folder;
  for (const hid_t type : {H5T_STD_U8LE, H5T_IEEE_F32LE, H5T_STD_I64BE}) {
    const DataSet rows(write_set(folder, {foreign_rows, 4}, bits(4), "labels", type));
    CHECK(rows.info().task == Task::labels);
    CHECK(rows.info().classes == std::vector<std::string>{"0", "1", "2", "3"});
    CHECK(labels_of(rows) == std::vector<std::int32_t>(foreign_rows, 0));
    CHECK_THAT(rows.say_sets(), Contains("labels /labels [12, 4] (not one-hot"));
    for (std::size_t row = 0; row < foreign_rows; ++row)
      for (std::size_t k = 0; k < 4; ++k) CHECK(rows.wanted(row, k) == (row >> k & 1));
  }
}

TEST_CASE("a one-hot matrix is classes, or labels where the task says so", "[external][task]") {
  const Folder folder;
  const fs::path path = write_set(folder, {foreign_rows, 4}, one_hot(4));
  CHECK(DataSet(path).info().task == Task::classes);
  const DataSet labels(path, {.task = Task::labels});
  CHECK(labels.info().task == Task::labels);
  for (std::size_t row = 0; row < foreign_rows; ++row) CHECK(labels.wanted(row, row % 3) == 1);
}

TEST_CASE("a column of 0 and 1 is classes, or one label", "[external][task]") {
  const Folder folder;
  const fs::path path = write_set(folder, {foreign_rows}, bits(1));
  CHECK(DataSet(path).info().classes.size() == 2);
  const DataSet label(path, {.task = Task::labels});
  CHECK(label.info().classes == std::vector<std::string>{"labels"});
  CHECK(label.wanted(3, 0) == 1);
}

TEST_CASE("labels of -1 and NaN are errors until they are said to be unknown", "[external][task]") {
  const Folder folder;
  std::vector<double> values = bits(4);
  values[5 * 4 + 1] = -1;
  values[6 * 4 + 2] = not_a_number;
  const fs::path path = write_set(folder, {foreign_rows, 4}, values);
  using enum UnknownLabels;
  CHECK_THAT(refusal(path),
             Contains("a.h5: row 5 of /labels [12, 4] has -1") && Contains("--data.unknown"));
  CHECK_THAT(refusal(path, {.unknown = minus_one}), Contains("row 6") && Contains("nan"));
  CHECK_THAT(refusal(path, {.unknown = UnknownLabels::nan}), Contains("row 5") && Contains("-1"));
  const DataSet rows(path, {.unknown = both});
  CHECK(std::isnan(rows.wanted(5, 1)));
  CHECK(std::isnan(rows.wanted(6, 2)));
  CHECK(rows.wanted(5, 0) == 1);
  values[2 * 4] = 0.5;
  CHECK_THAT(refusal(write_set(folder, {foreign_rows, 4}, values), {.unknown = both}),
             Contains("row 2 of /labels [12, 4] has 0.5") && Contains("--data.task values"));
  CHECK_THAT(refusal(write_set(folder, {foreign_rows}, counting()), {.unknown = both}),
             Contains("data.unknown = -1,nan is about labels that are 0 or 1"));
}

TEST_CASE("numbers are values only where the task says so, with mean and deviation",
          "[external][task]") {
  const Folder folder;
  std::vector<double> values;
  for (std::size_t row = 0; row < foreign_rows; ++row)
    values.push_back(101325 + 3.5 * static_cast<double>(row));
  const fs::path path = write_set(folder, {foreign_rows}, values, "y");
  CHECK_THAT(refusal(path), Contains("row 1 of /y is 101328.5: labels are whole numbers"));
  const ExternalSpec spec{.task = Task::values};
  const DataSet rows(path, spec);
  CHECK(rows.info().classes == std::vector<std::string>{"y"});
  CHECK(rows.wanted(7, 0) == 101325 + 24.5f);
  CHECK(rows.info().target_mean.at(0) == Approx(101344.25).epsilon(1e-7));
  CHECK(rows.info().target_stddev.at(0) == Approx(3.5 * 3.4520525).epsilon(1e-6));
  values[3] = not_a_number;
  write_set(folder, {foreign_rows}, values, "y");
  CHECK_THAT(refusal(path, spec), Contains("row 3 of /y [12] has nan"));
  CHECK(std::isnan(
      DataSet(path, {.task = Task::values, .unknown = UnknownLabels::nan}).wanted(3, 0)));
  CHECK_THAT(refusal(path, {.task = Task::values, .unknown = UnknownLabels::both}),
             Contains("only nan can be unknown"));
  values[3] = 1e300;
  write_set(folder, {foreign_rows}, values, "y");
  CHECK_THAT(refusal(path, spec), Contains("row 3 of /y [12] has 1e+300: a value must be finite"));
  values[3] = 0;
  write_set(folder, {foreign_rows}, values, "redshift");
  CHECK_THAT(refusal(path, spec), Contains("say so by --data.labels redshift"));
}

TEST_CASE("a validation set has its training set's task, names and moments", "[external][task]") {
  const Folder folder;
  std::vector<double> values(foreign_rows, 2);
  values[0] = 14;
  const fs::path path = write_set(folder, {foreign_rows}, values, "y");
  const DataSetInfo training = DataSet(path, {.task = Task::values}).info();
  values[0] = 2;
  const DataSet validation(write_set(folder, {foreign_rows}, values, "y"), {.like = &training});
  CHECK(validation.info().task == Task::values);
  CHECK(validation.info().target_mean == training.target_mean);
  CHECK(validation.info().target_stddev == training.target_stddev);
  CHECK_THAT(refusal(write_set(folder, {foreign_rows, 2}, bits(2), "y"), {.like = &training}),
             Contains("has 2 values a row, but the training has 1"));
}

TEST_CASE("a loader's batch has what is wanted, in deviations from the mean", "[external][task]") {
  const Folder folder;
  std::vector<double> values;
  for (std::size_t row = 0; row < foreign_rows; ++row)
    for (const double unit : {1.0, -1000.0}) values.push_back(unit * static_cast<double>(row));
  values[2 * 2 + 1] = not_a_number;
  const DataSet rows(write_set(folder, {foreign_rows, 2}, values),
                     {.task = Task::values, .unknown = UnknownLabels::nan});
  HostDevice device;
  LoaderSpec spec;
  spec.sampler = {
      .rows = foreign_rows, .global_batch = 8, .shuffle = Shuffle::none, .keep_last = true};
  spec.epochs = 1;
  Loader loader(rows, spec, device);
  for (std::size_t first = 0; first < foreign_rows; first += 8) {
    const Batch batch = loader.next();
    REQUIRE(batch.wanted != nullptr);
    for (std::size_t row = 0; row < batch.rows; ++row)
      for (std::size_t k = 0; k < 2; ++k) {
        const float got = batch.wanted[row * 2 + k], want = rows.wanted(first + row, k);
        CHECK(batch.targets[row].label_a == 0);
        if (first + row == 2 && k == 1)
          CHECK(std::isnan(got));
        else
          CHECK(got == (want - rows.info().target_mean[k]) / rows.info().target_stddev[k]);
      }
    for (std::size_t at = batch.rows * 2; at < batch.capacity * 2; ++at)
      CHECK(batch.wanted[at] == 0);
    loader.release(batch);
  }
}

TEST_CASE("values that float32 cannot tell apart are an error", "[external][task]") {
  const Folder folder;
  const auto open = [&](double first, double step) {
    std::vector<double> numbers;
    for (std::size_t row = 0; row < foreign_rows; ++row)
      numbers.insert(numbers.end(), {static_cast<double>(row), first + step * double(row)});
    return DataSet(write_set(folder, {foreign_rows, 2}, numbers, "targets"),
                   {.task = Task::values});
  };
  CHECK_THROWS_WITH(open(1.6e9, 1), Contains("/targets [12, 2] holds values that become float32") &&
                                        Contains("value 1") && Contains("such as 1600000006"));
  CHECK(open(101325, 0.5).wanted(3, 1) == 101326.5f);
  CHECK(open(1.6e9, 1e5).info().target_stddev.at(1) > 1e5);
  CHECK(open(0.1, 0).wanted(3, 1) == 0.1f);  // a constant
}

TEST_CASE("a task that is said for the rows of another is an error", "[external][task]") {
  const Folder folder;
  const fs::path path = write_set(folder, {foreign_rows, 4}, bits(4));
  const DataSetInfo trained = DataSet(path).info();
  CHECK(DataSet(path, {.task = Task::labels, .like = &trained}).info().task == Task::labels);
  CHECK_THROWS_WITH(DataSet(path, {.task = Task::values, .like = &trained}),
                    Contains("a.h5: data.task = values, but the training is of labels"));
}
