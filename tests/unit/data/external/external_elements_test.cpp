#include <bit>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>

#include "lockstep/base/half.hpp"
#include "tests/unit/data/external/external_fixture.hpp"

namespace fs = std::filesystem;
using namespace lockstep;
using namespace lockstep::data;
using namespace lockstep::test;
using Catch::Matchers::Contains;
using namespace lockstep::test::external;

namespace lockstep::test::external_elements {
namespace {

// 65,536 numbers.
constexpr std::size_t rows = 4, height = 64, width = 64, channels = 4, row_values = 16'384;

hid_t half_type(bool big_endian) {
  const hid_t type = H5Tcopy(big_endian ? H5T_IEEE_F32BE : H5T_IEEE_F32LE);
  H5Tset_fields(type, 15, 10, 5, 0, 10);
  H5Tset_size(type, 2);
  H5Tset_ebias(type, 15);
  return type;
}

/// The double that number i of the file is, whose element has these bits.
double value_of(Element element, std::size_t i) {
  const auto bits = static_cast<std::uint16_t>(i);
  if (element == Element::u16) return bits;
  if (element == Element::i16) return static_cast<std::int16_t>(bits);
  if (element == Element::f16)
    return static_cast<double>(widen_f16((bits & 0x7c00) == 0x7c00 ? bits & 0x83ff : bits));
  auto wide = static_cast<std::uint32_t>(draw(7, 0, i, Draw::synth));
  if ((wide & 0x7f800000) == 0x7f800000) wide &= 0x80ffffff;
  return static_cast<double>(std::bit_cast<float>(wide));
}

template <class T>
void append(std::vector<std::uint8_t>& bytes, T value) {
  const auto raw = std::bit_cast<std::array<std::uint8_t, sizeof value>>(value);
  bytes.insert(bytes.end(), raw.begin(), raw.end());
}

std::vector<std::uint8_t> bytes_of(Element element, const std::vector<double>& values) {
  std::vector<std::uint8_t> bytes;
  for (const double value : values) {
    if (element == Element::u16) append(bytes, static_cast<std::uint16_t>(value));
    if (element == Element::i16) append(bytes, static_cast<std::int16_t>(value));
    if (element == Element::f16) append(bytes, round_to_f16(static_cast<float>(value)));
    if (element == Element::f32) append(bytes, static_cast<float>(value));
  }
  return bytes;
}

struct Stored {
  hid_t type;
  bool first = false, chunked = false;
};

fs::path write_values(const fs::path& path, const std::vector<double>& values, const Stored& how) {
  std::vector<double> in_file = values, labels;
  const std::size_t pixels = height * width;
  for (std::size_t row = 0; row < rows; ++row) {
    labels.push_back(static_cast<double>(row % 2));
    for (std::size_t p = 0; how.first && p < pixels; ++p)
      for (std::size_t c = 0; c < channels; ++c)
        in_file[row * row_values + c * pixels + p] = values[row * row_values + p * channels + c];
  }
  const hid_t created = H5Pcreate(H5P_DATASET_CREATE);
  const hsize_t chunk[] = {3, how.first ? 2u : 31u, 40, how.first ? 64u : 4u};
  if (how.chunked) {
    H5Pset_chunk(created, 4, chunk);
    H5Pset_shuffle(created);
    H5Pset_deflate(created, 1);
  }
  Foreign file(path);
  const std::vector<hsize_t> shape = how.first
                                         ? std::vector<hsize_t>{rows, channels, height, width}
                                         : std::vector<hsize_t>{rows, height, width, channels};
  file.write("images", shape, in_file, how.type, created);
  H5Pclose(created);
  file.write("labels", {rows}, labels);
  return file.close();
}

std::vector<std::uint8_t> read_all(const DataSet& set) {
  std::vector<std::uint8_t> all, row(set.info().row_bytes());
  for (std::size_t i = 0; i < set.info().rows; ++i) {
    set.read(i, row);
    all.insert(all.end(), row.begin(), row.end());
  }
  return all;
}

std::vector<std::uint8_t> view_all(DataSet set) {
  set.map();
  std::vector<std::uint8_t> all, buffer;
  for (std::size_t i = 0; i < set.info().rows; ++i) {
    const auto row = set.view(i, buffer);
    all.insert(all.end(), row.begin(), row.end());
  }
  return all;
}

std::vector<double> all_values(Element element) {
  std::vector<double> values;
  for (std::size_t i = 0; i < rows * row_values; ++i) values.push_back(value_of(element, i));
  return values;
}

std::vector<double> filled(const std::function<double(std::size_t)>& value) {
  std::vector<double> values;
  for (std::size_t i = 0; i < rows * row_values; ++i) values.push_back(value(i));
  return values;
}

double unit(std::size_t i) {
  return static_cast<double>(draw(5, 0, i, Draw::synth) % 1'000'003) / 1'000'003;
}

std::string first_error(const DataSet& set) {
  try {
    read_all(set);
  } catch (const InputError& error) {
    return error.what();
  }
  return "";
}

using Packer =
    std::function<std::vector<std::uint8_t>(std::span<const std::uint8_t> chunk, std::size_t one)>;

/// Blosc's filter for HDF5, with this compressor and shuffle.
Packer by_blosc(const char* compressor, int shuffle) {
  return [=](std::span<const std::uint8_t> chunk, std::size_t one) {
    std::vector<std::uint8_t> packed(chunk.size() + BLOSC_MAX_OVERHEAD);
    const int bytes = blosc_compress_ctx(5, shuffle, one, chunk.size(), chunk.data(), packed.data(),
                                         packed.size(), compressor, 0, 1);
    REQUIRE(bytes > 0);
    packed.resize(static_cast<std::size_t>(bytes));
    return packed;
  };
}

/// A file whose chunks of two rows are packed as a plugin of this number would.
fs::path write_packed(const fs::path& path, hid_t type, std::vector<std::uint8_t> bytes,
                      H5Z_filter_t filter, const Packer& pack) {
  Foreign file(path);
  const hid_t created = H5Pcreate(H5P_DATASET_CREATE);
  const hsize_t chunk[] = {2, height, width, channels}, shape[] = {rows, height, width, channels};
  H5Pset_chunk(created, 4, chunk);
  H5Pset_filter(created, filter, H5Z_FLAG_OPTIONAL, 0, nullptr);
  const hid_t space = H5Screate_simple(4, shape, nullptr);
  const hid_t data =
      H5Dcreate2(file.id(), "images", type, space, H5P_DEFAULT, created, H5P_DEFAULT);
  const std::size_t one = H5Tget_size(type), half = bytes.size() / 2;
  REQUIRE(half == 2 * row_values * one);
  for (hsize_t row = 0; row < rows; row += 2) {
    const hsize_t origin[] = {row, 0, 0, 0};
    const auto packed = pack(std::span(bytes).subspan(row / 2 * half, half), one);
    REQUIRE(H5Dwrite_chunk(data, H5P_DEFAULT, 0, origin, packed.size(), packed.data()) >= 0);
  }
  H5Dclose(data);
  H5Sclose(space);
  H5Pclose(created);
  file.write("labels", {rows}, {0, 1, 0, 1});
  return file.close();
}

/// Elements, each with its types of both byte orders.
struct Kinds {
  Kinds() = default;
  Kinds(const Kinds&) = delete;
  Kinds& operator=(const Kinds&) = delete;
  ~Kinds() {
    H5Tclose(half);
    H5Tclose(half_of_others);
  }
  const hid_t half = half_type(false), half_of_others = half_type(true);
  const std::pair<Element, std::array<hid_t, 2>> all[4] = {
      {Element::u16, {H5T_STD_U16LE, H5T_STD_U16BE}},
      {Element::i16, {H5T_STD_I16LE, H5T_STD_I16BE}},
      {Element::f16, {half, half_of_others}},
      {Element::f32, {H5T_IEEE_F32LE, H5T_IEEE_F32BE}}};
};

}  // namespace

TEST_CASE("all numbers of 16 bits and floats pass as they are, in any layout, order and chunks",
          "[external][elements]") {
  const Folder folder;
  const fs::path path = folder.path / "a.h5";
  const Kinds kinds;
  for (const auto& [element, types] : kinds.all) {
    const std::vector<double> values = all_values(element);
    const std::vector<std::uint8_t> want = bytes_of(element, values);
    for (const hid_t type : types)
      for (const bool first : {false, true})
        for (const bool chunked : {false, true}) {
          CAPTURE(choice_name(element), type == types[1], first, chunked);
          write_values(path, values, {type, first, chunked});
          const DataSet set(path);
          REQUIRE(set.info().element == element);
          REQUIRE(set.info().row_bytes() == row_values * data::bytes_of(element));
          CHECK(read_all(set) == want);
          CHECK(view_all(DataSet(path)) == want);
        }
  }
}

TEST_CASE("numbers of 16 bits and floats pass as they are from chunks by Blosc and Zstandard",
          "[external][elements]") {
  const Folder folder;
  const fs::path path = folder.path / "a.h5";
  const Kinds kinds;
  std::vector<std::pair<H5Z_filter_t, Packer>> packers;
  for (const char* compressor : {"blosclz", "lz4", "lz4hc", "zlib", "zstd"})
    for (const int shuffle : {BLOSC_NOSHUFFLE, BLOSC_SHUFFLE, BLOSC_BITSHUFFLE})
      packers.emplace_back(32001, by_blosc(compressor, shuffle));
  packers.emplace_back(32015, [](std::span<const std::uint8_t> chunk, std::size_t) {
    std::vector<std::uint8_t> packed(ZSTD_compressBound(chunk.size()));
    packed.resize(ZSTD_compress(packed.data(), packed.size(), chunk.data(), chunk.size(), 3));
    return packed;
  });
  for (const auto& [element, types] : kinds.all) {
    const std::vector<std::uint8_t> want = bytes_of(element, all_values(element));
    std::vector<std::uint8_t> turned = want;  // the other byte order
    const auto one = static_cast<std::ptrdiff_t>(data::bytes_of(element));
    for (auto at = turned.begin(); at != turned.end(); at += one) std::reverse(at, at + one);
    for (const auto& [filter, pack] : packers) {
      write_packed(path, types[0], want, filter, pack);
      CHECK(DataSet(path).info().element == element);
      CHECK_FALSE(DataSet(path).storage().through_hdf5);
      CHECK(read_all(DataSet(path)) == want);
      write_packed(path, types[1], turned, filter, pack);
      CHECK(read_all(DataSet(path)) == want);
    }
  }
}

TEST_CASE("other numbers become the smallest element that holds them, or the row is an error",
          "[external][elements]") {
  const Folder folder;
  const fs::path path = folder.path / "a.h5";
  const auto element_of = [&](hid_t type, const std::vector<double>& values) {
    write_values(path, values, {type});
    const DataSet set(path);
    if (set.info().element != Element::u8)
      CHECK(read_all(set) == bytes_of(set.info().element, values));
    return set.info().element;
  };
  CHECK(element_of(H5T_STD_I8LE, filled([](auto i) { return -128. + double(i % 256); })) ==
        Element::i16);
  CHECK(element_of(H5T_STD_I64BE, filled([](auto i) { return double(i % 256); })) == Element::u8);
  CHECK(element_of(H5T_STD_U32LE, filled([](auto i) { return double(i % 257); })) == Element::f32);
  CHECK(element_of(H5T_IEEE_F32LE, filled([](auto i) { return double(i % 256); })) == Element::u8);
  CHECK(element_of(H5T_IEEE_F64LE, filled([](auto i) { return double(i % 256) / 255; })) ==
        Element::u8);
  // What 256 levels would ruin.
  CHECK(element_of(H5T_IEEE_F32LE, filled([](auto i) { return i == 5 ? 1 : 1e-7 * unit(i); })) ==
        Element::f32);
  CHECK(element_of(H5T_IEEE_F32LE, filled([](auto i) {
                     return i % 97 == 0 ? 1.6 : 0.1 * unit(i);
                   })) == Element::f32);
  const auto fine = filled([](auto i) { return 1e3 + 1e-3 * unit(i); });
  CHECK(element_of(H5T_IEEE_F64LE, fine) == Element::f32);
  CHECK_THAT(DataSet(path).say_sets(), Contains("the images are float64, rounded to float32"));
  write_values(path, filled([](auto i) { return i == 40'000 ? 16'777'217. : 3.; }),
               {H5T_STD_I32LE});
  CHECK_THAT(refusal(path), Contains("a.h5: row 2 holds the number 1.67772e+07 in channel 0") &&
                                Contains("up to 2^24"));
}

TEST_CASE("data.element takes what fits, and says which number does not", "[external][elements]") {
  const Folder folder;
  const fs::path path = folder.path / "a.h5";
  ExternalSpec spec;
  write_values(path, filled([](auto i) { return double(i % 4096); }), {H5T_IEEE_F32LE});
  spec.element = "uint16";
  CHECK(DataSet(path, spec).info().element == Element::u16);
  spec.element = "uint8";
  CHECK_THAT(refusal(path, spec), Contains("which are neither 0 to 1 nor 0 to 255"));
  spec.element = "float16";
  CHECK_THAT(refusal(path, spec), Contains("its float32 cannot become float16"));
  write_values(path, filled([](auto i) { return i == 20'000 ? -1. : 5.; }), {H5T_STD_I16LE});
  spec.element = "uint16";
  CHECK_THAT(refusal(path, spec), Contains("row 1 holds the number -1 in channel 0") &&
                                      Contains("that uint16 holds exactly are expected"));
  // A validation set has the training set's.
  DataSetInfo trained = DataSet(path).info();
  REQUIRE(trained.element == Element::i16);
  write_values(path, filled([](auto i) { return double(i % 256); }), {H5T_STD_U8LE});
  ExternalSpec other;
  other.like = &trained;
  CHECK(DataSet(path, other).info().element == Element::i16);
  other.element = "uint8";
  CHECK_THAT(refusal(path, other), Contains("data.element = uint8, but the network takes int16"));
  spec.element = "uint16";
  spec.range = "0-1";
  CHECK_THAT(refusal(path, spec), Contains("data.range = 0-1 is about floats that become uint8"));
}

TEST_CASE("floats that some rows show to be levels are an error where others are not",
          "[external][elements]") {
  const Folder folder;
  const fs::path path = folder.path / "a.h5";
  constexpr hsize_t many = 300;  // more than are looked at
  const auto write = [&](double odd) {
    std::vector<double> values(many * 64), labels(many);
    for (std::size_t row = 0; row < many; ++row) {
      labels[row] = static_cast<double>(row % 2);
      for (std::size_t i = 0; i < 64; ++i)
        values[row * 64 + i] =
            row == 1 && i == 5 ? odd : static_cast<double>((row + i) % 256) / 255;
    }
    Foreign file(path);
    file.write("images", {many, 8, 8}, values, H5T_IEEE_F32LE);
    file.write("labels", {many}, labels);
    file.close();
  };
  write(0.5019607843);
  CHECK(first_error(DataSet(path)).empty());
  write(0.5);
  CHECK_THAT(refusal(path), Contains("row 1 holds the number 0.5 in channel 0") &&
                                Contains("one of 256 levels") &&
                                Contains("--data.element float32"));
}

TEST_CASE("NaN and infinities are bad rows, which name their channel", "[external][elements]") {
  const Folder folder;
  const fs::path path = folder.path / "a.h5";
  for (const bool chunked : {false, true}) {
    write_values(path, filled([](auto i) { return i == 33'333 ? double(NAN) : unit(i); }),
                 {H5T_IEEE_F32LE, false, chunked});
    CHECK_THAT(refusal(path),
               Contains("a.h5: row 2 has NaN (not a number) in channel 1, as 0.0244 % of "
                        "its pixels"));
    ExternalSpec spec;
    DataSetInfo like;
    like.channels = channels;
    like.element = Element::f32;
    like.classes = {"0", "1"};
    like.mean = like.stddev = {1, 1, 1, 1};
    spec.like = &like;
    const DataSet set(path, spec);
    std::vector<std::uint8_t> row(set.info().row_bytes()), buffer;
    CHECK_NOTHROW(set.read(1, row));
    CHECK_NOTHROW(set.read(3, row));
    CHECK_THROWS_AS(set.read(2, row), BadRow);
    CHECK_THROWS_AS(set.view(2, buffer), BadRow);
  }
}

TEST_CASE("a number that does not fit makes its row bad, and no other row of its block",
          "[external][elements]") {
  const Folder folder;
  const fs::path path = folder.path / "a.h5";
  for (const bool chunked : {false, true}) {
    CAPTURE(chunked);
    const auto values = filled([](auto i) { return i == 17'000 ? 16'777'217. : double(i % 300); });
    write_values(path, values, {H5T_STD_I32LE, false, chunked});  // chunks of 3 rows
    ExternalSpec spec;
    CHECK_THAT(refusal(path), Contains("a.h5: row 1 holds the number 1.67772e+07 in channel 0"));
    spec.skips_bad_rows = true;
    const DataSet set(path, spec);
    std::vector<std::uint8_t> row(set.info().row_bytes());
    const std::vector<std::uint8_t> want = bytes_of(Element::f32, values);
    for (const std::size_t good : {0u, 2u, 3u}) {
      set.read(good, row);
      CHECK(std::equal(row.begin(), row.end(),
                       want.begin() + static_cast<std::ptrdiff_t>(good * row.size())));
    }
    CHECK_THROWS_AS(set.read(1, row), BadRow);
  }
}

TEST_CASE("NaN is data's place where data.no-data says so, and left out of mean and deviation",
          "[external][elements]") {
  const Folder folder;
  const fs::path path = folder.path / "a.h5";
  for (const bool chunked : {false, true}) {
    CAPTURE(chunked);
    const auto values = filled([](auto i) { return i % 3 == 0 ? double(NAN) : unit(i); });
    write_values(path, values, {H5T_IEEE_F64LE, true, chunked});
    ExternalSpec spec;
    spec.no_data = "nan";
    const DataSet set(path, spec);
    CHECK(set.info().element == Element::f32);
    REQUIRE(set.info().no_data.has_value());
    CHECK(std::isnan(*set.info().no_data));
    CHECK(read_all(set) == bytes_of(Element::f32, values));
    double sum = 0, count = 0;
    for (std::size_t i = 0; i < values.size(); i += channels)
      if (!std::isnan(values[i])) {
        sum += static_cast<double>(static_cast<float>(values[i]));
        ++count;
      }
    CHECK(set.info().mean[0] == Approx(sum / count).epsilon(1e-6));
  }
  write_values(path, filled([](auto i) { return i == 9 ? double(INFINITY) : unit(i); }),
               {H5T_IEEE_F32LE});
  ExternalSpec spec;
  spec.no_data = "nan";
  CHECK_THAT(refusal(path, spec), Contains("row 0 has an infinite number in channel 1"));
  spec.no_data = "-1";
  spec.element = "uint8";
  CHECK_THAT(refusal(path, spec), Contains("become levels of uint8, of which none stands for"));
}

TEST_CASE("statistics of elements are those of doubles", "[external][elements]") {
  const Folder folder;
  const fs::path path = folder.path / "a.h5";
  const auto require_statistics = [&](const std::vector<double>& values, hid_t type) {
    write_values(path, values, {type});
    const DataSet set(path);
    for (std::size_t c = 0; c < channels; ++c) {
      double mean = 0, squares = 0;
      for (std::size_t i = c; i < values.size(); i += channels) mean += values[i];
      mean /= static_cast<double>(values.size() / channels);
      for (std::size_t i = c; i < values.size(); i += channels)
        squares += (values[i] - mean) * (values[i] - mean);
      const double deviation = std::sqrt(squares / static_cast<double>(values.size() / channels));
      CHECK(static_cast<double>(set.info().mean[c]) == Approx(mean).epsilon(1e-6));
      CHECK(static_cast<double>(set.info().stddev[c]) == Approx(deviation).epsilon(1e-6));
    }
  };
  require_statistics(filled([](auto i) { return 1e7 + double(i / 4 % 3) - 1; }), H5T_IEEE_F32LE);
  require_statistics(filled([](auto i) { return double(i * 7919 % 65'536); }), H5T_STD_U16LE);
  require_statistics(filled([](auto i) { return double(i * 7919 % 65'536) - 32'768; }),
                     H5T_STD_I16LE);
  require_statistics(filled([](auto i) { return i < 4 ? 1e9 : unit(i); }), H5T_IEEE_F32LE);
  write_values(path, filled([](auto i) { return i % 4 == 2 ? 0.1 : unit(i); }), {H5T_IEEE_F32LE});
  const DataSet constant(path);
  CHECK(constant.info().stddev[2] == 1);
  REQUIRE(constant.doubts().size() == 1);
  CHECK_THAT(constant.doubts()[0], Contains("channel 2 has one value in all looked-at rows"));
}

TEST_CASE("channels are the dimension that is smaller than both sides, up to 64", "[external]") {
  const Folder folder;
  const fs::path path = folder.path / "a.h5";
  const auto shape_of = [&](std::vector<hsize_t> shape) {
    Foreign file(path);
    std::vector<double> values(12 * shape[0] * shape[1] * shape[2]);
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<double>(i % 251);
    shape.insert(shape.begin(), 12);
    file.write("images", shape, values, H5T_STD_U8LE);
    file.write("labels", {12}, counting());
    file.close();
    const DataSetInfo info = DataSet(path).info();
    return std::array{info.height, info.width, info.channels};
  };
  CHECK(shape_of({12, 20, 21}) == std::array<std::size_t, 3>{20, 21, 12});
  CHECK(shape_of({32, 33, 18}) == std::array<std::size_t, 3>{32, 33, 18});
  CHECK(shape_of({64, 70, 65}) == std::array<std::size_t, 3>{70, 65, 64});
  CHECK(shape_of({5, 4, 3}) == std::array<std::size_t, 3>{5, 4, 3});
  CHECK_THROWS_WITH(shape_of({12, 12, 12}), Contains("--data.layout nhwc"));
  CHECK_THROWS_WITH(shape_of({66, 70, 65}), Contains("cannot tell which dimension"));
}

}  // namespace lockstep::test::external_elements
