#include "data/external/chosen_sets.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <hdf5_objects.hpp>

#include "lockstep/base/files/h5.hpp"
#include "lockstep/base/text/words.hpp"

namespace lockstep::data {
namespace {

constexpr std::size_t most_objects = 1 << 16;  // of a file, at most, that are looked at
constexpr std::size_t most_listed = 20;

std::string library_version() {
  unsigned major = 0, minor = 0, release = 0;
  H5get_libversion(&major, &minor, &release);
  return fmt::format("HDF5 {}.{}.{}", major, minor, release);
}

/// Its version, and why its last call failed: any other call, for the version too, forgets that.
std::string library_and_cause() {
  const std::string cause = h5::last_cause();
  return fmt::format("{}: {}", library_version(), cause);
}

std::string list(std::vector<std::string> texts) {
  if (texts.empty()) return "none";
  const std::size_t more = texts.size() - std::min(most_listed, texts.size());
  texts.resize(texts.size() - more);
  return join(texts, ", ") + (more > 0 ? fmt::format(" and {} more", more) : "");
}

std::vector<std::string> texts_of(const std::vector<StoredSet>& all) {
  std::vector<std::string> texts;
  for (const StoredSet& one : all) texts.push_back(shape_text(one));
  return texts;
}

/// What values of this class are, if they are not numbers.
const char* other_values(H5T_class_t kind) {
  switch (kind) {
    case H5T_STRING:
      return "texts";
    case H5T_COMPOUND:
      return "records of several fields";
    case H5T_ARRAY:
    case H5T_VLEN:
      return "lists in each row";
    default:
      return "values that are not numbers";
  }
}

/// Why numbers of three dimensions and more are no images; empty: they may be.
std::string no_images(const StoredSet& one) {
  if (one.shape.size() > 4) return " (more than 4 dimensions)";
  return one.truth && one.shape.size() > 2 ? " (true and false, which are no pixels)" : "";
}

struct Walk {
  hid_t file;
  FileContents found;
  std::size_t seen = 0;
};

herr_t visit_object(hid_t, const char* name, const ObjectInfo* info, void* walk) {
  auto& at = *static_cast<Walk*>(walk);
  if (++at.seen > most_objects) return 1;
  if (info->type != H5O_TYPE_DATASET) return 0;
  StoredSet set;
  std::string problem = describe(at.file, name, set);
  if (problem.empty()) {
    at.found.numbers.push_back(std::move(set));
    return 0;
  }
  if (set.texts && !set.shape.empty()) at.found.texts.push_back(std::move(set));
  at.found.unusable.push_back({name, std::move(problem)});
  return 0;
}

/// Objects of other files and links that lead nowhere, which visit_object() does not see.
herr_t visit_link(hid_t, const char* name, const H5L_info_t* info, void* walk) {
  auto& at = *static_cast<Walk*>(walk);
  if (++at.seen > 2 * most_objects) return 1;
  if (info->type != H5L_TYPE_EXTERNAL && info->type != H5L_TYPE_SOFT) return 0;
  std::vector<char> value(info->u.val_size + 1);
  if (info->type == H5L_TYPE_SOFT) {
    if (H5Oexists_by_name(at.file, name, H5P_DEFAULT) > 0 ||
        H5Lget_val(at.file, name, value.data(), value.size(), H5P_DEFAULT) < 0)
      return 0;
    at.found.unusable.push_back(
        {name, fmt::format("/{} is a link to {}, which is not there", name, value.data())});
    return 0;
  }
  const char *target = "?", *object = "?";
  if (H5Lget_val(at.file, name, value.data(), value.size(), H5P_DEFAULT) >= 0)
    H5Lunpack_elink_val(value.data(), value.size(), nullptr, &target, &object);
  at.found.unusable.push_back(
      {name, fmt::format("/{} is an external link to {} in {}, which is not followed: name that "
                         "file",
                         name, object, target)});
  return 0;
}

}  // namespace

std::string shape_text(const StoredSet& one) {
  return fmt::format("/{} [{}]", one.name, join(one.shape, ", "));
}

std::string list_text(const std::vector<StoredSet>& all) { return list(texts_of(all)); }

std::string list_text(const FileContents& contents) {
  std::vector<std::string> texts = texts_of(contents.numbers);
  for (std::size_t i = 0; i < texts.size(); ++i) texts[i] += no_images(contents.numbers[i]);
  const std::string usable = list(std::move(texts));
  if (contents.unusable.empty()) return usable;
  std::vector<std::string> reasons;
  for (const FileContents::Unusable& one : contents.unusable) reasons.push_back(one.why);
  return fmt::format("{}. Not usable: {}", usable, list(std::move(reasons)));
}

std::string describe(hid_t file, const std::string& name, StoredSet& set) {
  set = {.name = name, .shape = {}};
  const h5::Data data(H5Dopen2(file, name.c_str(), H5P_DEFAULT));
  if (!data) return fmt::format("/{} cannot be opened by {}", name, library_and_cause());
  const h5::Type type(H5Dget_type(data.get()));
  const h5::Space space(H5Dget_space(data.get()));
  const int rank = H5Sget_simple_extent_ndims(space.get());
  if (rank >= 1 && H5Sget_simple_extent_type(space.get()) == H5S_SIMPLE) {
    set.shape.resize(static_cast<std::size_t>(rank));
    H5Sget_simple_extent_dims(space.get(), set.shape.data(), nullptr);
  }
  const H5T_class_t kind = H5Tget_class(type.get());
  set.floats = kind == H5T_FLOAT;
  set.truth = kind == H5T_ENUM;
  set.texts = kind == H5T_STRING;
  if (kind != H5T_INTEGER && !set.floats && !set.truth)
    return fmt::format("{} holds {}", shape_text(set), other_values(kind));
  return set.shape.empty() ? fmt::format("/{} holds a single value", name) : "";
}

namespace {

/// The numbers of an attribute; none where there is no such one.
std::vector<double> attribute_numbers(hid_t data, const char* name) {
  constexpr hssize_t most = 64;
  if (H5Aexists(data, name) <= 0) return {};
  const h5::Attribute attribute(H5Aopen(data, name, H5P_DEFAULT));
  const h5::Type type(H5Aget_type(attribute.get()));
  const h5::Space space(H5Aget_space(attribute.get()));
  const H5T_class_t kind = H5Tget_class(type.get());
  const hssize_t count = H5Sget_simple_extent_npoints(space.get());
  if ((kind != H5T_INTEGER && kind != H5T_FLOAT) || count < 1 || count > most) return {};
  std::vector<double> values(static_cast<std::size_t>(count));
  if (H5Aread(attribute.get(), H5T_NATIVE_DOUBLE, values.data()) < 0) return {};
  return values;
}

}  // namespace

Missing missing_values(hid_t data) {
  Missing all = attribute_numbers(data, "_FillValue");
  for (const double value : attribute_numbers(data, "missing_value")) all.push_back(value);
  return all;
}

std::string say_scaling(hid_t data) {
  std::vector<std::string> found;
  for (const char* name : {"scale_factor", "add_offset"})
    if (const auto values = attribute_numbers(data, name); !values.empty())
      found.push_back(fmt::format("{} {}", name, join(values, " ")));
  if (found.empty()) return "";
  return fmt::format("; {} (not applied: normalised values are the same)", join(found, ", "));
}

FileContents look_into(hid_t file) {
  Walk walk{file, {}};
  if (visit_objects(file, visit_object, &walk) < 0)
    walk.found.unusable.push_back(
        {"", fmt::format("some objects cannot be listed by {}", library_and_cause())});
  H5Lvisit(file, H5_INDEX_NAME, H5_ITER_NATIVE, visit_link, &walk);
  return std::move(walk.found);
}

}  // namespace lockstep::data
