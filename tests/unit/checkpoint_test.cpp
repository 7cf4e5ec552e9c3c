#include <algorithm>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <limits>
#include <numeric>

#include <sys/resource.h>
#include <unistd.h>

#include <catch2/catch.hpp>

#include "lockstep/base/error.hpp"
#include "lockstep/base/files.hpp"
#include "lockstep/train/checkpoint.hpp"

using namespace lockstep;
using namespace lockstep::train;
using Catch::Contains;

namespace {

/// Parameters in plain memory, with padding behind each slice as a backend may have it.
class FakeParameters final : public Parameters {
 public:
  explicit FakeParameters(std::vector<nn::Tensor> tensors, float start = 0) {
    for (const nn::Tensor& tensor : tensors) {
      layout_.slices.push_back({tensor, layout_.size, tensor.count() + 3});
      layout_.size += tensor.count() + 3;
    }
    for (auto& values : values_) {
      values.resize(layout_.size);
      std::iota(values.begin(), values.end(), start);
      start += 1000;
    }
  }
  const nn::ArenaLayout& layout() const override { return layout_; }
  float* device_pointer(Part part) override { return of(part).data(); }
  void import_slice(Part part, std::size_t slice, std::span<const float> plain) override {
    std::copy(plain.begin(), plain.end(), of(part).begin() + offset(slice));
  }
  void export_slice(Part part, std::size_t slice, std::span<float> plain) const override {
    const auto& values = values_[static_cast<std::size_t>(part)];
    std::copy_n(values.begin() + offset(slice), plain.size(), plain.begin());
  }
  std::uint32_t hash() const override { return 0; }

  std::vector<float> plain(Part part, std::size_t slice) const {
    std::vector<float> values(layout_.slices[slice].tensor.count());
    export_slice(part, slice, values);
    return values;
  }

 private:
  std::vector<float>& of(Part part) { return values_[static_cast<std::size_t>(part)]; }
  std::ptrdiff_t offset(std::size_t slice) const {
    return static_cast<std::ptrdiff_t>(layout_.slices[slice].offset);
  }
  nn::ArenaLayout layout_;
  std::vector<float> values_[3];
};

std::vector<nn::Tensor> small_model() {
  return {{"fc.weight", nn::Role::linear_weight, 0, {3, 4}},
          {"conv1.weight", nn::Role::conv_weight, 0, {2, 3, 3, 3}},
          {"bn1.running_mean", nn::Role::running_mean, 0, {2}}};
}

CheckpointHeader some_header() {
  CheckpointHeader header;
  header.progress = {.step = 123,
                     .epoch = 3,
                     .batch = 7,
                     .loss_sum = 1.0 / 3,
                     .rows = 896,
                     .top1 = 500,
                     .best_top1 = 0.875,
                     .best_epoch = 2};
  header.config = "model = \"resnet20\"\n";
  header.backend = "cpu, a description";
  header.build = "0123456789abcdef";
  header.world = 2;
  header.train_rows = 50000;
  header.metrics_bytes = 4711;
  header.channels = 3;
  header.height = header.width = 32;
  header.classes = {"circle", "square with a blank"};
  header.mean = {0.1f, 0.2f, 0.3f};
  header.stddev = {0.4f, 0.5f, 0.6f};
  return header;
}

/// A folder of its own that goes away with the test.
struct Folder {
  std::filesystem::path path =
      std::filesystem::temp_directory_path() / ("lockstep-checkpoint-" + std::to_string(getpid()));
  Folder() { std::filesystem::create_directories(path); }
  ~Folder() { std::filesystem::remove_all(path); }
};

std::string bytes_of(const std::filesystem::path& path) { return read_text(path); }

void overwrite(const std::filesystem::path& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary).write(bytes.data(), static_cast<long>(bytes.size()));
}

}  // namespace

