#include <catch2/catch.hpp>

#include "tests/unit/data/external/external_fixture.hpp"

namespace fs = std::filesystem;
using namespace lockstep;
using namespace lockstep::data;
using namespace lockstep::test;
using Catch::Matchers::Contains;
using namespace lockstep::test::external;

TEST_CASE("Zstandard and Blosc chunks are decoded without a plugin", "[external]") {
  const Folder folder;
  const auto by_zstd = [](std::span<const std::uint8_t> chunk) {
    std::vector<std::uint8_t> packed(ZSTD_compressBound(chunk.size()));
    packed.resize(ZSTD_compress(packed.data(), packed.size(), chunk.data(), chunk.size(), 3));
    return packed;
  };
  const auto by_blosc = [](std::span<const std::uint8_t> chunk) {
    std::vector<std::uint8_t> packed(chunk.size() + BLOSC_MAX_OVERHEAD);
    packed.resize(
        static_cast<std::size_t>(blosc_compress_ctx(5, BLOSC_SHUFFLE, 1, chunk.size(), chunk.data(),
                                                    packed.data(), packed.size(), "lz4", 0, 1)));
    return packed;
  };
  const DataSet zstd(write_chunks(folder.path / "zstd.h5", 32015, by_zstd));
  CHECK_FALSE(zstd.storage().through_hdf5);
  CHECK(zstd.storage().layout == "chunks of 4 rows, Zstandard");
  require_rows(zstd);
  const DataSet blosc(write_chunks(folder.path / "blosc.h5", 32001, by_blosc));
  CHECK_FALSE(blosc.storage().through_hdf5);
  require_rows(blosc);
}

