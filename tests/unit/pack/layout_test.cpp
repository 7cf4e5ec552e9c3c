#include <fmt/format.h>

#include <catch2/catch.hpp>
#include <filesystem>

#include "lockstep/base/error.hpp"
#include "tests/unit/data/image_fixture.hpp"
#include "tests/unit/pack/pack_fixture.hpp"
#include "tests/unit/pack/tar_fixture.hpp"

namespace fs = std::filesystem;
using namespace lockstep;
using namespace lockstep::data;
using namespace lockstep::pack;
using namespace lockstep::test;
using Catch::Matchers::Contains;
using Names = std::vector<std::string>;

namespace {

/// "cat dog | train: 1.png=cat 2.png=dog | val: 3.png=cat", or the error.
std::string told(const SourceSpec& spec, const fs::path& index) {
  fs::remove_all(index);
  try {
    const auto source = open_files(spec, index);
    std::string text;
    for (const std::string& name : source->classes()) text += name + ' ';
    for (std::size_t row = 0; row < source->rows(); ++row) {
      if (row == 0) text += "| train:";
      if (row == source->training_rows()) text += " | val:";
      text += ' ' + fs::path(source->file_name(row)).filename().string() + '=' +
              source->classes()[static_cast<std::size_t>(source->label(row))];
    }
    return text;
  } catch (const InputError& error) {
    return std::string("error: ") + error.what();
  }
}

std::string told_of_folder(const Folder& scratch, const Names& files, const std::string& names) {
  fs::remove_all(scratch.path / "photos");
  for (const std::string& file : files)
    write_file(scratch.path / "photos" / file, png_of(picture(4, 5, 3)));
  SourceSpec spec;
  spec.kind = "classes";
  spec.files = {scratch.path / "photos"};
  spec.class_names = names;
  return told(spec, scratch.path / "index");
}

std::string told_of_tar(const Folder& scratch, const Names& files, const std::string& top,
                        const std::string& names) {
  std::string members;
  for (const std::string& file : files) members += tar_member(top + file, png_of(picture(4, 5, 3)));
  write_file(scratch.path / "photos.tar", members + tar_end());
  SourceSpec spec;
  spec.kind = "tar";
  spec.files = {scratch.path / "photos.tar"};
  spec.class_names = names;
  return told(spec, scratch.path / "index");
}

}  // namespace

TEST_CASE("a folder and a tar of it have the same classes and splits, or the same error",
          "[source][tar][layout]") {
  struct Case {
    Names files;
    const char* want;
  };
  const Case cases[] = {
      {{"Train/a/1.png", "Train/b/2.png", "Test/a/3.png"}, "a b | train: 1.png=a 2.png=b | val: 3"},
      {{"training_set/a/1.png", "training_set/b/2.png", "test_set/b/3.png"},
       "a b | train: 1.png=a 2.png=b | val: 3.png=b"},
      {{"TRAINING/a/1.png", "TRAINING/b/2.png", "Valid/b/3.png"}, "| val: 3.png=b"},
      {{"test/a/3.png", "train/a/1.png", "train/b/2.png", "val/b/4.png"}, "| val: 4.png=b"},
      {{"cat/deep/1.png", "cat/deeper/2.png", "dog/3.png"},
       "cat dog | train: 1.png=cat 2.png=cat 3.png=dog"},
      {{"n01/images/1.png", "n02/images/2.png"}, "n01 n02 | train: 1.png=n01 2.png=n02"},
      {{"1.png", "a/2.png", "b/3.png"}, "a b | train: 2.png=a 3.png=b"},
      {{"train/1.png", "train/a/2.png", "train/b/3.png", "val/a/4.png"},
       "a b | train: 2.png=a 3.png=b | val: 4.png=a"},
      {{"__MACOSX/a/._1.png", "a/.ipynb_checkpoints/1.png", "a/1.png", "a/@eaDir/1.png/t.png",
        "b/._2.png", "b/2.png"},
       "a b | train: 1.png=a 2.png=b"},
      {{"contest/1.png", "train/2.png", "unvalid/x/3.png"},
       "contest train unvalid | train: 1.png=contest 2.png=train 3.png=unvalid"},
      {{"seg_test/seg_test/a/1.png", "seg_train/seg_train/a/2.png", "seg_train/seg_train/b/3.png"},
       "seg_test: look like splits, and not like classes"},
      {{"test/1.png", "train/2.png"}, "look like splits"},
      {{"test1/1.png", "train/2.png"}, "look like splits"},
      {{"cat/front/1.png", "cat/side/2.png", "dog/front/3.png", "dog/side/4.png"},
       "dog: hold folders of the same names (front, side)"},
      {{"dev/a/1.png", "train/a/2.png"}, "dev: holds images and is next to train/"},
      {{"train/a/1.png", "val/a/2.png", "validation/a/3.png"},
       "validation: which of them is for validation?"},
      {{"Train/a/1.png", "train/a/2.png"}, "train: which of them is for training?"},
      {{"test/a/1.png", "val/a/2.png"}, "holds no training images; 2 are in a folder for"},
  };
  const Folder scratch;
  for (const Case& one : cases) {
    CAPTURE(one.files);
    CHECK_THAT(told_of_folder(scratch, one.files, ""), Contains(one.want));
    for (const char* top : {"", "./", "photos/", "home/me/photos/"})
      CHECK_THAT(told_of_tar(scratch, one.files, top, ""), Contains(one.want));
  }
}

