#pragma once

#include <hdf5.h>

#include <string>

namespace lockstep::data {

/// Why the values of a data set cannot be read, if one of its filters is not installed: its number
/// and name, and where HDF5 looks for its plugin. Empty if all are there. The caller holds an
/// h5::Session.
std::string missing_filter(hid_t data);

}  // namespace lockstep::data
