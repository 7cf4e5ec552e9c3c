#include "lockstep/pack/source/source.hpp"

#include <zlib.h>

#include <catch2/catch.hpp>
#include <filesystem>

#include "lockstep/base/error.hpp"
#include "tests/unit/data/image_fixture.hpp"
#include "tests/unit/pack/pack_fixture.hpp"

namespace fs = std::filesystem;
using namespace lockstep;
using namespace lockstep::data;
using namespace lockstep::pack;
using namespace lockstep::test;
using Catch::Matchers::Contains;

namespace {

/// `rows` rows in CIFAR's format. Row r has label r mod classes (after a coarse label 0, where the
/// format has two) and value (r + c + i) mod 256 at pixel i of channel c.
std::string cifar_bytes(std::size_t rows, std::size_t label_bytes, std::size_t classes) {
  std::string bytes;
  for (std::size_t r = 0; r < rows; ++r) {
    bytes += std::string(label_bytes - 1, '\0');
    bytes += static_cast<char>(r % classes);
    for (std::size_t c = 0; c < 3; ++c)
      for (std::size_t i = 0; i < 1024; ++i) bytes += static_cast<char>((r + c + i) % 256);
  }
  return bytes;
}

std::string big_endian(std::size_t value) {
  std::string bytes;
  for (int shift = 24; shift >= 0; shift -= 8) bytes += static_cast<char>(value >> shift & 255);
  return bytes;
}

std::string idx_bytes(const std::vector<std::size_t>& sizes, const std::string& values) {
  std::string bytes{'\0', '\0', '\x08', static_cast<char>(sizes.size())};
  for (const std::size_t size : sizes) bytes += big_endian(size);
  return bytes + values;
}

std::string gzipped(const fs::path& path, const std::string& bytes) {
  gzFile file = gzopen(path.c_str(), "wb");
  gzwrite(file, bytes.data(), static_cast<unsigned>(bytes.size()));
  gzclose(file);
  return read_text(path);
}

}  // namespace

TEST_CASE("class folders give classes and files in order of name, whatever the case", "[source]") {
  const Folder folder;
  write_file(folder.path / "dog" / "b.JPG", jpeg_of(picture(8, 9, 3)));
  write_file(folder.path / "dog" / "a.jpeg", jpeg_of(picture(8, 9, 1)));
  write_file(folder.path / "cat" / "deep" / "c.PnG", png_of(picture(8, 9, 3)));
  write_file(folder.path / "cat" / "notes.txt", "left out");
  write_file(folder.path / ".hidden" / "d.png", "left out");
  CHECK(guess_source(folder.path) == "classes");
  const auto source = open_class_folders(folder.path);
  CHECK(source->classes() == std::vector<std::string>{"cat", "dog"});
  REQUIRE(source->rows() == 3);
  CHECK(source->training_rows() == 3);
  CHECK(source->name(0) == (folder.path / "cat/deep/c.PnG").string());
  CHECK(source->name(1) == (folder.path / "dog/a.jpeg").string());
  CHECK(source->name(2) == (folder.path / "dog/b.JPG").string());
  CHECK(source->label(0) == 0);
  CHECK(source->label(2) == 1);
  CHECK(source->read(0).pixels == picture(8, 9, 3).pixels);
  CHECK(source->read(1).channels == 1);
  REQUIRE(source->remarks().size() == 1);
  CHECK_THAT(source->remarks()[0], Contains("2 files left out") && Contains("the first: .hidden"));
}

TEST_CASE("train and val or test folders are two splits of the same classes", "[source]") {
  const std::string second = GENERATE("val", "test");
  const Folder folder;
  for (const char* name : {"cat", "dog"})
    write_file(folder.path / "train" / name / "a.png", png_of(picture(4, 4, 3)));
  write_file(folder.path / second / "dog" / "b.png", png_of(picture(4, 4, 3)));
  const auto source = open_class_folders(folder.path);
  CHECK(source->classes() == std::vector<std::string>{"cat", "dog"});
  CHECK(source->rows() == 3);
  CHECK(source->training_rows() == 2);
  CHECK(source->label(2) == 1);
  write_file(folder.path / second / "bird" / "b.png", "");
  CHECK_THROWS_WITH(open_class_folders(folder.path),
                    Contains(second + "/bird") && Contains("no training class"));
}