TEST_CASE("a file of class names says that folders which look like splits are classes",
          "[source][tar][layout]") {
  const Folder scratch;
  const std::string names = (scratch.path / "names.txt").string();
  for (const auto& [a, b] :
       {std::pair("test", "train"), std::pair("test_run", "train_run"), std::pair("one", "two")}) {
    write_file(names, fmt::format("{}\n{}\n", a, b));
    const std::string inner = a[0] == 'o' ? "/x/" : "/", other = a[0] == 'o' ? "/y/" : "/";
    const Names files{a + inner + "1.png", a + other + "2.png", b + inner + "3.png",
                      b + other + "4.png"};
    const std::string want = fmt::format("{} {} | train: 1.png={}", a, b, a);
    CHECK_THAT(told_of_folder(scratch, files, names), Contains(want));
    CHECK_THAT(told_of_tar(scratch, files, "photos/", names), Contains(want));
  }
}

TEST_CASE("a tar of one split or one class is a part of the data set that it was cut from",
          "[source][tar][layout]") {
  const Folder scratch;
  const auto add = [&](const char* name, const Names& files) {
    std::string members;
    for (const std::string& file : files) members += tar_member(file, png_of(picture(4, 5, 3)));
    write_file(scratch.path / name, members + tar_end());
    return scratch.path / name;
  };
  SourceSpec spec;
  spec.kind = "tar";
  spec.files = {add("0.tar", {"photos/train/cat/1.png", "photos/train/dog/2.png"}),
                add("1.tar", {"photos/train/cat/3.png"}),
                add("2.tar", {"photos/val/dog/4.png", "photos/val/dog/5.png"})};
  CHECK(told(spec, scratch.path / "index") ==
        "cat dog | train: 1.png=cat 2.png=dog 3.png=cat | val: 4.png=dog 5.png=dog");
}

TEST_CASE("files and folders that are left out are counted, and the first is named",
          "[source][layout]") {
  const Folder folder;
  for (const char* name : {"a/1.png", "a/2.gif", "a/@eaDir/1.png", "b/1.png", "b/.2.png"})
    write_file(folder.path / name, png_of(picture(4, 5, 3)));
  write_file(folder.path / "b/.DS_Store", "no image, no word");
  const auto source = open_class_folders(folder.path);
  CHECK(source->rows() == 2);
  REQUIRE(source->remarks().size() == 1);
  CHECK_THAT(source->remarks()[0], Contains("3 files left out") && Contains("the first: a/2.gif"));
}
