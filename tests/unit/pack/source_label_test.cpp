#include <fmt/format.h>

#include <catch2/catch.hpp>

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

/// Opens a list of images and labels, one in each line.
std::unique_ptr<Source> labelled_list(const Folder& folder, const std::string& text,
                                      const std::string& names = "") {
  SourceSpec spec;
  spec.kind = "list";
  spec.files = {folder.path / "list.txt"};
  write_file(spec.files[0], text);
  if (!names.empty()) {
    spec.class_names = folder.path / "names.txt";
    write_file(spec.class_names, names);
  }
  return open_files(spec, folder.path / "index");
}

std::unique_ptr<Source> labelled_tar(const Folder& folder, const std::string& members) {
  SourceSpec spec;
  spec.kind = "tar";
  spec.files = {folder.path / "a.tar"};
  write_file(spec.files[0], members + tar_end());
  return open_files(spec, folder.path / "index");
}

std::string member(const std::string& name) { return tar_member(name, png_of(picture(4, 5, 3))); }

}  // namespace

TEST_CASE("a number that is not a whole one from 0 is an error that names list and line",
          "[source][label]") {
  const Folder folder;
  for (const char* label : {"-1", "+1", "0.0", "1.5", ".5", "1e3", "-0"})
    for (const char* other : {"0", "cat"})
      CHECK_THROWS_WITH(
          labelled_list(folder, fmt::format("a.png {}\nb.png {}\nc.png 10\n", other, label)),
          Contains(fmt::format("list.txt, line 2: the label \"{}\" is a number", label)));
  CHECK(labelled_list(folder, "a.png 0\nb.png 2\nc.png 10\n")->label(2) == 10);
}

TEST_CASE("numbers among words are an error, unless a file names both", "[source][label]") {
  const Folder folder;
  CHECK_THROWS_WITH(labelled_list(folder, "a.png cat\nb.png 3\nc.png 4\n"),
                    Contains("list.txt, line 2: the label \"3\" is a number") &&
                        Contains("but \"cat\" (") && Contains("list.txt, line 1) is a word") &&
                        Contains("--class-names"));
  const auto named = labelled_list(folder, "a.png cat\nb.png 3\nc.png -1\n", "cat\n-1\n3\n");
  CHECK(named->classes() == Names{"cat", "-1", "3"});
  CHECK(named->label(1) == 2);
  CHECK(named->label(2) == 1);
  CHECK_THROWS_WITH(
      labelled_list(folder, "a.png cat\nb.png -1\n", "cat\n3\n"),
      Contains("list.txt, line 2: the label \"-1\" is not in ") && Contains("names.txt"));
}

TEST_CASE("words that only look a little like numbers are names", "[source][label]") {
  const Folder folder;
  const auto source =
      labelled_list(folder, "a n01440764\nb 7up\nc 1-2\nd nan\ne inf\nf -\ng 1.2.3\nh 3D\ni e5\n");
  CHECK(source->classes() ==
        Names{"-", "1-2", "1.2.3", "3D", "7up", "e5", "inf", "n01440764", "nan"});
}

TEST_CASE("in tars such labels are errors that name the member", "[source][tar][label]") {
  const Folder folder;
  CHECK_THROWS_WITH(labelled_tar(folder, member("0.png") + tar_member("0.cls", "3") +
                                             member("1.png") + tar_member("1.cls", "-1\n")),
                    Contains("a.tar: 1.png: the label \"-1\" is a number"));
  CHECK_THROWS_WITH(
      labelled_tar(folder, member("0.png") + tar_member("0.json", R"({"label": "0.0"})")),
      Contains("a.tar: 0.png: the label \"0.0\" is a number"));
  CHECK_THROWS_WITH(labelled_tar(folder, member("0.png") + tar_member("0.json", R"({"cls": 0.0})")),
                    Contains("\"cls\" is 0.0: expected a name or a number from 0"));
  CHECK_THROWS_WITH(
      labelled_tar(folder, member("0.png") + tar_member("0.json", R"({"label": 4})") +
                               member("1.png") + tar_member("1.json", R"({"cls": "b"})")),
      Contains("0.png: the label \"4\" is a number") && Contains("1.png"));
}

TEST_CASE("folders that are named by numbers are names", "[source][label]") {
  const Folder folder;
  for (const char* name : {"-1", "0.5", "10", "cat"})
    write_file(folder.path / name / "a.png", png_of(picture(4, 5, 3)));
  CHECK(open_class_folders(folder.path)->classes() == Names{"-1", "0.5", "10", "cat"});
  const Folder numbers;
  for (const char* name : {"0", "2", "10"})
    write_file(numbers.path / name / "a.png", png_of(picture(4, 5, 3)));
  const auto source = open_class_folders(numbers.path);
  CHECK(source->classes() == Names{"0", "10", "2"});
  REQUIRE(source->remarks().size() == 1);
  CHECK_THAT(source->remarks()[0], Contains("not of their numbers: class 2 is \"2\""));
}

TEST_CASE("labels that are numbers count the lines of the names, which are then no other numbers",
          "[source][label]") {
  const Folder folder;
  CHECK(labelled_list(folder, "a.png 1\nb.png 0\n", "daisy\nrose\n")->label(0) == 1);
  CHECK(labelled_list(folder, "a.png 1\nb.png 0\n", "0\n1\n")->label(0) == 1);
  CHECK_THROWS_WITH(labelled_list(folder, "a.png 1\nb.png 0\n", "1\n0\n"),
                    Contains("names.txt: its line 1 is the name \"1\", but labels"));
  CHECK_THROWS_WITH(labelled_list(folder, "a.png 1\nb.png 5000\n"),
                    Contains("5001 classes, but only 2 of them"));
}

TEST_CASE("a .json that says no label is named when folders are taken as classes",
          "[source][tar][label]") {
  const Folder folder;
  const auto source =
      labelled_tar(folder, member("a/b/k1.png") +
                               tar_member("a/b/k1.json", "{\"class_name\": 1, \"i\\u0000d\": 2}") +
                               member("a/b/k2.png") + tar_member("a/b/k2.json", "[]"));
  REQUIRE(source->remarks().size() == 2);
  CHECK_THAT(source->remarks()[0], Contains("2 .json give no label (\"label\"") &&
                                       Contains("a.tar: a/b/k1.json has ") &&
                                       Contains("\"class_name\", \"i\\u0000d\""));
  CHECK(source->remarks()[1] == "all images are of one class, \"b\": a classifier needs 2");
  const auto apart =
      labelled_tar(folder, tar_member("a/b/x.json", "{}") + member("a/b/k1.png") +
                               tar_member("a/b/k1.json", "{}") + member("a/c/k2.png"));
  REQUIRE(apart->remarks().size() == 1);
  CHECK_THAT(apart->remarks()[0],
             Contains("2 .json give no label") && Contains("x.json has no image next to it"));
  const auto labelled = labelled_tar(
      folder, member("k.png") + tar_member("k.json", "{\"x\": 1}") + tar_member("k.cls", "1"));
  CHECK(labelled->remarks() == Names{"1 of 2 classes have no training image"});
}
