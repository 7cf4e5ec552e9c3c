#include <hdf5.h>
#include <malloc.h>

#include <catch2/catch.hpp>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iostream>
#include <new>

#include "lockstep/base/crc32c.hpp"
#include "lockstep/base/error.hpp"
#include "lockstep/base/files/files.hpp"
#include "lockstep/data/loading/loader.hpp"
#include "tests/support/harness/sanitized.hpp"
#include "tests/unit/data/shard_fixture.hpp"

namespace fs = std::filesystem;
using namespace lockstep;
using namespace lockstep::device;
using namespace lockstep::data;
using namespace lockstep::test;

namespace {

constexpr std::size_t row_count = 1'300'000, image_side = 224, allowed_bytes = 64'000'000;

struct HostDevice final : Device {
  std::size_t ring = 0;
  std::string name() const override { return "host"; }
  Stream& compute() override { throw Error("this device has no stream"); }
  PinnedBuffer allocate_pinned(std::size_t bytes) override {
    ring += bytes;
    auto* data = static_cast<std::byte*>(::operator new(bytes));
    return {data, bytes, [](std::byte* memory) { ::operator delete(memory); }};
  }
};

template <class Number>
void set_data(hid_t file, const char* name, hid_t type, const std::vector<Number>& values,
              std::vector<hsize_t> shape) {
  H5Ldelete(file, name, H5P_DEFAULT);
  const hid_t space = H5Screate_simple(static_cast<int>(shape.size()), shape.data(), nullptr);
  const hid_t data = H5Dcreate2(file, name, type, space, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
  REQUIRE(data >= 0);
  H5Dwrite(data, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, values.data());
  H5Dclose(data);
  H5Sclose(space);
}

// Bytes that are there and were never written: a hole in the file.
void set_hole(hid_t file, const char* name, std::vector<hsize_t> shape) {
  H5Ldelete(file, name, H5P_DEFAULT);
  const hid_t how = H5Pcreate(H5P_DATASET_CREATE);
  H5Pset_alloc_time(how, H5D_ALLOC_TIME_EARLY);
  H5Pset_fill_time(how, H5D_FILL_TIME_NEVER);
  const hid_t space = H5Screate_simple(static_cast<int>(shape.size()), shape.data(), nullptr);
  H5Dclose(H5Dcreate2(file, name, H5T_STD_U8LE, space, H5P_DEFAULT, how, H5P_DEFAULT));
  H5Sclose(space);
  H5Pclose(how);
}

std::vector<std::int32_t> labels() {
  std::vector<std::int32_t> all(row_count);
  for (std::size_t row = 0; row < row_count; ++row) all[row] = static_cast<std::int32_t>(row % 3);
  return all;
}

// 196 GB of black images.
fs::path write_large(const fs::path& path) {
  DataSetInfo info = small_info();
  info.height = info.width = image_side;
  write_shard(path, info, 0, 1);
  const std::vector<std::uint8_t> black(info.row_bytes(), 0);
  std::vector<std::uint32_t> crcs;
  for (const std::int32_t label : labels())
    crcs.push_back(crcs.size() < 3 ? crc32c(&label, 4, crc32c(black.data(), black.size()))
                                   : crcs[crcs.size() - 3]);
  const hid_t file = H5Fopen(path.c_str(), H5F_ACC_RDWR, H5P_DEFAULT);
  set_hole(file, "images", {row_count, image_side, image_side, 3});
  set_data(file, "labels", H5T_NATIVE_INT32, labels(), {row_count});
  set_data(file, "crc32c", H5T_NATIVE_UINT32, crcs, {row_count});
  H5Fclose(file);
  return path;
}

fs::path write_large_of_jpegs(const fs::path& path) {
  DataSetInfo info = small_info();
  info.encoding = Encoding::jpeg;
  ShardWriter writer(path, info, 1);
  writer.write_jpeg(std::vector<std::uint8_t>(10), 2, 2, 0);
  writer.finish();
  std::vector<std::uint64_t> offsets(row_count + 1);
  for (std::size_t row = 0; row <= row_count; ++row) offsets[row] = 100'000 * row;
  const hid_t file = H5Fopen(path.c_str(), H5F_ACC_RDWR, H5P_DEFAULT);
  set_hole(file, "jpegs", {100'000 * row_count});
  set_data(file, "offsets", H5T_NATIVE_UINT64, offsets, {row_count + 1});
  set_data(file, "sizes", H5T_NATIVE_UINT16, std::vector<std::uint16_t>(2 * row_count, 500),
           {row_count, 2});
  set_data(file, "labels", H5T_NATIVE_INT32, labels(), {row_count});
  set_data(file, "crc32c", H5T_NATIVE_UINT32, std::vector<std::uint32_t>(row_count), {row_count});
  H5Fclose(file);
  return path;
}

std::size_t resident_bytes() {
  std::ifstream file("/proc/self/statm");
  std::size_t pages = 0;
  file >> pages >> pages;
  return pages * 4096;
}

// The most memory that this process uses from here on, beyond what it uses now.
template <class Use>
std::size_t most_memory_of(Use use) {
  ::malloc_trim(0);  // what other tests left
  std::ofstream("/proc/self/clear_refs") << "5";
  const std::size_t before = resident_bytes();
  const std::size_t lent = use();
  return peak_resident_bytes() - before - lent;
}

bool cannot_be_measured() {
  const bool watched = test::sanitized() || std::getenv("QEMU_CPU");  // whose memory counts, too
  const bool reset = static_cast<bool>(std::ofstream("/proc/self/clear_refs") << "5" << std::flush);
  if (watched || !reset) std::cout << "SKIPPED: memory cannot be measured here" << std::endl;
  return watched || !reset;
}

}  // namespace

TEST_CASE("a loader of 1.3 million rows takes 64 MB in addition to its ring", "[loader-memory]") {
  if (cannot_be_measured()) return;
  const Folder folder;
  const fs::path path = write_large(folder.path / "a.h5");
  for (const Shuffle order : {Shuffle::global, Shuffle::block, Shuffle::node}) {
    const std::size_t most = most_memory_of([&] {
      HostDevice device;
      const DataSet rows(path);
      LoaderSpec spec;
      spec.sampler = {.rows = row_count, .global_batch = 64, .shuffle = order, .block = 64};
      spec.workers = 2;
      spec.slots = 2;
      spec.epochs = 1;
      spec.augment.flip = true;
      Loader loader(rows, spec, device);
      for (int i = 0; i < 4; ++i) loader.release(loader.next());
      return device.ring;
    });
    INFO(most);
    CHECK(most < allowed_bytes);
    CHECK(most > 8 * row_count);  // labels and checksums: the measurement works
  }
}

TEST_CASE("the index of 1.3 million JPEGs takes 64 MB", "[loader-memory]") {
  if (cannot_be_measured()) return;
  const Folder folder;
  const fs::path path = write_large_of_jpegs(folder.path / "a.h5");
  const std::size_t most = most_memory_of([&] {
    const DataSet rows(path);
    return std::size_t{0};
  });
  INFO(most);
  CHECK(most < allowed_bytes);
  CHECK(most > 20 * row_count);
}
