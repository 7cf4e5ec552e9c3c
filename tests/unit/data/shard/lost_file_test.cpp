#include <fcntl.h>
#include <hdf5.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <csignal>
#include <functional>

#include "data/bytes/file_bytes.hpp"
#include "lockstep/base/error.hpp"
#include "lockstep/base/files/files.hpp"
#include "lockstep/data/image/image.hpp"
#include "lockstep/data/loading/row_reader.hpp"
#include "tests/unit/data/shard_fixture.hpp"

// Files that are cut off, written over or taken away while they are being read.

namespace fs = std::filesystem;
using namespace lockstep;
using namespace lockstep::data;
using namespace lockstep::test;
using Catch::Matchers::Contains;

namespace {

constexpr hsize_t row_count = 64, image_side = 32;

struct Layout {
  const char* name;
  hid_t type;
  hsize_t chunk_rows;  // 0: contiguous
  bool gzip;
};

fs::path write_external(const fs::path& path, const Layout& layout) {
  const hsize_t shape[] = {row_count, image_side, image_side, 3},
                chunk[] = {layout.chunk_rows, image_side, image_side, 3};
  const hid_t file = H5Fcreate(path.c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
  const hid_t created = H5Pcreate(H5P_DATASET_CREATE);
  if (layout.chunk_rows > 0) H5Pset_chunk(created, 4, chunk);
  if (layout.gzip) H5Pset_deflate(created, 1);
  const hid_t space = H5Screate_simple(4, shape, nullptr);
  const hid_t data =
      H5Dcreate2(file, "images", layout.type, space, H5P_DEFAULT, created, H5P_DEFAULT);
  std::vector<std::uint8_t> pixels(row_count * image_side * image_side * 3);
  for (std::size_t i = 0; i < pixels.size(); ++i)
    pixels[i] = static_cast<std::uint8_t>(draw(1, 0, i, Draw::synth));
  H5Dwrite(data, H5T_NATIVE_UINT8, H5S_ALL, H5S_ALL, H5P_DEFAULT, pixels.data());
  H5Dclose(data);
  H5Sclose(space);
  H5Pclose(created);
  const hid_t rows = H5Screate_simple(1, shape, nullptr);
  const hid_t labels =
      H5Dcreate2(file, "labels", H5T_STD_I32LE, rows, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
  const std::vector<int> ones(row_count, 1);
  H5Dwrite(labels, H5T_NATIVE_INT, H5S_ALL, H5S_ALL, H5P_DEFAULT, ones.data());
  H5Dclose(labels);
  H5Sclose(rows);
  H5Fclose(file);
  return path;
}

/// The error for the first row that cannot be read; empty when all can.
std::string what_ends_it(const DataSet& set) {
  AugmentSpec how;
  if (set.info().encoding == Encoding::jpeg) {
    how.crop = Crop::random_resized;
    how.height = how.width = 8;
  }
  RowReader reader(set, how);
  std::vector<std::uint8_t> row(reader.row_bytes());
  try {
    for (std::size_t i = set.info().rows; i-- > 0;) reader.read(0, i, row);
  } catch (const InputError& error) {
    return error.what();
  }
  return "";
}

/// Like `cp other file`.
void write_over(const fs::path& path, char value) {
  const auto bytes = fs::file_size(path);
  const int file = ::open(path.c_str(), O_WRONLY);
  const std::string text(bytes - 4096, value);
  REQUIRE(::pwrite(file, text.data(), text.size(), 4096) == static_cast<ssize_t>(text.size()));
  ::close(file);
  // Clocks of file systems may be coarse.
  fs::last_write_time(path, fs::last_write_time(path) + std::chrono::seconds(1));
}

ExternalSpec little_cache() {
  ExternalSpec spec;
  spec.cache_bytes = 1000;
  return spec;
}

}  // namespace

TEST_CASE("other programs' files that change while they are read are errors that name them",
          "[external][lost]") {
  const Folder folder;
  for (const Layout& layout : {Layout{"contiguous", H5T_STD_U8LE, 0, false},
                               {"floats", H5T_IEEE_F32LE, 0, false},
                               {"other byte order", H5T_STD_U16BE, 0, false},
                               {"plain chunks", H5T_STD_U8LE, 4, false},
                               {"gzip", H5T_STD_U8LE, 4, true},
                               {"gzip by HDF5", H5T_STD_U16BE, 4, true}}) {
    CAPTURE(layout.name);
    for (const bool mapped : {false, true}) {
      const auto spoilt = [&](const std::function<void(const fs::path&)>& spoil) {
        const fs::path path = write_external(folder.path / "a.h5", layout);
        DataSet set(path, little_cache());
        if (mapped) set.map();
        CHECK(what_ends_it(set).empty());
        spoil(path);
        const std::string said = what_ends_it(set);
        fs::remove(path);
        return said;
      };
      CHECK_THAT(spoilt([](const fs::path& path) { fs::resize_file(path, 8192); }),
                 Contains("a.h5: row") && Contains("become shorter"));
      CHECK_THAT(spoilt([](const fs::path& path) { write_over(path, 7); }),
                 Contains("a.h5: row") && Contains("the file has been changed"));
      // The opened file still exists, whatever now has its name.
      CHECK(spoilt([](const fs::path& path) { fs::remove(path); }).empty());
      CHECK(spoilt([](const fs::path& path) {
              write_file(path.string() + ".new", "another");
              fs::rename(path.string() + ".new", path);
            }).empty());
    }
  }
}

TEST_CASE("a file below a virtual data set that is cut off, changed or gone is named",
          "[external][lost]") {
  const Folder folder;
  const auto spoilt = [&](const std::function<void(const fs::path&)>& spoil) {
    const fs::path part = write_external(folder.path / "part.h5", {"", H5T_STD_U8LE, 4, true});
    const fs::path path = folder.path / "whole.h5";
    const hid_t file = H5Fcreate(path.c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
    const hid_t created = H5Pcreate(H5P_DATASET_CREATE);
    const hsize_t shape[] = {row_count, image_side, image_side, 3};
    const hid_t space = H5Screate_simple(4, shape, nullptr);
    H5Pset_virtual(created, space, "part.h5", "images", space);
    H5Dclose(H5Dcreate2(file, "images", H5T_STD_U8LE, space, H5P_DEFAULT, created, H5P_DEFAULT));
    const hid_t rows = H5Screate_simple(1, shape, nullptr);
    const hid_t early = H5Pcreate(H5P_DATASET_CREATE);
    H5Pset_alloc_time(early, H5D_ALLOC_TIME_EARLY);  // as if they were written
    H5Dclose(H5Dcreate2(file, "labels", H5T_STD_I32LE, rows, H5P_DEFAULT, early, H5P_DEFAULT));
    H5Pclose(early);
    H5Sclose(rows);
    H5Sclose(space);
    H5Pclose(created);
    H5Fclose(file);
    const DataSet set(path, little_cache());
    CHECK(what_ends_it(set).empty());
    spoil(part);
    return what_ends_it(set);
  };
  CHECK_THAT(
      spoilt([](const fs::path& part) { fs::resize_file(part, 8192); }),
      Contains("whole.h5: row 63 cannot be read: ") && Contains("part.h5 has become shorter"));
  CHECK_THAT(spoilt([](const fs::path& part) { write_over(part, 7); }),
             Contains("part.h5 has been changed"));
  CHECK_THAT(spoilt([](const fs::path& part) { fs::remove(part); }),
             Contains("part.h5: No such file"));
}

TEST_CASE("shards that are written over while they are read fail by their checksums",
          "[shard][lost]") {
  const Folder folder;
  DataSetInfo info = small_info();
  info.height = info.width = image_side;
  for (const bool mapped : {false, true}) {
    const fs::path path = write_shard(folder.path / "a.h5", info, 0, row_count);
    DataSet set(path);
    if (mapped) set.map();
    CHECK(what_ends_it(set).empty());
    write_over(path, 7);
    CHECK_THAT(what_ends_it(set), Contains("a.h5: row 63 is damaged"));
  }
}

TEST_CASE("shards of JPEGs that are cut off or written over are named", "[jpeg][lost]") {
  const Folder folder;
  DataSetInfo info = small_info();
  info.encoding = Encoding::jpeg;
  info.height = info.width = 0;
  const Image image{40, 50, 3, std::vector<std::uint8_t>(6000, 90)};
  const std::string jpeg = encode_jpeg(image, 90, "seed");
  for (const bool mapped : {false, true}) {
    for (const bool cut : {false, true}) {
      const fs::path path = folder.path / "a.h5";
      ShardWriter writer(path, info, row_count);
      for (std::size_t row = 0; row < row_count; ++row)
        writer.write_jpeg({reinterpret_cast<const std::uint8_t*>(jpeg.data()), jpeg.size()}, 40, 50,
                          0);
      writer.finish();
      DataSet set(path);
      if (mapped) set.map();
      CHECK(what_ends_it(set).empty());
      if (cut) {
        fs::resize_file(path, 8192);
        CHECK_THAT(what_ends_it(set), Contains("a.h5: row 63 cannot be read") &&
                                          Contains("the file has become shorter"));
      } else {
        write_over(path, 7);
        CHECK_THAT(what_ends_it(set), Contains("a.h5: row 63 is damaged"));
      }
    }
  }
}

TEST_CASE("a node's copy that is cut off is named as a copy", "[copy][lost]") {
  const Folder folder;
  DataSetInfo info = small_info();
  info.height = info.width = image_side;
  for (const bool mapped : {false, true}) {
    const fs::path path = write_shard(folder.path / "a.h5", info, 0, row_count);
    const fs::path stage = folder.path / (mapped ? "stage-mapped" : "stage");
    DataSet set(path);
    const RowRange all{0, row_count};
    REQUIRE(set.copy_to(stage, {&all, 1}).fits);
    if (mapped) set.map();
    CHECK(what_ends_it(set).empty());
    fs::path copy;
    for (const auto& entry : fs::recursive_directory_iterator(stage))
      if (entry.path().string().ends_with("-a.h5")) copy = entry.path();
    fs::resize_file(copy, 8192);
    CHECK_THAT(what_ends_it(set), Contains("a.h5: row 63 cannot be read from its copy") &&
                                      Contains(copy.string()) && Contains("become shorter"));
  }
}

TEST_CASE("pages that fail after the check become zeros, and are reported", "[lost]") {
  const Folder folder;
  const fs::path path = folder.path / "pages";
  write_file(path, std::string(40'000, 'x'));
  const int file = ::open(path.c_str(), O_RDONLY);
  {
    const Mapping mapping(file, "pages");
    const std::uint8_t* bytes = mapping.bytes(0, 40'000);
    REQUIRE(bytes != nullptr);
    CHECK(bytes[39'999] == 'x');
    fs::resize_file(path, 4096);
    CHECK_FALSE(mapping.failed());
    const volatile std::uint8_t* gone = bytes;
    CHECK(gone[20'000] == 0);  // and not the end of this program
    CHECK(mapping.failed());
    CHECK(gone[39'999] == 0);
    CHECK(gone[100] == 'x');
    CHECK(mapping.bytes(0, 40'000) == nullptr);
  }
  const Mapping again(file, "pages");
  CHECK_FALSE(again.failed());
  ::close(file);
}

TEST_CASE("faults elsewhere end the program as before", "[lost]") {
  const Folder folder;
  const fs::path path = folder.path / "pages";
  write_file(path, std::string(8192, 'x'));
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    ::signal(SIGBUS, SIG_DFL);
    const int file = ::open(path.c_str(), O_RDWR);
    void* own = ::mmap(nullptr, 8192, PROT_READ, MAP_SHARED, file, 0);
    const FaultGuard guard(own, 4096);
    if (::ftruncate(file, 0) != 0) ::_exit(1);
    static_cast<void>(*(static_cast<const volatile char*>(own) + 5000));
    ::_exit(2);
  }
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  CHECK(WIFSIGNALED(status));
  CHECK(WTERMSIG(status) == SIGBUS);
}