TEST_CASE("no folder of images is left out without a message", "[source]") {
  const Folder folder;
  const auto add = [&](const char* name) {
    write_file(folder.path / name, png_of(picture(4, 4, 3)));
  };
  add("train/cat/a.png");
  add("validation/cat/b.png");
  add("test/cat/c.png");
  add("train/stray.png");
  write_file(folder.path / "notes/readme.txt", "");
  const auto source = open_class_folders(folder.path);
  CHECK(source->rows() == 2);
  CHECK_THAT(source->name(1), Contains("validation/cat/b.png"));
  REQUIRE(source->remarks().size() == 3);
  CHECK_THAT(source->remarks()[0], Contains("1 images of test/ were left out"));
  CHECK_THAT(source->remarks()[1], Contains("2 files left out") && Contains("notes/readme.txt"));
  CHECK_THAT(source->remarks()[2], Contains("one class, \"cat\""));
  add("val/cat/d.png");
  CHECK_THROWS_WITH(open_class_folders(folder.path),
                    Contains("/val and ") && Contains("/validation: which of them"));
  fs::remove_all(folder.path / "val");
  add("car/1.png");
  CHECK_THROWS_WITH(open_class_folders(folder.path),
                    Contains("/car: holds images and is next to train/"));
  fs::remove_all(folder.path / "car");
  fs::create_directory_symlink("..", folder.path / "train/cat/loop");
  CHECK_THROWS_WITH(open_class_folders(folder.path), Contains("cat/loop: is a link to a folder"));
  fs::remove(folder.path / "train/cat/loop");
  fs::create_symlink("loop", folder.path / "train/cat/loop");
  CHECK_THROWS_WITH(open_class_folders(folder.path), Contains("cat/loop: Too many levels"));
}

TEST_CASE("folders without images are errors that name them", "[source]") {
  const Folder folder;
  CHECK_THROWS_WITH(guess_source(folder.path / "none"), Contains("none: no such file or folder"));
  CHECK_THROWS_WITH(open_class_folders(folder.path), Contains("no class folders"));
  write_file(folder.path / "a.png", "");
  CHECK_THROWS_WITH(open_class_folders(folder.path / "a.png"), Contains("a.png: is a file"));
  CHECK_THROWS_WITH(open_class_folders(folder.path), Contains("no class folders"));
  write_file(folder.path / "cat" / "a.png", "");
  write_file(folder.path / "dog" / "readme.txt", "");
  CHECK_THROWS_WITH(open_class_folders(folder.path), Contains("dog: an empty class folder"));
}

TEST_CASE("CIFAR's binary rows are read as images, fine labels and class names", "[source]") {
  const bool ten = GENERATE(true, false);
  const Folder folder;
  const fs::path inner = folder.path / (ten ? "cifar-10-batches-bin" : "cifar-100-binary");
  const std::size_t label_bytes = ten ? 1 : 2, classes = ten ? 10 : 100;
  const auto add = [&](const std::string& name, std::size_t rows) {
    write_file(inner / name, cifar_bytes(rows, label_bytes, classes));
  };
  add(ten ? "data_batch_1.bin" : "train.bin", 120);
  if (ten) add("data_batch_2.bin", 30);
  add(ten ? "test_batch.bin" : "test.bin", 20);
  const std::string kind = guess_source(folder.path);
  CHECK(kind == (ten ? "cifar10" : "cifar100"));
  SourceSpec spec;
  spec.kind = kind;
  spec.files = {folder.path};
  const auto source = open_source(spec, {});
  REQUIRE(source->classes().size() == classes);
  CHECK(source->classes()[3] == "3");
  REQUIRE(source->remarks().size() == 2);
  CHECK_THAT(source->remarks()[1], Contains(ten ? "150 rows for training, the original's 50000"
                                                : "120 rows for training, the original's 50000"));
  const std::size_t training = ten ? 150 : 120;
  CHECK(source->training_rows() == training);
  REQUIRE(source->rows() == training + 20);
  CHECK(source->label(117) == static_cast<std::int32_t>(117 % classes));
  CHECK(source->label(training + 13) == static_cast<std::int32_t>(13 % classes));
  CHECK_THAT(source->name(training + 13), Contains(ten ? "test_batch" : "test.bin"));
  const Image image = source->read(training + 13);
  for (std::size_t i = 0; i < 1024; ++i)
    for (std::size_t c = 0; c < 3; ++c) REQUIRE(image.pixels[3 * i + c] == (13 + c + i) % 256);
}

TEST_CASE("CIFAR's Python version is an error that names the binary one", "[source]") {
  const Folder folder;
  for (const char* name : {"data_batch_1", "batches.meta"})
    write_file(folder.path / "cifar-10-batches-py" / name, "pickle");
  for (const char* name : {"train", "meta"}) write_file(folder.path / "hundred" / name, "pickle");
  for (const char* path : {"", "cifar-10-batches-py"})
    CHECK_THROWS_WITH(
        guess_source(folder.path / path),
        Contains("batches-py: is CIFAR's Python version") && Contains("cifar-10-binary.tar.gz"));
  CHECK_THROWS_WITH(guess_source(folder.path / "hundred"), Contains("cifar-100-binary.tar.gz"));
}

