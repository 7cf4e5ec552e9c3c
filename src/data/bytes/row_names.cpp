#include "data/bytes/row_names.hpp"

#include <hdf5.h>

#include <algorithm>

#include "lockstep/base/error.hpp"

namespace lockstep::data {

RowNames::~RowNames() {
  if (!file_ && !names_) return;
  const h5::Session session;
  names_ = {};
  file_ = {};
}

/// The caller holds a Session. Names are only for messages: whatever is wrong with them, the rows
/// can be read without.
void RowNames::open() {
  if (opened_) return;
  opened_ = true;
  try {
    file_ = h5::open_file(path_);
  } catch (const InputError&) {
    return;
  }
  if (H5Lexists(file_.get(), file_names_item, H5P_DEFAULT) <= 0) return;
  names_ = h5::Data(H5Dopen2(file_.get(), file_names_item, H5P_DEFAULT));
  if (!names_) return;
  const h5::Type type(H5Dget_type(names_.get()));
  const h5::Space space(H5Dget_space(names_.get()));
  hsize_t rows = 0;
  const h5::Properties created(H5Dget_create_plist(names_.get()));
  const bool sound =
      H5Pget_layout(created.get()) == H5D_CONTIGUOUS && H5Pget_external_count(created.get()) == 0 &&
      H5Tget_class(type.get()) == H5T_STRING && H5Tis_variable_str(type.get()) == 0 &&
      H5Tget_size(type.get()) <= longest_file_name &&
      H5Sget_simple_extent_ndims(space.get()) == 1 &&
      H5Sget_simple_extent_dims(space.get(), &rows, nullptr) == 1;
  if (!sound) return;
  bytes_ = H5Tget_size(type.get());
  rows_ = rows;
}

std::size_t RowNames::bytes() {
  const h5::Session session;
  open();
  return bytes_;
}

std::string RowNames::of(std::size_t row) {
  const h5::Session session;
  open();
  if (row >= rows_) return {};
  const h5::Type type(H5Dget_type(names_.get()));
  const h5::Space there(H5Dget_space(names_.get()));
  const hsize_t first = row, count = 1;
  const h5::Space here(H5Screate_simple(1, &count, nullptr));
  std::string name(bytes_, '\0');
  if (H5Sselect_hyperslab(there.get(), H5S_SELECT_SET, &first, nullptr, &count, nullptr) < 0 ||
      H5Dread(names_.get(), type.get(), here.get(), there.get(), H5P_DEFAULT, name.data()) < 0)
    return {};
  name.resize(std::min(name.size(), name.find('\0')));
  // It goes into messages of one line.
  std::replace_if(
      name.begin(), name.end(), [](char c) { return static_cast<unsigned char>(c) < ' '; }, '?');
  return name;
}

}  // namespace lockstep::data
