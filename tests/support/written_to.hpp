#pragma once

#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstdio>
#include <functional>
#include <string>

namespace lockstep::test {

/// What `speak` writes to a file descriptor of the process: little enough for a pipe to hold.
inline std::string written_to(int descriptor, const std::function<void()>& speak) {
  std::fflush(nullptr);
  int ends[2];
  REQUIRE(::pipe(ends) == 0);
  const int before = ::dup(descriptor);
  ::dup2(ends[1], descriptor);
  ::close(ends[1]);
  speak();
  ::dup2(before, descriptor);
  ::close(before);
  std::string text(4096, '\0');
  const ssize_t size = ::read(ends[0], text.data(), text.size());
  ::close(ends[0]);
  text.resize(size > 0 ? static_cast<std::size_t>(size) : 0);
  return text;
}

}  // namespace lockstep::test
