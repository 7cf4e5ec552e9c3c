// An image's file becomes the row that a validation has of it, bit for bit.
#include <algorithm>
#include <catch2/catch.hpp>
#include <thread>

#include "lockstep/base/error.hpp"
#include "lockstep/data/loading/image_preparer.hpp"
#include "lockstep/data/loading/loader.hpp"
#include "lockstep/model/preparation.hpp"
#include "tests/support/networks/host_device.hpp"
#include "tests/unit/data/image_fixture.hpp"
#include "tests/unit/pack/pack_fixture.hpp"

namespace fs = std::filesystem;
using namespace lockstep;
using namespace lockstep::data;
using namespace lockstep::test;
using Catch::Matchers::Contains;

namespace {

/// The JPEG with Exif data that give this orientation.
std::string turned(const std::string& jpeg, char orientation) {
  std::string exif(
      "\xFF\xE1\0\x22"
      "Exif\0\0II*\0\x08\0\0\0\x01\0\x12\x01\x03\0\x01\0\0\0"
      "\x01\0\0\0\0\0\0\0",
      36);
  exif[28] = orientation;
  return jpeg.substr(0, 2) + exif + jpeg.substr(2);
}

/// Two classes of images of odd sizes: every kind of JPEG and PNG.
fs::path two_classes(const fs::path& folder) {
  const std::pair<const char*, std::string> files[] = {
      {"a/even.jpg", jpeg_of(picture(40, 60, 3))},
      {"a/odd.jpg", jpeg_of(picture(61, 37, 3))},
      {"a/small.jpg", jpeg_of(picture(11, 9, 3))},
      {"a/progressive.jpg", jpeg_of(picture(35, 51, 3), true)},
      {"a/chroma.jpg", jpeg_of(picture(33, 34, 3), false, {1, 1})},
      {"a/grey.jpg", jpeg_of(picture(45, 31, 1))},
      {"a/cmyk.jpg", jpeg_of(picture(38, 41, 4))},
      {"b/turned.jpg", turned(jpeg_of(picture(32, 47, 3)), 6)},
      {"b/mirrored.jpg", turned(jpeg_of(picture(29, 53, 1)), 2)},
      {"b/colour.png", png_of(picture(50, 43, 3))},
      {"b/grey.png", png_of(picture(31, 57, 1))},
      {"b/alpha.png", png_of(picture(42, 36, 4))},
      {"b/deep.png", png_of(picture(36, 39, 3), 16)}};
  for (const auto& [name, bytes] : files) write_file(folder / name, bytes);
  return folder;
}

/// A data set's form, and how a network that takes height x width sees it.
struct Way {
  const char* name;
  ImageForm form;
  std::size_t channels;
  model::Preparation preparation;
  std::size_t height, width;
};

const Way ways[] = {
    {"JPEGs, resized and cut", {.jpeg = true}, 3, {model::Resized::jpegs_only, 28}, 24, 25},
    {"JPEGs made smaller, turned, of low quality",
     {.exif_orientation = true, .jpeg = true, .short_side = 30, .quality = 70},
     3,
     {model::Resized::all, 27},
     20,
     27},
    {"grey JPEGs", {.jpeg = true}, 1, {model::Resized::others, 33}, 33, 31},
    {"pixels as they are stored", {28, 31}, 3, {model::Resized::jpegs_only, 32}, 28, 31},
    {"pixels, resized and cut", {40, 44}, 3, {model::Resized::all, 30}, 25, 29},
    {"pixels, resized to the side that they have", {40, 44}, 3, {model::Resized::all, 40}, 40, 37},
    {"pixels, turned and cut",
     {.height = 40, .width = 44, .exif_orientation = true},
     3,
     {model::Resized::jpegs, 36},
     25,
     31},
    {"grey pixels, resized and cut", {33, 29}, 1, {model::Resized::others, 30}, 27, 30}};

/// How many validation rows of a split are what preparing their files gives.
std::size_t alike(const fs::path& split, const fs::path& images, const Way& way) {
  const DataSet rows(split);
  DataSetInfo input = rows.info();
  input.height = way.height;
  input.width = way.width;
  LoaderSpec loading;
  loading.augment = model::evaluation_augment(way.preparation, input, rows.info());
  loading.sampler = {
      .rows = rows.info().rows, .global_batch = 4, .shuffle = Shuffle::none, .keep_last = true};
  loading.epochs = 1;
  ImagePreparer preparer(way.form, rows.info(), loading.augment);
  std::vector<std::uint8_t> row(preparer.row_bytes());
  CHECK(row.size() == way.height * way.width * way.channels);
  HostDevice device;
  Loader loader(rows, loading, device);
  std::size_t at = 0, same = 0;
  for (std::size_t b = 0; b < loader.sampler().batches(); ++b) {
    const Batch batch = loader.next();
    for (std::size_t r = 0; r < batch.rows; ++r) {
      const std::string name = rows.file_name(at++);
      INFO(name);
      preparer.prepare(read_text(images / name), name, row);
      const bool equal = std::equal(row.begin(), row.end(), batch.images + r * row.size());
      CHECK(equal);
      same += equal ? 1 : 0;
    }
    loader.release(batch);
  }
  return same;
}

}  // namespace

