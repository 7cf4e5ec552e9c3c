#include "train/decide/data_checks.hpp"

#include <hdf5.h>

#include <catch2/catch.hpp>

#include "lockstep/base/error.hpp"
#include "lockstep/base/text/words.hpp"
#include "lockstep/train/specs.hpp"
#include "tests/unit/data/shard_fixture.hpp"

using namespace lockstep;
using namespace lockstep::train;
using Catch::Matchers::Contains;
using lockstep::test::Folder;
using lockstep::test::write_shard;
namespace fs = std::filesystem;

namespace {

/// Twelve rows of 5 x 6 pixels of another program.
fs::path write_external(const fs::path& path, bool chunked) {
  const hid_t file = H5Fcreate(path.c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
  const auto write = [&](const char* name, const std::vector<hsize_t>& shape) {
    std::size_t count = 1;
    for (const hsize_t extent : shape) count *= extent;
    std::vector<int> numbers(count);
    for (std::size_t i = 0; i < count; ++i) numbers[i] = static_cast<int>(i % 2);
    const hid_t created = H5Pcreate(H5P_DATASET_CREATE);
    if (chunked && shape.size() > 1) H5Pset_chunk(created, 4, shape.data());
    const hid_t space = H5Screate_simple(static_cast<int>(shape.size()), shape.data(), nullptr);
    const hid_t data =
        H5Dcreate2(file, name, H5T_STD_U8LE, space, H5P_DEFAULT, created, H5P_DEFAULT);
    H5Dwrite(data, H5T_NATIVE_INT, H5S_ALL, H5S_ALL, H5P_DEFAULT, numbers.data());
    H5Dclose(data);
    H5Sclose(space);
    H5Pclose(created);
  };
  write("images", {12, 5, 6, 3});
  write("labels", {12});
  H5Fclose(file);
  return path;
}

/// The error of a run with this text as its configuration; empty if there is none.
std::string refusal(const std::string& text, const fs::path& training,
                    const fs::path& validation = {}) {
  config::Config config;
  config::apply_toml(config, text, "the test");
  try {
    const data::DataSet rows(training, external_spec(config));
    std::optional<data::DataSet> others;
    if (!validation.empty()) others.emplace(validation, external_spec(config, &rows.info()));
    refuse_idle_data_keys(config, {training.string(), validation.string()}, rows,
                          others ? &*others : nullptr);
  } catch (const InputError& error) {
    return error.what();
  }
  return {};
}

}  // namespace

TEST_CASE("keys about other programs' files are errors for shards", "[config][run]") {
  const Folder folder;
  const fs::path shard = write_shard(folder.path / "a.h5", test::small_info(), 0, 6);
  const fs::path external = write_external(folder.path / "b.h5", false);
  CHECK(refusal("", shard).empty());
  CHECK_THAT(refusal("data.images = \"foo\"", shard),
             Contains("data.images = foo would have no effect") && Contains("a.h5 holds shards"));
  for (const char* key : {"data.labels = \"foo\"", "data.layout = \"nchw\"", "data.range = \"0-1\"",
                          "data.cache-mb = 5"})
    CHECK_THAT(refusal(key, shard), Contains("would have no effect"));
  CHECK_THAT(refusal("data.val-images = \"foo\"", shard, shard),
             Contains("data.val-images = foo would have no effect"));
  CHECK(refusal("data.images = \"images\"\ndata.labels = \"labels\"\ndata.layout = \"nhwc\"",
                external)
            .empty());
}

TEST_CASE("data.classes that contradicts a shard is an error", "[config][run]") {
  const Folder folder;
  const fs::path shard = write_shard(folder.path / "a.h5", test::small_info(), 0, 6);
  CHECK_THAT(refusal("data.classes = 5", shard),
             Contains("data.classes = 5 contradicts") && Contains("a.h5, which has 3 classes"));
  CHECK(refusal("data.classes = 3", shard).empty());
}

TEST_CASE("keys about chunks are errors for contiguous data, and the other way round",
          "[config][run]") {
  const Folder folder;
  const fs::path chunked = write_external(folder.path / "a.h5", true);
  const fs::path contiguous = write_external(folder.path / "b.h5", false);
  CHECK(refusal("data.cache-mb = 5", chunked).empty());
  CHECK(refusal("data.cache-mb = 5", contiguous, chunked).empty());
  CHECK_THAT(refusal("data.cache-mb = 5", contiguous), Contains("nothing is decoded in chunks"));
  CHECK(refusal("data.read = \"mmap\"", contiguous).empty());
  CHECK_THAT(refusal("data.read = \"mmap\"", chunked), Contains("a.h5 is not contiguous"));
}

TEST_CASE("classes without training rows are counted, and the first are named", "[config][run]") {
  const Folder folder;
  data::DataSetInfo info = test::small_info();
  const data::DataSet whole(write_shard(folder.path / "a.h5", info, 0, 6));
  CHECK(say_empty_classes(whole).empty());
  info.classes = {"a", "b", "c", "d", "e", "f", "g", "h", "i"};
  const data::DataSet some(write_shard(folder.path / "b.h5", info, 2, 2));  // labels 2 and 3
  CHECK(say_empty_classes(some) == "7 of 9 classes have no training row: a, b, e, f, g, ...");
  const data::DataSet most(write_shard(folder.path / "c.h5", info, 1, 8));
  CHECK(say_empty_classes(most) == "1 of 9 classes has no training row: a");
  CHECK(say_unknown_labels(most, most).empty());
  CHECK(say_unknown_labels(some, some).empty());
  CHECK_THAT(say_unknown_labels(some, most),
             Contains("6 rows of validation are of classes without a training row, such as b"));
}

TEST_CASE("keys about boxes and colours are errors where there are none", "[config][run]") {
  const Folder folder;
  const fs::path shard = write_shard(folder.path / "a.h5", test::small_info(), 0, 6);
  CHECK_THAT(refusal("data.min-area = 0.2", shard),
             Contains("data.min-area = 0.2 would have no effect: data.crop is 'auto', which is "
                      "'random' for the pixels in "));
  CHECK(refusal("data.min-area = 0.2\ndata.crop = \"random-resized\"", shard).empty());
  CHECK(refusal("data.saturation = 0.5\ndata.hue = 0.1", shard).empty());
  data::DataSetInfo grey = test::small_info();
  grey.channels = 1;
  grey.mean = grey.stddev = {0.5f};
  const fs::path grey_shard = write_shard(folder.path / "grey.h5", grey, 0, 6);
  CHECK_THAT(refusal("data.saturation = 0.5", grey_shard), Contains("grey.h5 has grey images"));
  CHECK_THAT(refusal("data.hue = 0.5", grey_shard), Contains("data.hue = 0.5"));
  CHECK(refusal("data.contrast = 0.5", grey_shard).empty());
}

TEST_CASE("rates that fit another rule, and keys between ranks on one, are doubts", "[data-keys]") {
  const Folder folder;
  const fs::path path = write_shard(folder.path / "train.h5", lockstep::test::small_info(), 0, 12);
  const auto doubts = [&](const std::string& text, int ranks) {
    config::Config config;
    config::apply_toml(config, text, "the test");
    return join(
        say_doubts(config, {path.string(), ""}, data::DataSet(path, external_spec(config)), ranks),
        "\n");
  };
  CHECK(doubts("", 1).empty());
  CHECK_THAT(doubts("optim.rule = \"lamb\"", 1), Contains("lamb needs about 0.005"));
  CHECK_THAT(doubts("optim.rule = \"lars\"", 1), Contains("lars needs about 5 to 30"));
  CHECK(doubts("optim.rule = \"muon\"", 1).empty());
  CHECK_THAT(doubts("optim = {warmup-start = 0.3, warmup-epochs = 1}", 1),
             Contains("warmup-start = 0.3 is above optim.lr = 0.1"));
  const std::string between = "comm = {wire = \"bf16\", deadline-s = 60}";
  CHECK_THAT(doubts(between, 1),
             Contains("comm.wire = bf16, comm.deadline-s = 60") && Contains("there is one"));
  CHECK(doubts(between, 2).empty());
}
