// Reads rows with pread alone, in random order, into one buffer for each thread: the yardstick for
// a loader's threads.
//   pread FILE ROW-BYTES [threads = 1] [seconds = 2]      prints rows a second
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <thread>
#include <vector>

#include "lockstep/base/clock.hpp"

int main(int count, char** words) {
  if (count < 3) return 2;
  const std::size_t bytes = std::strtoull(words[2], nullptr, 10);
  const std::size_t rows = std::filesystem::file_size(words[1]) / bytes;
  const std::size_t threads = count > 3 ? std::strtoull(words[3], nullptr, 10) : 1;
  const double seconds = count > 4 ? std::strtod(words[4], nullptr) : 2;
  const int file = ::open(words[1], O_RDONLY);
  if (file < 0 || rows == 0) return 1;
  std::atomic<std::size_t> done{0};
  const double start = lockstep::now_s();
  const auto read = [&](std::size_t thread) {
    std::vector<char> buffer(bytes);
    std::uint64_t state = thread + 1;
    std::size_t mine = 0;
    while (lockstep::now_s() - start < seconds) {
      for (int i = 0; i < 16; ++i, ++mine) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        const std::size_t row = (state >> 33) % rows;
        if (::pread(file, buffer.data(), bytes, static_cast<off_t>(row * bytes)) < 0) std::abort();
      }
    }
    done += mine;
  };
  std::vector<std::thread> all;
  for (std::size_t i = 0; i < threads; ++i) all.emplace_back(read, i);
  for (std::thread& thread : all) thread.join();
  fmt::print("{:.0f}\n", static_cast<double>(done) / (lockstep::now_s() - start));
}
