#include <bzlib.h>
#include <lzma.h>
#include <zlib.h>
#include <zstd.h>
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

namespace {

std::string image(std::size_t width) { return png_of(picture(4, width, 3)); }

SourceSpec tars(const std::vector<fs::path>& files) {
  SourceSpec spec;
  spec.kind = "tar";
  spec.files = files;
  return spec;
}

std::unique_ptr<Source> open_tar(const fs::path& path, const std::string& bytes) {
  write_file(path, bytes);
  return open_files(tars({path}), path.parent_path() / "index");
}

/// A sample as in WebDataset.
std::string sample(const std::string& key, std::size_t width, const std::string& label) {
  return tar_member(key + ".png", image(width)) + tar_member(key + ".cls", label);
}

std::string gzip(const std::string& bytes) {
  z_stream stream{};
  REQUIRE(deflateInit2(&stream, 6, Z_DEFLATED, MAX_WBITS + 16, 8, Z_DEFAULT_STRATEGY) == Z_OK);
  std::string packed(deflateBound(&stream, bytes.size()), '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(bytes.data()));
  stream.avail_in = static_cast<uInt>(bytes.size());
  stream.next_out = reinterpret_cast<Bytef*>(packed.data());
  stream.avail_out = static_cast<uInt>(packed.size());
  REQUIRE(deflate(&stream, Z_FINISH) == Z_STREAM_END);
  packed.resize(packed.size() - stream.avail_out);
  deflateEnd(&stream);
  return packed;
}

/// As the program zstd writes it: with a checksum.
std::string zstd(const std::string& bytes) {
  ZSTD_CCtx* context = ZSTD_createCCtx();
  ZSTD_CCtx_setParameter(context, ZSTD_c_checksumFlag, 1);
  std::string packed(ZSTD_compressBound(bytes.size()), '\0');
  packed.resize(ZSTD_compress2(context, packed.data(), packed.size(), bytes.data(), bytes.size()));
  ZSTD_freeCCtx(context);
  return packed;
}

std::string xz(const std::string& bytes) {
  std::string packed(lzma_stream_buffer_bound(bytes.size()), '\0');
  std::size_t count = 0;
  REQUIRE(lzma_easy_buffer_encode(1, LZMA_CHECK_CRC64, nullptr,
                                  reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size(),
                                  reinterpret_cast<std::uint8_t*>(packed.data()), &count,
                                  packed.size()) == LZMA_OK);
  packed.resize(count);
  return packed;
}

std::string bzip2(const std::string& bytes) {
  std::string packed(bytes.size() + bytes.size() / 100 + 600, '\0');
  auto count = static_cast<unsigned>(packed.size());
  REQUIRE(BZ2_bzBuffToBuffCompress(packed.data(), &count, const_cast<char*>(bytes.data()),
                                   static_cast<unsigned>(bytes.size()), 1, 0, 0) == BZ_OK);
  packed.resize(count);
  return packed;
}

}  // namespace

TEST_CASE("a tar of class folders is what the folders are", "[source][tar]") {
  const Folder folder;
  std::string archive;
  const std::string top = GENERATE("", "./", "photos/"), plain = top == "./" ? "" : top;
  for (const char* name : {"train/cat/a.png", "test/dog/c.png", "train/dog/b.png",
                           "train/dog/deep/d.png", "train/dog/.e.png", "train/cat/notes.txt"}) {
    archive += tar_member(top + name, image(archive.size() / 512 + 4));
  }
  const auto source = open_tar(folder.path / "a.tar", archive + tar_end());
  CHECK(source->classes() == std::vector<std::string>{"cat", "dog"});
  REQUIRE(source->rows() == 4);
  CHECK(source->training_rows() == 3);
  CHECK(source->label(0) == 0);
  CHECK(source->label(1) == 1);
  CHECK(source->label(3) == 1);
  CHECK_THAT(source->name(1), Contains("a.tar: ") && Contains("train/dog/b.png"));
  CHECK_THAT(source->name(3), Contains("test/dog/c.png"));
  CHECK(source->read(0).width == 4);
  REQUIRE(source->remarks().size() == 1);
  CHECK_THAT(source->remarks()[0],
             Contains("2 files left out") && Contains("the first: " + plain + "train/dog/.e.png"));
}

TEST_CASE("without a folder train, the classes are below the folder that all share",
          "[source][tar]") {
  const Folder folder;
  const auto source =
      open_tar(folder.path / "a.tar", tar_member("all/dog/x/1.png", image(5)) +
                                          tar_member("all/cat/1.png", image(6)) + tar_end());
  CHECK(source->classes() == std::vector<std::string>{"cat", "dog"});
  CHECK(source->training_rows() == 2);
  CHECK(source->label(0) == 1);
}

TEST_CASE("WebDataset's samples have their label next to them", "[source][tar]") {
  const Folder folder;
  const fs::path first = folder.path / "train-0.tar", second = folder.path / "train-1.tar";
  const fs::path held = folder.path / "val-0.tar";
  write_file(first, sample("000", 5, "7\n") + sample("a/001", 6, "2") + tar_end());
  write_file(second, tar_member("002.json", R"({"label": 2, "x": [1]})") +
                         tar_member("002.seg.png", image(9)) + tar_member("002.png", image(7)) +
                         tar_end());
  write_file(held, sample("003", 8, "7") + tar_end());
  SourceSpec spec = tars({first, second});
  spec.validation_files = {held};
  const auto source = open_files(spec, folder.path / "index");
  REQUIRE(source->rows() == 4);
  CHECK(source->training_rows() == 3);
  REQUIRE(source->classes().size() == 8);
  CHECK(source->classes()[7] == "7");
  const std::int32_t labels[] = {7, 2, 2, 7};
  for (std::size_t row = 0; row < 4; ++row) {
    CHECK(source->label(row) == labels[row]);
    CHECK(source->read(row).width == 5 + row);
  }
  spec.class_names = folder.path / "names.txt";
  write_file(spec.class_names, "a\nb\nc\nd\ne\nf\ng\nh\ni\n");
  CHECK(open_files(spec, folder.path / "index")->classes()[7] == "h");
  write_file(spec.class_names, "a\nb\nc\n");
  CHECK_THROWS_WITH(
      open_files(spec, folder.path / "index"),
      Contains("train-0.tar: 000.png: label 7 is out of range: ") && Contains("names 3 classes"));
}

TEST_CASE("labels that are words are classes in order of name", "[source][tar]") {
  const Folder folder;
  const fs::path path = folder.path / "a.tar";
  const auto source =
      open_tar(path, sample("0", 5, "dog") + sample("1", 6, "2nd") + sample("2", 6, "dog") +
                         tar_member("3.jpg", jpeg_of(picture(5, 5, 3))) +
                         tar_member("3.json", R"({"class": "ant"})") + tar_end());
  CHECK(source->classes() == std::vector<std::string>{"2nd", "ant", "dog"});
  CHECK(source->label(0) == 2);
  CHECK(source->label(3) == 1);
}

TEST_CASE("gzip, zstd, xz and bzip2 are unpacked, in several streams, too", "[source][tar]") {
  const Folder folder;
  const std::string archive =
      sample("0", 5, "0") + sample("1", 6, "1") + tar_end() + std::string(300'000, '\0');
  const auto halves = [&](auto pack) {
    return pack(archive.substr(0, 1000)) + pack(archive.substr(1000));
  };
  for (const std::string& packed :
       {gzip(archive), halves(gzip), gzip(archive) + std::string(100, '\0'), zstd(archive),
        halves(zstd), xz(archive), halves(xz), bzip2(archive), halves(bzip2)}) {
    fs::remove_all(folder.path / "index");
    const auto source = open_tar(folder.path / "a.tar.z", packed);
    REQUIRE(source->rows() == 2);
    CHECK(source->read(1).width == 6);
    CHECK_THAT(source->name(1), Contains("a.tar.z: 1.png"));
  }
  for (const std::string& packed : {gzip(archive), zstd(archive), xz(archive), bzip2(archive)}) {
    for (const std::size_t bytes : {packed.size() / 2, packed.size() - 1})
      CHECK_THROWS_WITH(open_tar(folder.path / "a.tar.z", packed.substr(0, bytes)),
                        Contains("a.tar.z: cannot be unpacked: "));
    std::string damaged = packed;
    damaged[packed.size() / 2] = static_cast<char>(damaged[packed.size() / 2] ^ 0x55);
    CHECK_THROWS_WITH(open_tar(folder.path / "a.tar.z", damaged),
                      Contains("a.tar.z: cannot be unpacked: "));
  }
  CHECK_THROWS_WITH(open_tar(folder.path / "a.tar.bz2", "BZh91AY"),
                    Contains("a.tar.bz2: cannot be unpacked: it is cut off"));
}

TEST_CASE("what a tar leaves unclear is an error that names the member", "[source][tar]") {
  const Folder folder;
  const auto refused = [&](const std::string& members) {
    return open_tar(folder.path / "a.tar", members + tar_end());
  };
  const std::string good = sample("0", 5, "0");
  CHECK_THROWS_WITH(refused(good + tar_member("1.png", image(5))),
                    Contains("a.tar: 1.png (at byte 2048): has no label"));
  CHECK_THROWS_WITH(refused(good + tar_member("cat/1.png", image(5))),
                    Contains("cat/1.png") && Contains("images before it had"));
  CHECK_THROWS_WITH(refused(tar_member("cat/1.png", image(5)) + good),
                    Contains("0.png") && Contains("only a class folder"));
  CHECK_THROWS_WITH(refused(good + tar_member("1.cls", "0")), Contains("has no image next to it"));
  CHECK_THROWS_WITH(refused(sample("0", 5, " \n")), Contains("0.cls") && Contains("is empty"));
  CHECK_THROWS_WITH(refused(sample("0", 5, "1\n2")), Contains("one line"));
  CHECK_THROWS_WITH(refused(sample("0", 5, std::string(5000, '1'))), Contains("5000 bytes"));
  CHECK_THROWS_WITH(refused(tar_member("0.png", image(5)) + tar_member("0.json", "{")),
                    Contains("0.json") && Contains("is not JSON"));
  CHECK_THROWS_WITH(
      refused(tar_member("0.png", image(5)) + tar_member("0.json", R"({"label": -1})")),
      Contains("\"label\" is -1"));
  CHECK_THROWS_WITH(refused(tar_member("0.jpg", image(5)) + good), Contains("second image"));
  CHECK_THROWS_WITH(refused(tar_member("cat/1.png", "", '1')), Contains("is a link"));
  CHECK_THROWS_WITH(refused(tar_member("notes.txt", "")), Contains("a.tar: holds no .jpg"));
  CHECK_THROWS_WITH(refused(tar_member("0.left.png", image(5)) + tar_member("0.cls", "0")),
                    Contains("ends at the first dot, so 0.left.png is no image of 0"));
  CHECK_THROWS_WITH(refused(sample("0", 5, "99999999")), Contains("out of range"));
}

TEST_CASE("a label nested deeper than any stack is an error that names its type", "[source][tar]") {
  const Folder folder;
  constexpr std::size_t depth = 500'000;
  const std::string nested =
      R"({"label": )" + std::string(depth, '[') + std::string(depth, ']') + '}';
  CHECK_THROWS_WITH(open_tar(folder.path / "a.tar", tar_member("0.png", image(5)) +
                                                        tar_member("0.json", nested) + tar_end()),
                    Contains("0.json") && Contains("\"label\" is an array: expected a name"));
  CHECK_THROWS_WITH(
      open_tar(folder.path / "b.tar", tar_member("0.png", image(5)) +
                                          tar_member("0.json", R"({"cls": {"a": 1}})") + tar_end()),
      Contains("\"cls\" is an object"));
}

TEST_CASE("an archive that changes during packing is an error that names it", "[source][tar]") {
  const Folder folder;
  const fs::path path = folder.path / "a.tar";
  const std::string archive = sample("0", 5, "0") + sample("1", 6, "1") + tar_end();
  const auto source = open_tar(path, archive);
  CHECK_NOTHROW(source->require_unchanged());
  write_file(path, archive.substr(0, 600));
  CHECK_THROWS_WITH(source->require_unchanged(), Contains("a.tar: has changed"));
  CHECK_THROWS_WITH(source->read(0), Contains("a.tar: 0.png") && Contains("shorter"));
  CHECK_THROWS_WITH(open_source(tars({path}), folder.path / "index"),
                    Contains("a.tar: has changed"));
}

TEST_CASE("lists name images and labels, one in each line", "[source]") {
  const Folder folder;
  write_file(folder.path / "images/a b.png", image(5));
  write_file(folder.path / "images/c.png", image(6));
  SourceSpec spec;
  spec.kind = "list";
  spec.files = {folder.path / "list.txt"};
  spec.root = folder.path / "images";
  const auto open = [&](const std::string& text) {
    write_file(spec.files[0], text);
    return open_files(spec, folder.path / "index");
  };
  const auto source = open("# path label\n\na b.png 1\r\nc.png\t0\n");
  REQUIRE(source->rows() == 2);
  CHECK(source->label(0) == 1);
  CHECK(source->read(0).width == 5);
  CHECK(source->read(1).width == 6);
  CHECK(source->name(1) == (folder.path / "images/c.png").string());
  CHECK(open("a b.png\tblue cat\n" + (folder.path / "images/c.png").string() + " dog")->classes() ==
        std::vector<std::string>{"blue cat", "dog"});
  CHECK(open("c.png 3")->remarks()[0] == "3 of 4 classes have no training image");
  CHECK_THROWS_WITH(open("c.png 3\nc.png\n"), Contains("list.txt, line 2: expected a path and"));
  CHECK_THROWS_WITH(open("c.png 3\n4 c.png\n"),
                    Contains("list.txt, line 2: ") && Contains("; the label comes last"));
  CHECK_THROWS_WITH(open("c.png 3\n\xFF\xD8\x1B[2J 1\n"),
                    Contains("list.txt: is not text") && !Contains("\xFF"));
  CHECK_THROWS_WITH(open(std::string(600, '#') + "\n\x1B[2J 1\n"),
                    Contains("list.txt, line 2: is not text"));
  CHECK_THROWS_WITH(open("\n#\n"), Contains("list.txt: lists no images"));
  CHECK_THROWS_WITH(open("\ngone.png 0")->read(0),
                    Contains("list.txt, line 2: ") && Contains("images/gone.png: No such file"));
  CHECK_THROWS_WITH(open("PK\x03\x04 0"), Contains("is a zip archive"));
  spec.validation_files = {folder.path / "val.txt"};
  write_file(spec.validation_files[0], "c.png 1\n");
  CHECK_THROWS_WITH(open("c.png 0\n"), Contains("val.txt, line 1: the label \"1\": no training "));
  CHECK(open("c.png 0\na b.png 1\n")->training_rows() == 2);
}

TEST_CASE("patterns give files in order of name, and each file that they name", "[source]") {
  const Folder folder;
  for (const char* name : {"t-00.tar", "t-01.tar", "t-10.tar", "v-00.tar", "odd{1}.tar"})
    write_file(folder.path / name, "");
  const auto names = [&](const std::string& pattern) {
    std::string all;
    for (const fs::path& path : expand_patterns({(folder.path / pattern).string()}))
      all += path.filename().string() + ' ';
    return all;
  };
  CHECK(names("t-*.tar") == "t-00.tar t-01.tar t-10.tar ");
  CHECK(names("t-{00..02}.tar") == "t-00.tar t-01.tar t-02.tar ");
  CHECK(names("{t,v}-0?.tar") == "t-00.tar t-01.tar v-00.tar ");
  CHECK(names("{v,t}-{1..1}0.tar") == "v-10.tar t-10.tar ");
  CHECK(names("odd{1}.tar") == "odd{1}.tar ");
  CHECK(names("none.tar") == "none.tar ");
  CHECK_THROWS_WITH(names("x-*.tar"), Contains("x-*.tar: no file has such a name"));
  CHECK_THROWS_WITH(names("{t,t}-00.tar"), Contains("t-00.tar: is named twice"));
}

TEST_CASE("one sample cannot fill the memory with names", "[source]") {
  const Folder folder;
  std::string bytes;
  for (std::size_t i = 0; i < 1000; ++i) {
    const std::string name = fmt::format("k.{:060000}", i);
    bytes += tar_member("././@LongLink", name, 'L') + tar_member("k", "");
  }
  CHECK_THROWS_WITH(open_tar(folder.path / "a.tar", bytes + tar_end()),
                    Contains("a.tar: k.0") && Contains("share its name up to the dot") &&
                        Contains("32 MB of names"));
}
