#include "lockstep/data/shard/shard_normalisation.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>

#include <fmt/core.h>
#include <hdf5.h>

#include "lockstep/base/error.hpp"
#include "lockstep/base/files/files.hpp"
#include "lockstep/base/files/h5.hpp"
#include "lockstep/base/files/io.hpp"

namespace lockstep::data {
namespace {

void replace(hid_t file, const std::filesystem::path& path, const char* name,
             std::span<const float> values) {
  const h5::Attribute attribute(H5Aopen(file, name, H5P_DEFAULT));
  if (!attribute) h5::refuse_with_cause(path, fmt::format("has no attribute '{}'", name));
  const h5::Space space(H5Aget_space(attribute.get()));
  if (H5Sget_simple_extent_npoints(space.get()) != static_cast<hssize_t>(values.size()))
    h5::refuse(path, fmt::format("the attribute '{}' is not one value for each of {} channels",
                                 name, values.size()));
  if (H5Awrite(attribute.get(), H5T_NATIVE_FLOAT, values.data()) < 0)
    h5::refuse_with_cause(path, fmt::format("the attribute '{}' cannot be written", name));
}

void synchronise(const std::filesystem::path& path) {
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file || ::fsync(file.get()) != 0) fail_by_system(path.string(), errno);
}

}  // namespace

void set_normalisation(const std::filesystem::path& shard, std::span<const float> mean,
                       std::span<const float> stddev) {
  {
    const h5::Session session;
    const h5::Properties access = h5::file_access();
    require_regular(shard);
    h5::File file(H5Fopen(shard.c_str(), H5F_ACC_RDWR, access.get()));
    if (!file) h5::refuse_with_cause(shard, "cannot be opened for writing");
    replace(file.get(), shard, "mean", mean);
    replace(file.get(), shard, "stddev", stddev);
    // Closing writes; a full disk shows here or never.
    if (H5Fclose(file.release()) < 0) h5::refuse_with_cause(shard, "cannot be written");
  }
  synchronise(shard);
}

}  // namespace lockstep::data