TEST_CASE("damaged CIFAR files are errors that name them", "[source]") {
  const Folder folder;
  const fs::path path = folder.path / "data_batch_1.bin";
  CHECK_THROWS_WITH(open_cifar10(folder.path), Contains("no data_batch_1.bin"));
  const std::string whole = cifar_bytes(4, 1, 10);
  write_file(path, whole.substr(0, whole.size() - 1));
  CHECK_THROWS_WITH(open_cifar10(folder.path), Contains("data_batch_1.bin: truncated") &&
                                                   Contains("30730000") && Contains("12291"));
  write_file(path, "");
  CHECK_THROWS_WITH(open_cifar10(folder.path), Contains("found 0 bytes"));
  std::string wrong = whole;
  wrong[3073 * 2] = 10;
  write_file(path, wrong);
  CHECK_THROWS_WITH(open_cifar10(folder.path),
                    Contains("data_batch_1.bin, row 2: label 10 is out of range"));
  write_file(path, whole);
  write_file(folder.path / "data_batch_3.bin", whole);
  CHECK_THROWS_WITH(open_cifar10(folder.path), Contains("data_batch_2.bin: No such file"));
  fs::remove(folder.path / "data_batch_3.bin");
  write_file(folder.path / "batches.meta.txt", "one\ntwo\n");
  CHECK_THROWS_WITH(open_cifar10(folder.path), Contains("expected 10 class names, found 2"));
}

TEST_CASE("IDX files are read, gzipped or not", "[source]") {
  const Folder folder;
  std::string values;
  for (int i = 0; i < 3 * 4 * 5; ++i) values += static_cast<char>(i * 7);
  const std::string images = idx_bytes({3, 4, 5}, values);
  const std::string labels = idx_bytes({3}, std::string("\x02\x00\x05", 3));
  const bool packed = GENERATE(false, true);
  if (packed) {
    gzipped(folder.path / "train-images-idx3-ubyte.gz", images);
    gzipped(folder.path / "train-labels-idx1-ubyte.gz", labels);
    gzipped(folder.path / "t10k-images-idx3-ubyte.gz", images);
    gzipped(folder.path / "t10k-labels-idx1-ubyte.gz", labels);
  } else {
    write_file(folder.path / "train-images.idx3-ubyte", images);
    gzipped(folder.path / "train-images.idx3-ubyte.gz", images);
    write_file(folder.path / "train-labels.idx1-ubyte", labels);
  }
  CHECK(guess_source(folder.path) == "idx");
  const auto source = open_idx(folder.path);
  CHECK(source->classes() == std::vector<std::string>{"0", "1", "2", "3", "4", "5"});
  CHECK(source->remarks() == std::vector<std::string>{"3 of 6 classes have no training image"});
  CHECK(source->rows() == (packed ? 6 : 3));
  CHECK(source->training_rows() == 3);
  CHECK(source->native_channels() == 1);
  CHECK(source->label(2) == 5);
  const Image image = source->read(packed ? 4 : 1);
  CHECK(image.height == 4);
  CHECK(image.width == 5);
  CHECK(image.channels == 1);
  CHECK(std::string(image.pixels.begin(), image.pixels.end()) == values.substr(20, 20));
}

TEST_CASE("damaged IDX files are errors that name them and what was expected", "[source]") {
  const Folder folder;
  const fs::path images = folder.path / "train-images-idx3-ubyte";
  const fs::path labels = folder.path / "train-labels-idx1-ubyte";
  const std::string good = idx_bytes({2, 2, 3}, "abcdefghijkl");
  const auto refused_with = [&](const std::string& bytes, const char* name, const char* text) {
    write_file(images, bytes);
    CHECK_THROWS_WITH(open_idx(folder.path), Contains(name) && Contains(text));
  };
  write_file(labels, idx_bytes({2}, std::string("\x00\x01", 2)));
  CHECK_THROWS_WITH(open_idx(folder.path), Contains("has no images (idx3-ubyte) next to it"));
  refused_with(good.substr(0, good.size() - 2), "train-images-idx3-ubyte",
               "expected 12 bytes after the header, found 10");
  refused_with(good + "!", "train-images-idx3-ubyte", "found more");
  refused_with(good.substr(0, 9), "train-images-idx3-ubyte", "truncated");
  refused_with("not an IDX file at all", "train-images-idx3-ubyte", "not an IDX file");
  refused_with(idx_bytes({~0u, ~0u, ~0u}, ""), "train-images-idx3-ubyte", "its header claims");
  refused_with(idx_bytes({3, 2, 2}, "abcdefghijkl"), "train-labels-idx1-ubyte", "has 2 labels");
  const std::string packed = gzipped(images, idx_bytes({2, 200, 300}, std::string(120000, 'x')));
  refused_with(packed.substr(0, packed.size() / 2), "train-images-idx3-ubyte", "truncated");
  write_file(images, good);
  write_file(folder.path / "t10k-images-idx3-ubyte", good);
  write_file(folder.path / "t10k-labels-idx1-ubyte", idx_bytes({2}, std::string("\x01\x02", 2)));
  CHECK_THROWS_WITH(open_idx(folder.path),
                    Contains("t10k-labels-idx1-ubyte, row 1: label 2 is out of range"));
  write_file(folder.path / "emnist-train-images-idx3-ubyte", good);
  CHECK_THROWS_WITH(open_idx(folder.path), Contains("keep one data set in a folder"));
}
