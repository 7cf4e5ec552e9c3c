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

/// Identifies this boot of the machine's kernel; containers on one machine share it. Empty where
/// the kernel does not provide it.
std::string boot_id();

}  // namespace lockstep
