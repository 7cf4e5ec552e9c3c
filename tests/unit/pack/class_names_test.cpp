#include "pack/index/class_list.hpp"

#include <fmt/format.h>

#include <catch2/catch.hpp>
#include <filesystem>

#include "lockstep/base/error.hpp"
#include "lockstep/base/text/words.hpp"
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

// Composed and decomposed: an "e" with an accent, the Korean syllable han, the kana ga.
constexpr const char *rose = "ros\u00e9", *rose_apart = "rose\u0301", *han = "\ud55c",
                     *han_apart = "\u1112\u1161\u11ab", *ga = "\u304c", *ga_apart = "\u304b\u3099";

std::unique_ptr<Source> listed(const Folder& folder, const std::string& text,
                               const std::string& name = "list.csv",
                               const std::string& names = "") {
  SourceSpec spec;
  spec.kind = "list";
  spec.files = {folder.path / name};
  write_file(spec.files[0], text);
  if (!names.empty()) {
    spec.class_names = folder.path / "names.txt";
    write_file(spec.class_names, names);
  }
  return open_files(spec, folder.path / "index");
}

std::unique_ptr<Source> tarred(const Folder& folder, const std::string& members) {
  SourceSpec spec;
  spec.kind = "tar";
  spec.files = {folder.path / "a.tar"};
  write_file(spec.files[0], members + tar_end());
  return open_files(spec, folder.path / "index");
}

std::string tar_image(const std::string& name) {
  return tar_member(name, png_of(picture(4, 5, 3)));
}

}  // namespace

TEST_CASE("names look alike that differ in blanks or in their Unicode form only", "[source]") {
  for (const auto& [a, b] :
       {std::pair(rose, rose_apart), std::pair(han, han_apart), std::pair(ga, ga_apart),
        std::pair("cat", "cat "), std::pair("a b", "a\u00a0b"), std::pair("a b", " a  b"),
        std::pair("cat", "cat\u200b")}) {
    CAPTURE(a, b);
    CHECK(look_alike(a, b));
    CHECK(look_alike(b, a));
  }
  for (const auto& [a, b] :
       {std::pair("cat", "cat"), std::pair("cat", "Cat"), std::pair(rose, "rose"),
        std::pair(rose_apart, "rose"), std::pair("ab", "a b"),
        std::pair("\u043a\u043e\u0442", "\u0434\u043e\u043c"), std::pair(rose_apart, "rosa\u0301"),
        std::pair(han, ga)}) {
    CAPTURE(a, b);
    CHECK_FALSE(look_alike(a, b));
  }
}

TEST_CASE("two classes that look alike are an error that shows their bytes", "[source][label]") {
  const Folder folder;
  CHECK_THROWS_WITH(listed(folder, fmt::format("a.png,{}\nb.png,x\nc.png,{}\n", rose, rose_apart)),
                    Contains("two classes look alike") && Contains("list.csv, line 1") &&
                        Contains("list.csv, line 3") && Contains("ros\\xc3\\xa9") &&
                        Contains("rose\\xcc\\x81"));
  CHECK_THROWS_WITH(listed(folder, "a.png,\"cat \"\nb.png,cat\n"), Contains("look alike"));
  CHECK(listed(folder, "a.png, cat\nb.png,cat \n")->classes() == Names{"cat"});
  const auto cased = listed(folder, "a.png,Cat\nb.png,cat\n");
  CHECK(cased->classes() == Names{"Cat", "cat"});
  CHECK_THAT(cased->remarks()[0], Contains("\"Cat\" and \"cat\" are two, though"));
}

TEST_CASE("a label that no class has is an error that names the nearest", "[source][label]") {
  const Folder folder;
  write_file(folder.path / "in/train" / rose / "a.png", png_of(picture(4, 4, 3)));
  write_file(folder.path / "in/train/cat/a.png", png_of(picture(4, 4, 3)));
  write_file(folder.path / "in/val" / rose_apart / "a.png", png_of(picture(4, 4, 3)));
  CHECK_THROWS_WITH(open_class_folders(folder.path / "in"),
                    Contains("no training class has this name") && Contains("looks alike") &&
                        Contains("\"ros\\xc3\\xa9\"") && Contains("\"rose\\xcc\\x81\""));
  fs::remove_all(folder.path / "in/val");
  write_file(folder.path / "in/val/Cat/a.png", png_of(picture(4, 4, 3)));
  CHECK_THROWS_WITH(open_class_folders(folder.path / "in"),
                    Contains("val/Cat/a.png") && Contains("did you mean 'cat'?"));
  CHECK_THROWS_WITH(
      listed(folder, "a.png dasy\nb.png rose\n", "list.txt", "daisy\nrose\n"),
      Contains("line 1: the label \"dasy\" is not in") && Contains("did you mean 'daisy'?"));
}

