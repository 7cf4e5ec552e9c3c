// Checkpoints with a right checksum and wrong content: anyone can compute a CRC.
#include <fstream>
#include <functional>

#include <hdf5.h>
#include <catch2/catch.hpp>

#include "lockstep/base/error.hpp"
#include "lockstep/base/files/files.hpp"
#include "lockstep/base/files/h5.hpp"
#include "tests/unit/model/checkpoint_fixture.hpp"
#include "tests/unit/model/sealed_checkpoint.hpp"

using namespace lockstep;
using namespace lockstep::model;
using namespace lockstep::test;
using Catch::Contains;

namespace {

class Hostile {
 public:
  /// A checkpoint that is right except for what `alter` does to the open file.
  explicit Hostile(const std::function<void(hid_t)>& alter) {
    write_checkpoint(path, some_header(), FakeParameters(small_model()));
    {
      const h5::Session session;
      const h5::File file(H5Fopen(path.c_str(), H5F_ACC_RDWR, H5P_DEFAULT));
      alter(file.get());
    }
    std::string bytes = read_text(path);
    seal(bytes);
    write_text_atomically(path, bytes);
  }
  std::string header_error() const {
    return error_of([&] { read_header(path); });
  }
  std::string tensor_error() const {
    const std::string error = error_of([&] { list_tensors(path); });
    FakeParameters parameters(small_model());
    CHECK(error_of([&] { load_tensors(path, parameters, true); }) != "no error");
    return error;
  }

 private:
  static std::string error_of(const std::function<void()>& reading) {
    try {
      reading();
    } catch (const InputError& error) {
      CHECK_THAT(error.what(), Contains("hostile.h5: "));
      return error.what();
    }
    return "no error";
  }
  const Folder folder;
  const std::filesystem::path path = folder.path / "hostile.h5";
};

h5::Type text_of(std::size_t bytes) {
  h5::Type type(H5Tcopy(H5T_C_S1));
  H5Tset_size(type.get(), bytes);
  return type;
}

h5::Space space_of(const std::vector<hsize_t>& shape) {
  return h5::Space(H5Screate_simple(static_cast<int>(shape.size()), shape.data(), nullptr));
}

/// Makes an attribute of the root again, with `bytes` times 'x' if it holds bytes.
void replace_attribute(hid_t file, const char* name, hid_t type, const std::vector<hsize_t>& shape,
                       std::size_t bytes) {
  REQUIRE(H5Adelete(file, name) >= 0);
  const h5::Space space = space_of(shape);
  const h5::Attribute made(H5Acreate2(file, name, type, space.get(), H5P_DEFAULT, H5P_DEFAULT));
  REQUIRE(made);
  const std::string values(bytes, 'x');
  if (bytes > 0) REQUIRE(H5Awrite(made.get(), type, values.data()) >= 0);
}

/// Makes a data set again, in chunks that were never written.
void replace_data_set(hid_t file, const char* name, hid_t type, const std::vector<hsize_t>& shape,
                      bool chunked = true) {
  REQUIRE(H5Ldelete(file, name, H5P_DEFAULT) >= 0);
  const h5::Space space = space_of(shape);
  const h5::Properties how(H5Pcreate(H5P_DATASET_CREATE));
  const std::vector<hsize_t> chunk(shape.size(), 16);
  if (chunked) H5Pset_chunk(how.get(), static_cast<int>(chunk.size()), chunk.data());
  const h5::Data made(
      H5Dcreate2(file, name, type, space.get(), H5P_DEFAULT, how.get(), H5P_DEFAULT));
  REQUIRE(made);
}

}  // namespace

TEST_CASE("several strings in place of a checkpoint's text are an error, not an overflow",
          "[checkpoint]") {
  const Hostile file([](hid_t id) { replace_attribute(id, "backend", text_of(8).get(), {6}, 48); });
  CHECK_THAT(file.header_error(), Contains("the attribute 'backend' has 6 strings where one is"));
}

