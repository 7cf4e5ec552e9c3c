#include "data/chunked/whole_data.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <map>
#include <set>
#include <utility>

#include "lockstep/base/error.hpp"
#include "lockstep/base/files/files.hpp"
#include "lockstep/base/text/words.hpp"

namespace lockstep::data {
namespace {

namespace fs = std::filesystem;

std::string name_of(hid_t data) {
  const ssize_t length = H5Iget_name(data, nullptr, 0);
  std::string name(static_cast<std::size_t>(std::max<ssize_t>(0, length)) + 1, '\0');
  H5Iget_name(data, name.data(), name.size());
  name.pop_back();
  return name;
}

/// A text that HDF5 gives by `get(to, bytes)`, which returns its length.
template <class Get>
std::string text_by(Get get) {
  const ssize_t length = get(nullptr, 0);
  std::string text(static_cast<std::size_t>(std::max<ssize_t>(0, length)) + 1, '\0');
  get(text.data(), text.size());
  text.pop_back();
  return text;
}

/// Whether HDF5 would lose or change numbers of a source's type.
bool narrows(hid_t source, hid_t target) {
  const h5::Type from(H5Dget_type(source)), to(H5Dget_type(target));
  const H5T_class_t kind = H5Tget_class(to.get());
  return H5Tget_class(from.get()) != kind || H5Tget_size(from.get()) > H5Tget_size(to.get()) ||
         (kind == H5T_INTEGER && H5Tget_sign(from.get()) != H5Tget_sign(to.get()));
}

class Check {
 public:
  Sources all_of(const fs::path& path, hid_t data) {
    const h5::Space space(H5Dget_space(data));
    const Extents shape = extents_of(space.get());
    const hsize_t rows = shape.empty() ? 1 : shape[0];
    const h5::File file(H5Iget_file_id(data));
    within_ = {file.get()};
    of(path, data, {path, 0, rows - std::min<hsize_t>(rows, 1)}, 0);
    return std::move(sources_);
  }

 private:
  /// `rows`: those of the data set that was asked about.
  void of(const fs::path& path, hid_t data, const SourceFile& rows, int depth) {
    const std::string name = name_of(data), key = path.string() + ':' + name;
    if (answered_.contains(key)) return;
    if (!asked_.insert(key).second)
      h5::refuse(path, fmt::format("the virtual data set {} leads back to itself", name));
    look_at(path, name, data, rows, depth);
    answered_.insert(key);
  }

  void look_at(const fs::path& path, const std::string& name, hid_t data, const SourceFile& rows,
               int depth) {
    const h5::Properties created(H5Dget_create_plist(data));
    const h5::Space space(H5Dget_space(data));
    const Extents shape = extents_of(space.get());
    if (H5Sget_simple_extent_npoints(space.get()) <= 0 &&
        H5Pget_layout(created.get()) != H5D_VIRTUAL)
      return;
    switch (H5Pget_layout(created.get())) {
      case H5D_VIRTUAL:
        return of_virtual({path, name, data, created.get(), shape, rows, depth});
      case H5D_CHUNKED:
        return of_chunks(path, name, data, created.get(), shape);
      case H5D_CONTIGUOUS:
        if (H5Pget_external_count(created.get()) > 0)
          return of_raw_files(path, name, data, created.get(), values_of(shape), rows);
        if (H5Dget_offset(data) == HADDR_UNDEF) h5::refuse(path, name + " was never written");
        return;
      default:
        return;
    }
  }

  struct Virtual {
    const fs::path& path;
    const std::string& name;
    hid_t data, created;
    const Extents& shape;
    SourceFile rows;
    int depth;
  };
  /// One of the places that a virtual data set takes rows from.
  struct Mapping {
    const Virtual& of;
    hid_t from;  ///< what is taken of the source
    std::string file, set;
    std::vector<Box> boxes;  ///< of the virtual data set
  };

  static void of_chunks(const fs::path& path, const std::string& name, hid_t data, hid_t created,
                        const Extents& shape) {
    const h5::Space space(H5Dget_space(data));
    Extents chunk(shape.size());
    H5Pget_chunk(created, static_cast<int>(chunk.size()), chunk.data());
    hsize_t wanted = 1, there = 0;
    for (std::size_t d = 0; d < shape.size(); ++d) wanted *= (shape[d] + chunk[d] - 1) / chunk[d];
    if (H5Dget_num_chunks(data, space.get(), &there) < 0)
      h5::refuse_with_cause(path, fmt::format("the chunks of {} cannot be counted", name));
    if (there < wanted)
      h5::refuse(path, fmt::format("{} of the {} of {} were never written, and HDF5 gives fill "
                                   "values for them: write its rows, or make it smaller",
                                   wanted - there, counted(wanted, "chunk"), name));
  }