TEST_CASE("no name becomes a line of a message, and no label has a control character",
          "[source][tar][label]") {
  const Folder folder;
  CHECK(one_line("a\nerror: b\x1b[2J") == "a\\nerror: b\\x1b[2J");
  for (const char* label : {R"({"label": "cat\u0000dog"})", R"({"label": "cat\nerror: x"})"})
    CHECK_THROWS_WITH(
        tarred(folder, tar_image("0.png") + tar_member("0.json", label)),
        Contains("a.tar: 0.json") && Contains("without control characters") && !Contains("\n"));
  CHECK_THROWS_WITH(tarred(folder, tar_image("0.png") + tar_member("0.cls", "a\x1b[2Jb")),
                    Contains("a\\x1b[2Jb"));
  CHECK_THROWS_WITH(tarred(folder, tar_image("a\nerror: x/1.png") + tar_image("b/1.png")),
                    Contains("control character") && Contains("a\\nerror: x"));
  const auto source = tarred(folder, tar_image("a/x\nerror: fake.png") + tar_image("b/1.png"));
  CHECK_THAT(source->name(0), Contains("a/x\\nerror: fake.png"));
  const std::string pax = "path=a/1.png" + std::string(1, '\0') + "b\n";
  CHECK_THROWS_WITH(tarred(folder, tar_member("pax", "18 " + pax, 'x') + tar_image("a/2.png")),
                    Contains("pax header that is damaged"));
}

TEST_CASE("a list gives an image one label, and says where it has it again", "[source][label]") {
  const Folder folder;
  for (const char* name : {"list.csv", "list.txt"}) {
    const char between = name[5] == 'c' ? ',' : ' ';
    const auto list = [&](const char* last) {
      return listed(folder,
                    fmt::format("a.png{}x\nb.png{}y\n{}\n", between, between,
                                fmt::format(fmt::runtime(last), between)),
                    name);
    };
    CHECK_THROWS_WITH(list("./a.png{}y"),
                      Contains(std::string(name) + ", lines 1 and 3: ./a.png: one image has two "
                                                   "labels, \"x\" and \"y\""));
    const auto again = list("a.png{}x");
    CHECK(again->rows() == 3);
    CHECK_THAT(again->remarks()[0], Contains("lines 1 and 3: a.png: an image is listed again"));
    CHECK(list("c.png{}x")->remarks().size() == 1);
  }
  CHECK_THROWS_WITH(
      tarred(folder, tar_image("a/1.png") + tar_image("b/1.png") + tar_image("a/1.png")),
      Contains("a.tar: a/1.png: two images have this name, at bytes 512 and "));
}

TEST_CASE("CSV files of other programs are read right, or the error says how to write them",
          "[source]") {
  const Folder folder;
  const auto source =
      listed(folder, "filename, label\na.png, cat\n\"b.png\" , \"big dog\"\n", "LIST.CSV");
  CHECK(source->classes() == Names{"big dog", "cat"});
  CHECK(source->file_name(0) == "a.png");
  CHECK(source->file_name(1) == "b.png");
  CHECK_THROWS_WITH(listed(folder, "path;label\na.png;cat\n"),
                    Contains("line 1") && Contains("';' seem to be between the fields: write ','"));
  CHECK_THROWS_WITH(listed(folder, "id,label,path\n1,cat,a.png\n2,a,b,c.png\n"),
                    Contains("line 3: has 4 fields, but the header only 3"));
  CHECK_THROWS_WITH(listed(folder, "path,label,Label\na.png,0,1\n"),
                    Contains("names the column 'label' twice"));
  const auto two = listed(folder, "path,label,class_name\na.png,0,cat\nb.png,1,dog\n");
  CHECK_THAT(two->remarks()[0], Contains("the labels are in the column 'label'") &&
                                    Contains("'class_name' is not used"));
  CHECK(listed(folder,
               "\xEF\xBB\xBF"
               "a.png 0\nb.png 1\n",
               "l.txt")
            ->file_name(0) == "a.png");
}

TEST_CASE("a file of class names counts its lines as they are", "[source][label]") {
  const Folder folder;
  const auto classes = [&](const char* names) {
    return listed(folder, "a.png 0\nb.png 1\n", "list.txt", names)->classes();
  };
  CHECK(classes("\xEF\xBB\xBF"
                "daisy \r\n\trose\r\n\r\n") == Names{"daisy", "rose"});
  CHECK_THROWS_WITH(classes("daisy\n\nrose\n"),
                    Contains("names.txt, line 2: is empty, but names follow"));
  CHECK_THROWS_WITH(classes("daisy\ndaisy \n"), Contains("names a class twice"));
}

TEST_CASE("a missing image of a list is named with the first line of those that are missing",
          "[source]") {
  const Folder folder;
  write_file(folder.path / "a.png", png_of(picture(4, 5, 3)));
  const auto source = listed(folder, "a.png,x\nb.png,y\nc.png,y\n");
  CHECK_THROWS_WITH(source->read(2), Contains("list.csv, line 3: ") && Contains("c.png: No such") &&
                                         Contains("(the first that is missing: line 2)"));
}
