// Replaces libFuzzer when a target is compiled without clang: it tries the seeds, changed at
// random, for some seconds, or -runs times. It finds less, because it does not see which changes
// reach new code, but it runs in every CI. Unknown options are ignored.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

#include <signal.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <unistd.h>

extern "C" int LLVMFuzzerInitialize(int* count, char*** values);
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace {

constexpr unsigned patience_seconds =
    10;  // seconds of computing for one input; six times as long in all
constexpr std::size_t longest_input = 16384;

std::string now;                       // the input that is being tried
std::string finding = "fuzz-finding";  // where it is kept if it ends the program

/// Only plain calls, because this also runs in a signal handler.
void keep_input() {
  std::FILE* file = std::fopen(finding.c_str(), "wb");
  if (file == nullptr) return;
  std::fwrite(now.data(), 1, now.size(), file);
  std::fclose(file);
  std::fprintf(stderr, "fuzz: the input is in %s\n", finding.c_str());
}

void on_end(int signal) {
  const unsigned longest = signal == SIGALRM ? 6 * patience_seconds : patience_seconds;
  if (signal != SIGABRT) std::fprintf(stderr, "fuzz: an input took longer than %u s\n", longest);
  keep_input();
  std::_Exit(1);
}

class Mutator {
 public:
  explicit Mutator(const std::vector<std::string>& seeds) : seeds_(seeds) {}

  std::string next() {
    std::string input = seeds_[below(seeds_.size())];
    for (std::size_t changes = 1 + below(6); changes > 0; --changes) change(input);
    if (input.size() > longest_input) input.resize(longest_input);
    return input;
  }

 private:
  std::size_t below(std::size_t end) { return end == 0 ? 0 : random_() % end; }

  void change(std::string& input) {
    static constexpr std::uint8_t telling[] = {0, 1, 0x7F, 0x80, 0xFE, 0xFF, '\n', '0', '9', '-'};
    const std::size_t at = below(input.size() + 1), count = 1 + below(8);
    const std::string& other = seeds_[below(seeds_.size())];
    const std::size_t from = below(other.size() + 1);
    switch (below(6)) {
      case 0:
        if (at < input.size()) input[at] = static_cast<char>(input[at] ^ (1 << below(8)));
        break;
      case 1:
        for (std::size_t i = at; i < std::min(at + count, input.size()); ++i)
          input[i] = static_cast<char>(telling[below(std::size(telling))]);
        break;
      case 2:
        if (at < input.size()) input[at] = static_cast<char>(random_());
        break;
      case 3:
        input.erase(at, count);
        break;
      case 4:
        input.insert(at, other.substr(from, count * count));
        break;
      default:
        if (below(4) == 0) input.resize(at);
    }
  }

  const std::vector<std::string>& seeds_;
  std::mt19937_64 random_{20240229};
};

std::string option(int count, char** values, const std::string& name) {
  for (int i = 1; i < count; ++i)
    if (const std::string value = values[i]; value.starts_with(name))
      return value.substr(name.size());
  return {};
}

/// Files given by name are tried as they are; those of a folder are the seeds.
std::vector<std::string> read_seeds(int count, char** values) {
  std::vector<std::string> seeds;
  const auto read = [&](const std::filesystem::path& path) {
    std::ifstream file(path, std::ios::binary);
    seeds.emplace_back(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
  };
  for (int i = 1; i < count; ++i) {
    const std::filesystem::path path = values[i];
    if (std::filesystem::is_directory(path))
      for (const auto& entry : std::filesystem::directory_iterator(path)) read(entry.path());
    else if (std::filesystem::exists(path))
      read(path);
  }
  // A folder's entries have no fixed order; sorted, each run tries the same inputs.
  std::sort(seeds.begin(), seeds.end());
  return seeds;
}

void try_input(std::string input) {
  now = std::move(input);
  const itimerval own{{0, 0}, {patience_seconds, 0}};
  ::setitimer(ITIMER_PROF, &own, nullptr);
  ::alarm(6 * patience_seconds);
  LLVMFuzzerTestOneInput(reinterpret_cast<const std::uint8_t*>(now.data()), now.size());
}

}  // namespace

/// The sanitizers call this when they end the program.
extern "C" void __asan_on_error();
extern "C" void __asan_on_error() { keep_input(); }

int main(int count, char** values) {
  LLVMFuzzerInitialize(&count, &values);
  const std::string seconds = option(count, values, "-max_total_time="),
                    runs = option(count, values, "-runs="),
                    prefix = option(count, values, "-artifact_prefix=");
  const std::size_t most_runs = runs.empty() ? SIZE_MAX : std::strtoull(runs.c_str(), nullptr, 10);
  if (!prefix.empty()) finding = prefix + "finding";
  for (const int signal : {SIGALRM, SIGPROF, SIGABRT}) ::signal(signal, on_end);
  const std::vector<std::string> seeds = read_seeds(count, values);
  if (seeds.empty()) return 1;
  std::size_t tried = 0;
  for (; tried < seeds.size(); ++tried) try_input(seeds[tried]);
  const auto end =
      std::chrono::steady_clock::now() + std::chrono::seconds(std::atoi(seconds.c_str()));
  for (Mutator mutator(seeds); tried < most_runs && std::chrono::steady_clock::now() < end; ++tried)
    try_input(mutator.next());
  struct rusage used {};
  ::getrusage(RUSAGE_SELF, &used);
  std::printf("stat::number_of_executed_units: %zu\nstat::peak_rss_mb: %ld\n", tried,
              used.ru_maxrss / 1024);
  const long most = std::atol(option(count, values, "-rss_limit_mb=").c_str());
  if (most == 0 || used.ru_maxrss / 1024 <= most) return 0;
  std::fprintf(stderr, "fuzz: %ld MB of memory were used, more than %ld\n", used.ru_maxrss / 1024,
               most);
  return 1;
}
