#include <catch2/catch.hpp>

#include "tests/unit/data/image_fixture.hpp"
#include "tests/unit/pack/pack_fixture.hpp"

namespace fs = std::filesystem;
using namespace lockstep;
using namespace lockstep::test;
using Catch::Matchers::Contains;

namespace {

/// What is said of class folders, packed as JPEGs or pixels.
std::vector<std::string> said_of(const fs::path& folder, bool jpeg) {
  const Folder out;
  const auto source = open_class_folders(folder);
  PackSpec spec;
  spec.jpeg = jpeg;
  const DataSetInfo info = packed_info(*source, spec);
  const auto plan = plan_shards(*source, spec, packed_row_bytes(*source, spec, info));
  const PackFolder partial(out.path, false);
  Packer packer(*source, spec, info, PackFolder::partial(out.path), plan);
  while (!packer.finished()) packer.advance(1);
  return say_equal_images(*source, plan, PackFolder::partial(out.path));
}

}  // namespace

TEST_CASE("an image that two classes have, or training and validation, is named", "[pack]") {
  const bool jpeg = GENERATE(false, true);
  const Folder folder;
  const auto add = [&](const char* name, std::size_t channels) {
    write_file(folder.path / name, png_of(picture(8, 9, channels)));
  };
  add("train/cat/1.png", 3);
  add("train/dog/2.png", 1);
  CHECK(said_of(folder.path, jpeg).empty());
  add("val/cat/3.png", 3);
  auto said = said_of(folder.path, jpeg);
  REQUIRE(said.size() == 1);
  CHECK_THAT(said[0], Contains("1 image is both in the training and in the validation set") &&
                          Contains("train/cat/1.png ('cat')") && Contains("val/cat/3.png ('cat')"));
  add("train/dog/4.png", 3);
  add("train/dog/5.png", 3);
  said = said_of(folder.path, jpeg);
  REQUIRE(said.size() == 2);
  CHECK_THAT(said[0], Contains("2 images are equal to an image of another class") &&
                          Contains("train/cat/1.png ('cat')") &&
                          Contains("train/dog/4.png ('dog')"));
}