TEST_CASE("a checkpoint's text of any length, or of numbers, is an error", "[checkpoint]") {
  const Hostile variable(
      [](hid_t id) { replace_attribute(id, "build", text_of(H5T_VARIABLE).get(), {1}, 0); });
  CHECK_THAT(variable.header_error(), Contains("'build' has strings of variable length"));
  const Hostile number([](hid_t id) { replace_attribute(id, "build", H5T_NATIVE_UINT64, {1}, 8); });
  CHECK_THAT(number.header_error(), Contains("'build' has a type other than string"));
}

TEST_CASE("a checkpoint's header with too many values is an error", "[checkpoint]") {
  const Hostile counts(
      [](hid_t id) { replace_attribute(id, "step", H5T_NATIVE_UINT64, {1000}, 8000); });
  CHECK_THAT(counts.header_error(), Contains("'step' has 1000 values where 1 are expected"));
  const Hostile texts([](hid_t id) { replace_attribute(id, "step", text_of(8).get(), {1}, 8); });
  CHECK_THAT(texts.header_error(), Contains("'step' cannot be read"));
}

TEST_CASE("a checkpoint with fewer means than channels is an error", "[checkpoint]") {
  const Hostile file([](hid_t id) { replace_attribute(id, "stddev", H5T_NATIVE_FLOAT, {2}, 8); });
  CHECK_THAT(file.header_error(), Contains("'stddev' does not have one value for each of 3 chan"));
}

TEST_CASE("texts of a checkpoint whose bytes wrap are an error", "[checkpoint]") {
  const Hostile wrapped(
      [](hid_t id) { replace_data_set(id, "classes", text_of(8).get(), {hsize_t{1} << 61}); });
  CHECK_THAT(wrapped.header_error(),
             Contains("the data set /classes does not lie in the file in one piece"));
  const Hostile late([](hid_t id) {
    replace_data_set(id, "classes", text_of(8).get(), {hsize_t{1} << 40}, false);
  });
  CHECK_THAT(late.header_error(), Contains("the data set /classes is larger than the file"));
  const Hostile pointers(
      [](hid_t id) { replace_data_set(id, "classes", text_of(H5T_VARIABLE).get(), {2}, false); });
  CHECK_THAT(pointers.header_error(), Contains("/classes has strings of variable length"));
}

TEST_CASE("a checkpoint's configuration that the file cannot hold is an error", "[checkpoint]") {
  const Hostile file([](hid_t id) {
    replace_data_set(id, "config", H5T_NATIVE_UINT8, {hsize_t{1} << 50}, false);
  });
  CHECK_THAT(file.header_error(), Contains("the data set /config is larger than the file"));
}

TEST_CASE("tensors of a checkpoint whose sides wrap are an error", "[checkpoint]") {
  const char* const name = "weights/fc.weight";
  const Hostile wrapped([&](hid_t id) {
    replace_data_set(id, name, H5T_NATIVE_FLOAT, {hsize_t{1} << 33, hsize_t{1} << 33});
  });
  CHECK_THAT(wrapped.tensor_error(), Contains("the data set /weights/fc.weight does not lie"));
  const Hostile large([&](hid_t id) {
    replace_data_set(id, name, H5T_NATIVE_FLOAT, {hsize_t{1} << 20, hsize_t{1} << 20}, false);
  });
  CHECK_THAT(large.tensor_error(), Contains("/weights/fc.weight is larger than the file"));
  const Hostile texts([&](hid_t id) {
    replace_data_set(id, name, text_of(4).get(), {3, 4}, false);
  });
  CHECK_THAT(texts.tensor_error(), Contains("/weights/fc.weight cannot be read"));
}

TEST_CASE("a checkpoint is not read again to verify it, unless it has changed since",
          "[checkpoint]") {
  const Folder folder;
  const auto path = folder.path / "step-00000123.h5";
  write_checkpoint(path, some_header(), FakeParameters(small_model(), 0.125f));
  const FileStamp verified = stamp_of(path);
  const auto written = std::filesystem::last_write_time(path);
  std::fstream(path, std::ios::in | std::ios::out | std::ios::binary).write("torn", 4);
  FakeParameters loaded(small_model(), -5);
  CHECK_THROWS_WITH(load_tensors(path, loaded, true, verified), Contains("not a lockstep"));
  std::filesystem::last_write_time(path, written);
  CHECK_NOTHROW(load_tensors(path, loaded, true, verified));
}