TEST_CASE("a damaged chunk is an error that names file and row", "[external]") {
  const Folder folder;
  const auto refused = [&](H5Z_filter_t filter, std::vector<std::uint8_t> bytes) {
    const auto damage = [&](std::span<const std::uint8_t>) { return bytes; };
    // Mean and deviation come from `like`, so opening the set reads no damaged chunk.
    ExternalSpec spec;
    const DataSetInfo like = small_info();
    spec.like = &like;
    const DataSet set(write_chunks(folder.path / "a.h5", filter, damage), spec);
    std::vector<std::uint8_t> image(set.info().row_bytes());
    set.read(9, image);  // its chunk is not compressed
    try {
      set.read(14, image);
    } catch (const InputError& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  for (const H5Z_filter_t filter : {1, 32000, 32001, 32015}) {
    CAPTURE(filter);
    for (const std::vector<std::uint8_t>& bytes :
         {std::vector<std::uint8_t>{0}, std::vector<std::uint8_t>(7, 0xFF),
          std::vector<std::uint8_t>(500, 0xE0), std::vector<std::uint8_t>(3000, 0x1F)})
      CHECK_THAT(refused(filter, bytes),
                 Contains("a.h5: rows 12 to 15 cannot be decoded: it") && Contains("damaged") ||
                     Contains("bytes long instead of 240"));
  }
}

TEST_CASE("a chunk without filters that is stored longer or shorter than it is", "[external]") {
  const Folder folder;
  Form form;
  form.chunk = {4, image_height, image_width, image_channels};
  const fs::path path = folder.path / "a.h5";
  const auto all = all_pixels();
  for (const std::size_t bytes : {1u << 20, 7u}) {
    const hid_t file = H5Fcreate(path.c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
    const hid_t data = create(file, form);
    for (hsize_t row = 0; row < row_count; row += 4) {
      const hsize_t origin[] = {row, 0, 0, 0};
      std::vector<std::uint8_t> chunk(all.begin() + static_cast<std::ptrdiff_t>(row * 60),
                                      all.end());
      chunk.resize(bytes, 0);
      REQUIRE(H5Dwrite_chunk(data, H5P_DEFAULT, 0, origin, chunk.size(), chunk.data()) >= 0);
    }
    H5Dclose(data);
    write_labels(file);
    H5Fclose(file);
    // HDF5's own result: the pixels, if they are there, and nothing beyond them.
    if (bytes > 1000) {
      const DataSet set(path);
      CHECK(set.storage().layout == "chunks of 4 rows, not compressed");
      require_rows(set);
    } else {
      CHECK_NOTHROW(refusal(path));
    }
  }
}

TEST_CASE("chunks that were never written are an error that counts them", "[external]") {
  const Folder folder;
  Form form;
  form.file_type = H5T_STD_U16LE;
  for (const std::vector<hsize_t>& chunk :
       {std::vector<hsize_t>{4, image_height, image_width, image_channels},
        {4, 3, image_width, image_channels}}) {
    form.chunk = chunk;
    for (const bool compressed : {false, true}) {
      form.filters = [&](hid_t created) {
        const std::uint16_t value = 77;
        H5Pset_fill_value(created, H5T_NATIVE_UINT16, &value);
        if (compressed) H5Pset_deflate(created, 1);
      };
      const fs::path path = folder.path / "a.h5";
      const hid_t file = H5Fcreate(path.c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
      const hid_t data = create(file, form);
      const hsize_t start[] = {4, 0, 0, 0}, count[] = {4, 3, image_width, image_channels};
      const hid_t space = H5Dget_space(data), memory = H5Screate_simple(4, count, nullptr);
      H5Sselect_hyperslab(space, H5S_SELECT_SET, start, nullptr, count, nullptr);
      const std::vector<std::uint8_t> written(4 * 3 * image_width * image_channels, 9);
      H5Dwrite(data, H5T_NATIVE_UINT8, memory, space, H5P_DEFAULT, written.data());
      H5Sclose(memory);
      H5Sclose(space);
      H5Dclose(data);
      write_labels(file);
      H5Fclose(file);
      const bool whole_rows = chunk[1] == image_height;
      CHECK_THAT(refusal(path),
                 Contains(whole_rows ? "a.h5: 5 of the 6 chunks of /images were never "
                                     : "a.h5: 11 of the 12 chunks of /images were "));
    }
  }
}

TEST_CASE("a changed byte under Fletcher-32 is noticed", "[external]") {
  const Folder folder;
  Form form;
  form.chunk = {4, image_height, image_width, image_channels};
  form.filters = [](hid_t created) { H5Pset_fletcher32(created); };
  const fs::path path = write_file_of(folder.path / "a.h5", form);
  std::string bytes = read_text(path);
  const auto image = pixels(small_info(), 13);
  const auto at = bytes.find(std::string(image.begin(), image.end()));
  REQUIRE(at != std::string::npos);
  bytes[at + 7] = static_cast<char>(bytes[at + 7] ^ 0x10);
  write_file(path, bytes);
  CHECK_THAT(refusal(path), Contains("a.h5: rows 12 to 15") && Contains("Fletcher-32"));
}

TEST_CASE("LZF is decoded: literals, copies, copies of what they write", "[external]") {
  const Folder folder;
  // 240 bytes: 3 literals, 255 + 9 would be too long: copies of 100 and of 137 bytes.
  const std::vector<std::uint8_t> packed = {2, 10, 20, 30, 7 << 5, 91, 2, 7 << 5, 128, 99};
  ExternalSpec spec;
  const DataSetInfo like = small_info();
  spec.like = &like;
  const DataSet set(write_chunks(folder.path / "a.h5", 32000, [&](auto) { return packed; }), spec);
  CHECK_FALSE(set.storage().through_hdf5);
  std::vector<std::uint8_t> image(set.info().row_bytes());
  for (std::size_t row = 0; row < 4; ++row) {
    set.read(row, image);
    for (std::size_t i = 0; i < image.size(); ++i) {
      const std::size_t at = row * image.size() + i;
      const std::size_t from = at < 103 ? at : at - 100;  // the second copy reaches 100 back
      const std::size_t origin = from < 103 ? from : from - 100;
      REQUIRE(image[i] == 10 * (origin % 3 + 1));
    }
  }
}

TEST_CASE("many threads read chunks through one small cache", "[external][loader]") {
  const Folder folder;
  Form form;
  form.chunk = {3, image_height, image_width, image_channels};
  form.filters = [](hid_t created) { H5Pset_deflate(created, 6); };
  ExternalSpec spec;
  spec.cache_bytes = 500;  // a little more than two blocks
  const DataSet set(write_file_of(folder.path / "a.h5", form), spec);
  std::vector<std::thread> threads;
  std::atomic<int> wrong{0};
  for (std::size_t t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      std::vector<std::uint8_t> image(set.info().row_bytes());
      for (std::size_t i = 0; i < 500; ++i) {
        const std::size_t row = (i * (t + 3)) % row_count;
        if (i % 5 == 0) set.prepare((row + 4) % row_count);
        set.read(row, image);
        if (image != pixels(small_info(), row)) ++wrong;
      }
    });
  for (std::thread& thread : threads) thread.join();
  CHECK(wrong == 0);
  CHECK(DataSet(folder.path / "a.h5").prepare(0) == false);  // mean and deviation needed all
}