  void of_raw_files(const fs::path& path, const std::string& name, hid_t data, hid_t created,
                    hsize_t values, const SourceFile& rows) {
    const h5::Type type(H5Dget_type(data));
    const h5::Properties access(H5Dget_access_plist(data));
    const std::string prefix = text_by(
        [&](char* to, std::size_t size) { return H5Pget_efile_prefix(access.get(), to, size); });
    hsize_t left = values * H5Tget_size(type.get());
    const int count = H5Pget_external_count(created);
    for (int i = 0; i < count && left > 0; ++i) {
      std::string file(4096, '\0');
      off_t offset = 0;
      hsize_t size = 0;
      H5Pget_external(created, static_cast<unsigned>(i), file.size(), file.data(), &offset, &size);
      const fs::path raw = fs::path(prefix) / file.c_str();
      const hsize_t wanted = std::min(left, size);
      require_readable(path, name, "has its values in", raw);
      const hsize_t there = fs::file_size(raw), from = static_cast<hsize_t>(offset);
      if (there < from + wanted)
        h5::refuse(path, fmt::format("{} has its values in {}, which is too short: it has {} of {} "
                                     "bytes",
                                     name, raw.string(), there, from + wanted));
      left -= wanted;
      sources_.files.push_back({raw, rows.first, rows.last});
    }
    if (left > 0)
      h5::refuse(path, fmt::format("{} lacks {} bytes in its external files", name, left));
  }

  static void require_readable(const fs::path& path, const std::string& name, const char* how,
                               const fs::path& file) {
    if (::access(file.c_str(), R_OK) != 0)
      h5::refuse(path, fmt::format("{} {} {}, which cannot be read: {}", name, how, file.string(),
                                   std::strerror(errno)));
    require_regular(file);
  }

  void of_virtual(const Virtual& it) {
    std::size_t count = 0;
    H5Pget_virtual_count(it.created, &count);
    allow_open_files(count);
    std::vector<Box> covered;
    for (std::size_t i = 0; i < count; ++i) of_mapping(it, i, covered);
    if (values_of(it.shape) == 0) return;
    clip(covered, it.shape);
    const Uncovered holes = uncovered_rows(covered, it.shape);
    if (holes.rows > 0)
      h5::refuse(it.path,
                 fmt::format("{} of the {} of the virtual data set {} have no source (the first is "
                             "row {}), and HDF5 gives fill values for them",
                             holes.rows, counted(it.shape[0], "row"), it.name, holes.first));
  }

  void of_mapping(const Virtual& it, std::size_t number, std::vector<Box>& covered) {
    const h5::Space to(H5Pget_virtual_vspace(it.created, number));
    const h5::Space from(H5Pget_virtual_srcspace(it.created, number));
    Selected target = selected(to.get(), it.shape);
    if (target.too_many)
      h5::refuse(it.path,
                 fmt::format("the virtual data set {} is made of too many pieces", it.name));
    Mapping one{it, from.get(), "", "", {}};
    const std::string file = text_by([&](char* text, std::size_t size) {
      return H5Pget_virtual_filename(it.created, number, text, size);
    });
    const std::string set = text_by([&](char* text, std::size_t size) {
      return H5Pget_virtual_dsetname(it.created, number, text, size);
    });
    if (is_series(file) || is_series(set)) {
      require_no_gap(it, file, set, target.boxes.size());
      for (std::size_t block = 0; block < std::max<std::size_t>(1, target.boxes.size()); ++block) {
        one.file = of_block(file, block);
        one.set = of_block(set, block);
        one.boxes.clear();
        if (block < target.boxes.size()) one.boxes.push_back(target.boxes[block]);
        of_source(one);
      }
    } else {
      one.file = of_block(file, 0);
      one.set = of_block(set, 0);
      one.boxes = target.boxes;
      if (target.endless) clip(one.boxes, it.shape);
      of_source(one);
    }
    covered.insert(covered.end(), target.boxes.begin(), target.boxes.end());
  }

  /// HDF5 takes a series for ended where a file, or a data set, is missing.
  void require_no_gap(const Virtual& it, const std::string& file, const std::string& set,
                      hsize_t blocks) {
    constexpr hsize_t widest = 1000;
    for (hsize_t block = blocks + 1; block < blocks + widest; ++block) {
      const bool more = is_series(file) ? !place_of(it, of_block(file, block)).empty()
                                        : H5Lexists(opened(it, find(it, file)),
                                                    of_block(set, block).c_str(), H5P_DEFAULT) > 0;
      if (!more) continue;
      const std::string& series = is_series(file) ? file : set;
      h5::refuse(it.path,
                 fmt::format("{} is a virtual data set over the series {}, of which {} is "
                             "missing or cannot be read, while {} is there",
                             it.name, series, of_block(series, blocks), of_block(series, block)));
    }
  }

  void of_source(const Mapping& one) {
    const Virtual& it = one.of;
    const bool here = one.file == ".";
    const fs::path path = here ? it.path : find(it, one.file);
    const hid_t file = here ? within_.back() : opened(it, path);
    const std::string set = one.set.starts_with('/') ? one.set : '/' + one.set;
    const std::string over =
        fmt::format("{} is a virtual data set over {}, which", it.name, path.string());
    const h5::Data data(H5Dopen2(file, set.c_str(), H5P_DEFAULT));
    if (!data) h5::refuse(it.path, fmt::format("{} has no data set {}", over, set));
    if (one.boxes.empty()) return;  // of a mapping without an end that has no rows yet
    require_fits(one, data.get(), over, set);
    SourceFile rows = it.depth == 0 ? rows_of(one.boxes) : it.rows;
    rows.path = path;
    if (!here) sources_.files.push_back(rows);
    within_.push_back(file);
    try {
      of(path, data.get(), rows, it.depth + 1);
    } catch (const InputError& error) {
      h5::refuse(it.path, fmt::format("{} is a virtual data set over {}", it.name, error.what()));
    }
    within_.pop_back();
  }

