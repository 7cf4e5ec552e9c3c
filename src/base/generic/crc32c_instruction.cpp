#include "base/crc32c_tables.hpp"
#include "lockstep/base/crc32c.hpp"

namespace lockstep {

Crc32c fastest_crc32c() { return crc32c_portable; }

}  // namespace lockstep
