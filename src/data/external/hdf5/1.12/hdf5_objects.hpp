#pragma once

#include <hdf5.h>

// What a file's objects are, by HDF5 1.12 and newer, as the folder 1.10 has it.
namespace lockstep::data {

using ObjectInfo = H5O_info2_t;

inline bool object_info(hid_t file, const char* name, ObjectInfo& info) {
  return H5Oget_info_by_name3(file, name, &info, H5O_INFO_BASIC, H5P_DEFAULT) >= 0;
}

inline herr_t visit_objects(hid_t file,
                            herr_t (*visit)(hid_t, const char*, const ObjectInfo*, void*),
                            void* data) {
  return H5Ovisit3(file, H5_INDEX_NAME, H5_ITER_NATIVE, visit, data, H5O_INFO_BASIC);
}

}  // namespace lockstep::data