  hid_t opened(const Virtual& it, const fs::path& path) {
    const auto [at, is_new] = files_.emplace(path.string(), hid_t{});
    if (!is_new) return at->second;
    try {
      sources_.open.push_back(h5::open_file(path));
    } catch (const InputError& error) {
      h5::refuse(it.path, fmt::format("{} is a virtual data set over {}", it.name, error.what()));
    }
    return at->second = sources_.open.back().get();
  }

  static SourceFile rows_of(const std::vector<Box>& boxes) {
    SourceFile rows{{}, H5S_UNLIMITED, 0};
    for (const Box& box : boxes) {
      rows.first = std::min<hsize_t>(rows.first, box.begin[0]);
      rows.last = std::max<hsize_t>(rows.last, box.end[0] - 1);
    }
    return rows;
  }

  static void require_fits(const Mapping& one, hid_t source, const std::string& over,
                           const std::string& set) {
    const Virtual& it = one.of;
    const h5::Space space(H5Dget_space(source));
    const Extents shape = extents_of(space.get());
    const auto refuse = [&](const std::string& what) {
      h5::refuse(it.path, fmt::format("{} has {} [{}], {}", over, set, join(shape, ", "), what));
    };
    if (narrows(source, it.data))
      refuse(
          fmt::format("whose values are of another type than {}: HDF5 would change them", it.name));
    Selected from = selected(one.from, shape);
    const std::uint64_t wanted = volume(one.boxes);
    std::vector<Box> there = from.boxes;
    clip(there, shape);
    bool fits = volume(there) >= wanted && (from.endless || volume(there) == volume(from.boxes));
    // Values are taken in order: so rows of another size would be cut at wrong places.
    if (from.all && volume(there) != wanted)
      fits = fits && shape.size() == it.shape.size() &&
             std::equal(shape.begin() + 1, shape.end(), it.shape.begin() + 1);
    if (!fits || from.too_many)
      refuse(
          fmt::format("from which {} values are taken: it does not have them, or has another "
                      "shape",
                      wanted));
  }

  /// Where HDF5 looks for a source, in its order.
  static std::vector<fs::path> places_of(const Virtual& it, const std::string& name) {
    const h5::Properties access(H5Dget_access_plist(it.data));
    const std::string prefixes = text_by(
        [&](char* to, std::size_t size) { return H5Pget_virtual_prefix(access.get(), to, size); });
    const fs::path asked = name;
    const fs::path rest = asked.is_absolute() ? asked.filename() : asked;
    std::vector<fs::path> places;
    if (asked.is_absolute()) places.push_back(asked);
    for (std::size_t at = 0; !prefixes.empty() && at != std::string::npos;) {
      const std::size_t end = prefixes.find(':', at);
      places.push_back(prefixes.substr(at, end - at) / rest);
      at = end == std::string::npos ? end : end + 1;
    }
    places.push_back(it.path.parent_path() / rest);
    places.push_back(rest);
    std::error_code none;
    places.push_back(fs::canonical(it.path, none).parent_path() / rest);
    return places;
  }

  /// The first file that HDF5 would open; empty: there is none.
  static fs::path place_of(const Virtual& it, const std::string& name) {
    for (const fs::path& place : places_of(it, name)) {
      if (::access(place.c_str(), R_OK) != 0) continue;
      require_regular(place);
      if (H5Fis_hdf5(place.c_str()) > 0) return place;
    }
    return {};
  }

  fs::path find(const Virtual& it, const std::string& name) {
    fs::path& place = places_[it.path.string() + ':' + name];
    if (place.empty()) place = place_of(it, name);
    if (!place.empty()) return place;
    const std::vector<fs::path> places = places_of(it, name);
    std::error_code none;
    const auto there = std::find_if(places.begin(), places.end(),
                                    [&](const fs::path& one) { return fs::exists(one, none); });
    const fs::path asked = name;
    const fs::path shown = there != places.end() ? *there
                           : asked.is_absolute() ? asked
                                                 : it.path.parent_path() / asked;
    require_readable(it.path, it.name, "is a virtual data set over", shown);
    h5::refuse(it.path, fmt::format("{} is a virtual data set over {}, which is not an HDF5 file",
                                    it.name, shown.string()));
  }

  Sources sources_;
  std::map<std::string, fs::path> places_;  // by file and name
  std::map<std::string, hid_t> files_;
  std::vector<hid_t> within_;               // the file of each data set that is being looked at
  std::set<std::string> asked_, answered_;  // data sets: being looked at, and found whole
};

}  // namespace

Sources require_whole(const fs::path& path, hid_t data) { return Check().all_of(path, data); }

}  // namespace lockstep::data
