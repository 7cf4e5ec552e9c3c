#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

namespace lockstep {

/// Loops over a file descriptor's system calls, which may be interrupted or do less than asked.
/// They return the number of bytes done. When that is fewer than asked for, errno says why; after a
/// read, 0 means that the file ended.

std::size_t write_all(int descriptor, const void* from, std::size_t bytes);
std::size_t write_all_at(int descriptor, const void* from, std::size_t bytes, std::uint64_t offset);
std::size_t read_all(int descriptor, void* to, std::size_t bytes);
std::size_t read_all_at(int descriptor, void* to, std::size_t bytes, std::uint64_t offset);

/// Whether a read, or a listening socket's accept(), would not wait.
bool is_readable(int descriptor);

/// Whether errno means that the machine is at fault: a full or broken disk, no memory. Else the
/// user can correct a path or its permissions.
bool is_machine_fault(int error_number);

/// Throws "WHAT: the system's reason": Error where the machine is at fault, else InputError.
[[noreturn]] void fail_by_system(std::string_view what, int error_number);

/// The file's first line without its newline; empty where it cannot be read.
std::string first_line(const std::filesystem::path& path);
/// The value after "NAME:" and blanks in a file like /proc/self/status; empty where it has none.
std::string field_of(const std::filesystem::path& path, std::string_view name);

/// Identifies this boot of the machine's kernel; containers on one machine share it. Empty where
/// the kernel does not provide it.
std::string boot_id();

/// File descriptors: a stranger who connects to a port of this process, or a library in it, may
/// take all that are free. Some are held back, for what must be written even then.

/// Raises the soft limit of open files to the hard one (at most 65536), and holds some descriptors
/// back. Call it once, when the process starts. The usual soft limit (1024) only protects programs
/// that use select().
void prepare_descriptors();

/// The descriptors that were held back are free while one of these lives.
/// **Thread safety:** any thread.
class SpareDescriptors {
 public:
  SpareDescriptors();
  ~SpareDescriptors();
  SpareDescriptors(const SpareDescriptors&) = delete;
  SpareDescriptors& operator=(const SpareDescriptors&) = delete;
};

/// Whether a new descriptor with this number (the system gives the lowest that is free) is one of
/// the last that this process may open: too dear for a stranger.
bool among_the_last(int descriptor);

/// Empty while enough descriptors are free. Else how many are open, and which port most of the
/// connections came to: "254 of 256 file descriptors are open, 215 of them connections to port
/// 1024, which is not lockstep's (Open MPI's?)". `own_port`: lockstep's, or 0.
std::string describe_lack_of_descriptors(std::uint16_t own_port);

}  // namespace lockstep