TEST_CASE("a checkpoint gives back every value and every header field", "[checkpoint]") {
  const Folder folder;
  const auto path = folder.path / "step-00000123.h5";
  const CheckpointHeader header = some_header();
  const FakeParameters saved(small_model(), 0.125f);
  write_checkpoint(path, header, saved);

  FakeParameters loaded(small_model(), -5);
  const auto gradients = loaded.plain(Part::gradients, 0);
  load_tensors(path, loaded, true);
  for (std::size_t i = 0; i < 3; ++i) {
    CHECK(loaded.plain(Part::weights, i) == saved.plain(Part::weights, i));
    if (i < 2) CHECK(loaded.plain(Part::momentum, i) == saved.plain(Part::momentum, i));
  }
  CHECK(loaded.plain(Part::gradients, 0) == gradients);

  const auto tensors = list_tensors(path);
  REQUIRE(tensors.size() == 5);
  CHECK(tensors[0].name == "weights/bn1.running_mean");
  CHECK(tensors[1].shape == std::vector<std::size_t>{2, 3, 3, 3});
  CHECK(tensors[4].name == "momentum/fc.weight");
  CHECK(tensors[1].crc32c != tensors[3].crc32c);

  const CheckpointHeader got = read_header(path);
  CHECK(got.progress.step == 123);
  CHECK(got.progress.epoch == 3);
  CHECK(got.progress.batch == 7);
  CHECK(got.progress.loss_sum == 1.0 / 3);
  CHECK(got.progress.rows == 896);
  CHECK(got.progress.top1 == 500);
  CHECK(got.progress.best_top1 == 0.875);
  CHECK(got.progress.best_epoch == 2);
  CHECK(got.config == header.config);
  CHECK(got.backend == header.backend);
  CHECK(got.build == header.build);
  CHECK(got.world == 2);
  CHECK(got.train_rows == 50000);
  CHECK(got.metrics_bytes == 4711);
  CHECK(got.classes == header.classes);
  CHECK(got.mean == header.mean);
  CHECK(got.stddev == header.stddev);
  CHECK(got.width == 32);
}

TEST_CASE("ten thousand long class names of any text come back", "[checkpoint]") {
  const Folder folder;
  const auto path = folder.path / "x.h5";
  CheckpointHeader header = some_header();
  for (int i = 0; i < 10000; ++i)
    header.classes.push_back(std::to_string(10000 + i) + std::string(75, 'x'));
  header.classes[0] = "two\nlines";
  header.classes[1] = "";
  write_checkpoint(path, header, FakeParameters(small_model()));
  CHECK(read_header(path).classes == header.classes);
}

TEST_CASE("a configuration of a megabyte, and one of any bytes, come back", "[checkpoint]") {
  const Folder folder;
  const auto path = folder.path / "x.h5";
  CheckpointHeader header = some_header();
  for (const std::string& config :
       {std::string(1 << 20, 'x'), std::string("grün\0\n", 7), std::string()}) {
    header.config = config;
    write_checkpoint(path, header, FakeParameters(small_model()));
    CHECK(read_header(path).config == config);
  }
}

TEST_CASE("weights that are not finite are not saved, and named", "[checkpoint]") {
  const Folder folder;
  const auto path = folder.path / "x.h5";
  FakeParameters state(small_model());
  std::vector<float> weights = state.plain(Part::weights, 1);
  weights[5] = std::numeric_limits<float>::quiet_NaN();
  state.import_slice(Part::weights, 1, weights);
  CHECK_THROWS_WITH(write_checkpoint(path, some_header(), state),
                    Contains("x.h5") && Contains("weights/conv1.weight is not finite"));
  CHECK_FALSE(std::filesystem::exists(path));
}

TEST_CASE("the same state gives the same bytes", "[checkpoint]") {
  const Folder folder;
  const FakeParameters state(small_model());
  write_checkpoint(folder.path / "a.h5", some_header(), state);
  write_checkpoint(folder.path / "b.h5", some_header(), state);
  CHECK(bytes_of(folder.path / "a.h5") == bytes_of(folder.path / "b.h5"));
}

TEST_CASE("a flipped bit anywhere in a checkpoint is found", "[checkpoint]") {
  const Folder folder;
  const auto path = folder.path / "x.h5";
  write_checkpoint(path, some_header(), FakeParameters(small_model()));
  const std::string whole = bytes_of(path);
  CHECK_NOTHROW(verify_checkpoint(path));
  std::size_t accepted = 0;
  for (std::size_t at = 0; at < whole.size(); at += 13) {
    std::string altered = whole;
    altered[at] = static_cast<char>(altered[at] ^ (1 << (at % 8)));
    overwrite(path, altered);
    try {
      verify_checkpoint(path);
      ++accepted;
    } catch (const InputError& error) {
      if (std::string(error.what()).find("x.h5") == std::string::npos) ++accepted;
    }
  }
  CHECK(accepted == 0);
}