TEST_CASE("a prepared file is the validation's row of a data set that was packed from it",
          "[image][pack][loader]") {
  const Folder folder;
  const fs::path images = two_classes(folder.path / "images");
  const auto source = open_class_folders(images);
  for (const Way& way : ways) {
    INFO(way.name);
    PackSpec spec{way.form};
    spec.channels = way.channels;
    spec.held_out = 0.3;
    const fs::path out = folder.path / way.name;
    pack_as(2, *source, spec, out);
    CHECK(alike(out / "train", images, way) + alike(out / "val", images, way) == source->rows());
  }
}

TEST_CASE("a file that cannot be prepared is an error that names it", "[image]") {
  DataSetInfo jpegs;
  jpegs.channels = 3;
  jpegs.encoding = Encoding::jpeg;
  const AugmentSpec middle{.crop = Crop::centre, .height = 8, .width = 8, .short_side = 9};
  ImagePreparer preparer({.jpeg = true}, jpegs, middle);
  std::vector<std::uint8_t> row(preparer.row_bytes());
  const std::string whole = jpeg_of(picture(20, 30, 3));
  const auto prepared = [&](const std::string& file) { preparer.prepare(file, "x.jpg", row); };
  // In a thread that has decoded nothing, no earlier reason can be taken for this one's.
  std::string said;
  std::thread([&] {
    try {
      prepared(whole.substr(0, whole.size() / 2));
    } catch (const InputError& error) {
      said = error.what();
    }
  }).join();
  CHECK_THAT(said, Contains("x.jpg: broken JPEG: Premature end of JPEG file"));
  CHECK_NOTHROW(prepared(whole));
  for (const std::size_t bytes : {std::size_t{3}, std::size_t{100}, whole.size() / 2})
    CHECK_THROWS_WITH(prepared(whole.substr(0, bytes)), Contains("x.jpg: broken JPEG: "));
  CHECK_THROWS_WITH(prepared("GIF89a"), Contains("x.jpg: not an image"));
  std::string vast = whole;
  const std::size_t size_at = vast.find(std::string("\0\x14\0\x1E", 4));
  REQUIRE(size_at != vast.npos);
  vast.replace(size_at, 4, "\xEA\x60\xEA\x60");
  CHECK_THROWS_WITH(prepared(vast), Contains("x.jpg: its header claims 60000 x 60000 pixels"));

  DataSetInfo pixels = jpegs;
  pixels.encoding = Encoding::raw;
  pixels.height = pixels.width = 10;
  ImagePreparer same_size({}, pixels, {.crop = Crop::centre, .height = 8, .width = 8});
  CHECK_NOTHROW(same_size.prepare(png_of(picture(10, 10, 3)), "y.png", row));
  CHECK_THROWS_WITH(same_size.prepare(png_of(picture(10, 11, 3)), "y.png", row),
                    Contains("y.png: is 10 x 11, but only images of 10 x 10"));
  CHECK_THROWS_AS(ImagePreparer({.jpeg = true}, pixels, middle), Error);
}
