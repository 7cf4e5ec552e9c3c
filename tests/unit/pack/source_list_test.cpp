#include "lockstep/base/error.hpp"
#include "lockstep/data/shard/data_set.hpp"
#include "lockstep/pack/source/source.hpp"
#include "tests/unit/data/image_fixture.hpp"
#include "tests/unit/pack/pack_fixture.hpp"

namespace fs = std::filesystem;
using namespace lockstep;
using namespace lockstep::data;
using namespace lockstep::pack;
using namespace lockstep::test;
using Catch::Matchers::Contains;

namespace {

std::unique_ptr<Source> open_list(const Folder& folder, const std::string& text,
                                  const std::string& name = "list.csv") {
  write_file(folder.path / name, text);
  SourceSpec spec;
  spec.kind = "list";
  spec.files = {folder.path / name};
  return open_files(spec, folder.path / "index");
}

}  // namespace

TEST_CASE("a CSV list is read by its header, or as path and label", "[source]") {
  const Folder folder;
  const std::string texts[] = {"a.png,cat\n\"b, c.png\",\"the \"\"big\"\" dog\"\r\n",
                               "\xEF\xBB\xBFpath,label\r\na.png,cat\n\n\"b, c.png\",\"the "
                               "\"\"big\"\" dog\"\n",
                               "id,Class_Name,width,File_Name\n1,cat,20,a.png\n2,\"the \"\"big\"\" "
                               "dog\",30,\"b, c.png\""};
  for (const std::string& text : texts) {
    CAPTURE(text);
    const auto source = open_list(folder, text);
    REQUIRE(source->rows() == 2);
    CHECK(source->classes() == std::vector<std::string>{"cat", "the \"big\" dog"});
    CHECK(source->file_name(1) == "b, c.png");
    CHECK(source->label(1) == 1);
  }
}

TEST_CASE("a .tsv is a list with tabs and perhaps a header", "[source]") {
  const Folder folder;
  for (const char* text : {"path\tlabel\na, b.png\tcat\n", "a, b.png\tcat\n"}) {
    const auto source = open_list(folder, text, "list.tsv");
    REQUIRE(source->rows() == 1);
    CHECK(source->file_name(0) == "a, b.png");
    CHECK_THROWS_WITH(source->read(0), Contains("list.tsv, line ") && Contains("No such file"));
  }
}

TEST_CASE("a CSV list that is not clear is an error that gives file and line", "[source]") {
  const Folder folder;
  const std::pair<const char*, const char*> bad[] = {
      {"img,species\na.png,cat\n", "list.csv, line 1: expected a path and a label"},
      {"a.png,cat\nb.png\n", "line 2: has 1 field"},
      {"a.png,cat\nb.png,dog,3\n", "line 2: has 3 fields; without a header"},
      {"a.png,cat\n\"b.png,dog\n", "line 2: has a quotation mark without its pair"},
      {"a.png,cat\n\"b\".png,dog\n", "line 2: has text after a quoted field"},
      {"a.png,c\"at\n", "line 1: has a quotation mark inside"},
      {"path,label\n,cat\n", "line 2: has an empty path"},
      {"path,label\n", "lists no images"},
      {"", "lists no images"}};
  for (const auto& [text, what] : bad) {
    CAPTURE(text);
    CHECK_THROWS_WITH(open_list(folder, text), Contains("list.csv") && Contains(what));
  }
}

TEST_CASE("packed rows keep the names of their files, also when they are packed again", "[pack]") {
  const Folder folder;
  const std::string long_name = "cat/" + std::string(300, 'x').substr(0, 240) + ".png";
  write_file(folder.path / "in" / long_name, png_of(picture(4, 4, 3)));
  write_file(folder.path / "in" / "cat" / "b.png", png_of(picture(4, 4, 3)));
  write_file(folder.path / "in" / "dog" / "c.png", png_of(picture(4, 4, 3)));
  PackSpec spec;
  spec.jpeg = GENERATE(false, true);
  const auto source = open_class_folders(folder.path / "in");
  pack_as(1, *source, spec, folder.path / "out");
  const DataSet rows(folder.path / "out" / "train");
  std::set<std::string> names;
  for (std::size_t row = 0; row < rows.info().rows; ++row) {
    const std::string& name = *names.insert(rows.file_name(row)).first;
    const auto label = static_cast<std::size_t>(rows.labels()[row]);
    CHECK(name.starts_with(rows.info().classes[label] + '/'));
  }
  CHECK(names == std::set<std::string>{long_name, "cat/b.png", "dog/c.png"});
  SourceSpec again;
  again.kind = "shards";
  again.files = {folder.path / "out" / "train"};
  spec.keep_order = true;
  pack_as(1, *open_source(again, {}), spec, folder.path / "again");
  const DataSet repacked(folder.path / "again" / "train");
  for (std::size_t row = 0; row < rows.info().rows; ++row)
    CHECK(repacked.file_name(row) == rows.file_name(row));
}

TEST_CASE("a message about a broken row names the file that it was made from", "[pack][shard]") {
  const Folder folder;
  write_file(folder.path / "in" / "cat" / "b.png", png_of(picture(4, 4, 3)));
  write_file(folder.path / "in" / "dog" / "c.png", png_of(picture(4, 5, 3)));
  PackSpec spec;
  spec.height = spec.width = 4;
  pack_as(1, *open_class_folders(folder.path / "in"), spec, folder.path / "out");
  const fs::path shard = folder.path / "out" / "train" / "train-00000-of-00001.h5";
  std::vector<std::uint8_t> image(4 * 4 * 3);
  DataSet(shard).read(1, image);
  std::string bytes = read_text(shard);
  const std::size_t at = bytes.find(std::string(image.begin(), image.end()));
  REQUIRE(at != std::string::npos);
  bytes[at] = static_cast<char>(bytes[at] ^ 1);
  write_file(shard, bytes);
  const DataSet rows(shard);
  CHECK_THROWS_WITH(
      rows.read(1, image),
      Contains("row 1 is damaged") && Contains("(it was made from " + rows.file_name(1) + ")"));
  CHECK_THAT(rows.file_name(1), Contains(".png"));
}

TEST_CASE("images are turned by their orientation only when asked to", "[pack][exif]") {
  const Folder folder;
  const std::string jpeg = jpeg_of(picture(8, 16, 3));
  const std::string six(
      "\xFF\xE1\0\x22"
      "Exif\0\0II*\0\x08\0\0\0\x01\0\x12\x01\x03\0\x01\0\0\0"
      "\x06\0\0\0\0\0\0\0",
      36);
  write_file(folder.path / "a" / "1.jpg", jpeg.substr(0, 2) + six + jpeg.substr(2));
  write_file(folder.path / "b" / "2.jpg", jpeg);
  const auto source = open_class_folders(folder.path);
  PackSpec spec;
  const auto size_of = [&](std::size_t row) {
    const Image image = read_image(*source, spec, Element::u8, row);
    return std::pair(image.height, image.width);
  };
  CHECK(size_of(0) == std::pair<std::size_t, std::size_t>(8, 16));
  spec.exif_orientation = true;
  CHECK(size_of(0) == std::pair<std::size_t, std::size_t>(16, 8));
  CHECK(size_of(1) == std::pair<std::size_t, std::size_t>(8, 16));
  spec.jpeg = true;
  const DataSetInfo info = packed_info(*source, spec);
  // Encoded again without the orientation; the upright one is kept as it is.
  CHECK(decode_image(prepare_row(*source, spec, info, 0).jpeg, "1").height == 16);
  CHECK(prepare_row(*source, spec, info, 1).jpeg == jpeg);
}