TEST_CASE("a truncated or prolonged checkpoint, and a text file, are refused by name",
          "[checkpoint]") {
  const Folder folder;
  const auto path = folder.path / "x.h5";
  write_checkpoint(path, some_header(), FakeParameters(small_model()));
  const std::string whole = bytes_of(path);
  for (const std::size_t size :
       {whole.size() - 1, whole.size() / 2, std::size_t{600}, std::size_t{100}}) {
    overwrite(path, whole.substr(0, size));
    CHECK_THROWS_WITH(read_header(path), Contains("x.h5") && Contains("torn"));
  }
  overwrite(path, whole + '\0');
  CHECK_THROWS_WITH(read_header(path), Contains("torn"));
  overwrite(path, "this is a text\n");
  CHECK_THROWS_WITH(read_header(path), Contains("x.h5: not a lockstep checkpoint"));
  CHECK_FALSE(looks_like_checkpoint(path));
  overwrite(path, "lockstep checkpoint 1" + whole.substr(whole.find('\n')));
  CHECK_THROWS_WITH(read_header(path),
                    Contains("x.h5: is of checkpoint format 1") && Contains("reads format 2"));
  CHECK_THROWS_WITH(read_header(folder.path / "none.h5"), Contains("none.h5: No such file"));
}

TEST_CASE("a checkpoint of another model is refused by the first tensor that differs",
          "[checkpoint]") {
  const Folder folder;
  const auto path = folder.path / "x.h5";
  write_checkpoint(path, some_header(), FakeParameters(small_model()));

  auto wider = small_model();
  wider[0].shape = {10, 4};
  FakeParameters other_shape(wider);
  CHECK_THROWS_WITH(load_tensors(path, other_shape, true),
                    Contains("x.h5: a checkpoint of another model") && Contains("fc.weight") &&
                        Contains("[3, 4]") && Contains("[10, 4]"));
  auto renamed = small_model();
  renamed[1].name = "conv2.weight";
  FakeParameters other_name(renamed);
  CHECK_THROWS_WITH(load_tensors(path, other_name, true), Contains("no tensor 'conv2.weight'"));
  auto smaller = small_model();
  smaller.erase(smaller.begin() + 1);
  FakeParameters fewer(smaller);
  CHECK_THROWS_WITH(load_tensors(path, fewer, true), Contains("'conv1.weight'"));
}

TEST_CASE("a disk that is full leaves the older checkpoint valid", "[checkpoint]") {
  const Folder folder;
  const auto path = folder.path / "x.h5";
  write_checkpoint(path, some_header(), FakeParameters(small_model()));
  const std::string before = bytes_of(path);

  // A limit on file sizes fails writes as a full disk does, part of the way through.
  rlimit old_limit = {};
  getrlimit(RLIMIT_FSIZE, &old_limit);
  const auto old_handler = std::signal(SIGXFSZ, SIG_IGN);
  const rlimit small = {1500, old_limit.rlim_max};
  setrlimit(RLIMIT_FSIZE, &small);
  std::string message;
  try {
    write_checkpoint(path, some_header(), FakeParameters(small_model(), 77));
  } catch (const InputError& error) {
    message = error.what();
  }
  setrlimit(RLIMIT_FSIZE, &old_limit);
  std::signal(SIGXFSZ, old_handler);

  CHECK_THAT(message, Contains("x.h5"));
  CHECK(bytes_of(path) == before);
  CHECK_NOTHROW(verify_checkpoint(path));
  const auto entries = std::filesystem::directory_iterator(folder.path);
  CHECK(std::distance(begin(entries), end(entries)) == 1);
}

TEST_CASE("the newest valid checkpoint is taken, the newest K are kept", "[checkpoint]") {
  const Folder folder;
  const CheckpointDirectory directory(folder.path, 2);
  const FakeParameters state(small_model());
  CHECK_FALSE(directory.newest_valid());
  for (const std::uint64_t step : {5, 90, 100000000, 700})
    write_checkpoint(directory.path_of(step), some_header(), state);
  write_checkpoint(directory.best(), some_header(), state);
  overwrite(folder.path / "step-00000900.h5.tmp12-0", "left over");

  CHECK(directory.newest_valid() == directory.path_of(100000000));
  const std::string whole = bytes_of(directory.path_of(100000000));
  overwrite(directory.path_of(100000000), whole.substr(0, 1000));
  CHECK(directory.newest_valid() == directory.path_of(700));

  write_checkpoint(directory.path_of(800), some_header(), state);
  directory.set_aside_after(800);
  CHECK(directory.newest_first().front() == directory.path_of(800));
  CHECK(std::filesystem::exists(folder.path / "step-100000000.h5.aside"));
  CHECK(std::filesystem::exists(directory.best()));
  directory.prune();
  CHECK(directory.newest_first() == std::vector{directory.path_of(800), directory.path_of(700)});
  CHECK(std::filesystem::exists(directory.best()));
  CHECK_FALSE(std::filesystem::exists(folder.path / "step-00000900.h5.tmp12-0"));
  directory.set_aside_after(122);  // the best is of step 123
  CHECK(std::filesystem::exists(folder.path / "best.h5.aside"));
  CHECK(directory.newest_first().empty());
}
