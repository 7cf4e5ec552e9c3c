#pragma once

#include <hdf5.h>

// What a file's objects are, by HDF5 1.10. The folder 1.12 says the same for 1.12 and newer; the
// Makefile chooses one of them.
namespace lockstep::data {

using ObjectInfo = H5O_info_t;  ///< only its fileno and type may be used

inline bool object_info(hid_t file, const char* name, ObjectInfo& info) {
  return H5Oget_info_by_name2(file, name, &info, H5O_INFO_BASIC, H5P_DEFAULT) >= 0;
}

/// Negative: not all objects could be visited.
inline herr_t visit_objects(hid_t file,
                            herr_t (*visit)(hid_t, const char*, const ObjectInfo*, void*),
                            void* data) {
  return H5Ovisit2(file, H5_INDEX_NAME, H5_ITER_NATIVE, visit, data, H5O_INFO_BASIC);
}

}  // namespace lockstep::data
