#include "data/chunked/missing_filter.hpp"

#include <fmt/core.h>

#include <array>

#include "lockstep/base/files/h5.hpp"
#include "lockstep/base/text/join.hpp"

namespace lockstep::data {
namespace {

std::string plugin_folders() {
  unsigned count = 0;
  std::vector<std::string> folders;
  if (H5PLsize(&count) < 0) return "no folder";
  for (unsigned i = 0; i < count; ++i) {
    std::array<char, 1024> folder{};
    if (H5PLget(i, folder.data(), folder.size()) > 0) folders.emplace_back(folder.data());
  }
  return folders.empty() ? "no folder" : join(folders, ", ");
}

}  // namespace

std::string missing_filter(hid_t data) {
  const h5::Properties created(H5Dget_create_plist(data));
  const int filters = H5Pget_nfilters(created.get());
  for (int i = 0; i < filters; ++i) {
    std::array<char, 256> name{};
    std::size_t values = 0;
    const H5Z_filter_t id = H5Pget_filter2(created.get(), static_cast<unsigned>(i), nullptr,
                                           &values, nullptr, name.size() - 1, name.data(), nullptr);
    if (id < 0 || H5Zfilter_avail(id) > 0) continue;
    return fmt::format(
        "filter {}{} is needed and not installed: HDF5 looks for its plugin in {} "
        "(HDF5_PLUGIN_PATH)",
        id, name[0] != '\0' ? fmt::format(" ({})", name.data()) : "", plugin_folders());
  }
  return {};
}

}  // namespace lockstep::data
