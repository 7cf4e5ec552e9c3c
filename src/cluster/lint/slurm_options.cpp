#include "cluster/lint/batch_script.hpp"

#include <algorithm>
#include <cctype>

#include "lockstep/base/text/numbers.hpp"
#include "lockstep/base/text/words.hpp"
#include "lockstep/cluster/identity/walltime.hpp"

namespace lockstep::cluster {
namespace {

constexpr OptionArgument none = OptionArgument::none, maybe = OptionArgument::optional,
                         one = OptionArgument::required;

// What sbatch and srun have in common.
constexpr SlurmOption common[] = {
    {"account", 'A', one},
    {"acctg-freq", 0, one},
    {"bb", 0, one},
    {"bbf", 0, one},
    {"begin", 'b', one},
    {"chdir", 'D', one},
    {"cluster-constraint", 0, one},
    {"clusters", 'M', one},
    {"comment", 0, one},
    {"constraint", 'C', one},
    {"container", 0, one},
    {"container-id", 0, one},
    {"contiguous", 0, none},
    {"core-spec", 'S', one},
    {"cores-per-socket", 0, one},
    {"cpu-freq", 0, one},
    {"cpus-per-gpu", 0, one},
    {"cpus-per-task", 'c', one},
    {"deadline", 0, one},
    {"delay-boot", 0, one},
    {"dependency", 'd', one},
    {"distribution", 'm', one},
    {"error", 'e', one},
    {"exclude", 'x', one},
    {"exclusive", 0, maybe},
    {"export", 0, one},
    {"extra", 0, one},
    {"extra-node-info", 'B', one},
    {"gid", 0, one},
    {"gpu-bind", 0, one},
    {"gpu-freq", 0, one},
    {"gpus", 'G', one},
    {"gpus-per-node", 0, one},
    {"gpus-per-socket", 0, one},
    {"gpus-per-task", 0, one},
    {"gres", 0, one},
    {"gres-flags", 0, one},
    {"help", 'h', none},
    {"hint", 0, one},
    {"hold", 'H', none},
    {"input", 'i', one},
    {"job-name", 'J', one},
    {"licenses", 'L', one},
    {"mail-type", 0, one},
    {"mail-user", 0, one},
    {"mcs-label", 0, one},
    {"mem", 0, one},
    {"mem-bind", 0, one},
    {"mem-per-cpu", 0, one},
    {"mem-per-gpu", 0, one},
    {"mincpus", 0, one},
    {"network", 0, one},
    {"nice", 0, maybe},
    {"no-kill", 'k', maybe},
    {"nodefile", 'F', one},
    {"nodelist", 'w', one},
    {"nodes", 'N', one},
    {"ntasks", 'n', one},
    {"ntasks-per-core", 0, one},
    {"ntasks-per-gpu", 0, one},
    {"ntasks-per-node", 0, one},
    {"ntasks-per-socket", 0, one},
    {"ntasks-per-tres", 0, one},
    {"oom-kill-step", 0, maybe},
    {"open-mode", 0, one},
    {"output", 'o', one},
    {"overcommit", 'O', none},
    {"oversubscribe", 's', none},
    {"partition", 'p', one},
    {"power", 0, one},
    {"prefer", 0, one},
    {"priority", 0, one},
    {"profile", 0, one},
    {"propagate", 0, maybe},
    {"qos", 'q', one},
    {"quiet", 'Q', none},
    {"reboot", 0, none},
    {"reservation", 0, one},
    {"resv-ports", 0, maybe},
    {"segment", 0, one},
    {"signal", 0, one},
    {"sockets-per-node", 0, one},
    {"spread-job", 0, none},
    {"switches", 0, one},
    {"thread-spec", 0, one},
    {"threads-per-core", 0, one},
    {"time", 't', one},
    {"time-min", 0, one},
    {"tmp", 0, one},
    {"tres-bind", 0, one},
    {"tres-per-task", 0, one},
    {"uid", 0, one},
    {"usage", 0, none},
    {"use-min-nodes", 0, none},
    {"verbose", 'v', none},
    {"version", 'V', none},
    {"wckey", 0, one},
    {"x11", 0, maybe},
};

constexpr SlurmOption of_sbatch[] = {
    {"array", 'a', one},        {"batch", 0, one},       {"export-file", 0, one},
    {"get-user-env", 0, maybe}, {"ignore-pbs", 0, none}, {"kill-on-invalid-dep", 0, one},
    {"no-requeue", 0, none},    {"parsable", 0, none},   {"requeue", 0, none},
    {"test-only", 0, none},     {"wait", 'W', none},     {"wait-all-nodes", 0, one},
    {"wrap", 0, one},
};

constexpr SlurmOption of_srun[] = {
    {"accel-bind", 0, one},
    {"bcast", 0, maybe},
    {"bcast-exclude", 0, one},
    {"compress", 0, maybe},
    {"cpu-bind", 0, one},
    {"disable-status", 'X', none},
    {"epilog", 0, one},
    {"exact", 0, none},
    {"external-launcher", 0, maybe},
    {"het-group", 0, one},
    {"immediate", 'I', maybe},
    {"interactive", 0, none},
    {"jobid", 0, one},
    {"join", 'j', none},
    {"kill-on-bad-exit", 'K', maybe},
    {"label", 'l', none},
    {"mpi", 0, one},
    {"msg-timeout", 0, one},
    {"multi-prog", 0, none},
    {"no-allocate", 'Z', none},
    {"overlap", 0, none},
    {"preserve-env", 'E', none},
    {"prolog", 0, one},
    {"pty", 0, maybe},
    {"quit-on-interrupt", 0, none},
    {"relative", 'r', one},
    {"send-libs", 0, maybe},
    {"slurmd-debug", 0, one},
    {"task-epilog", 0, one},
    {"task-prolog", 0, one},
    {"test-only", 0, none},
    {"threads", 'T', one},
    {"unbuffered", 'u', none},
    {"wait", 'W', one},
    {"whole", 0, none},
};

/// Calls `visit` for every option of the program.
template <class Visit>
void each(SlurmProgram program, Visit visit) {
  std::ranges::for_each(common, visit);
  if (program == SlurmProgram::sbatch)
    std::ranges::for_each(of_sbatch, visit);
  else
    std::ranges::for_each(of_srun, visit);
}

/// Reads the options of words[at], one long or some letters; `at` ends after their values.
void parse_word(SlurmProgram program, const std::vector<std::string>& words, std::size_t& at,
                ParsedOptions& parsed) {
  const std::string& word = words[at++];
  const auto value_of = [&](const SlurmOption& option, std::optional<std::string> here) {
    if (!here && option.argument == OptionArgument::required) {
      if (at == words.size()) parsed.lacking = option.name;
      if (at < words.size()) here = words[at++];
    }
    parsed.values[std::string(option.name)] = here.value_or("");
  };
  if (word.starts_with("--")) {
    const std::size_t equals = std::min(word.find('='), word.size());
    const SlurmOption* option = find_option(program, word.substr(2, equals - 2));
    if (!option) {
      parsed.unknown = word.substr(0, equals);
      return;
    }
    std::optional<std::string> here;
    if (equals < word.size()) here = word.substr(equals + 1);
    return value_of(*option, here);
  }
  for (std::size_t i = 1; i < word.size(); ++i) {
    const SlurmOption* option = find_option(program, word[i]);
    if (!option) {
      parsed.unknown = std::string("-") + word[i];
      return;
    }
    const bool takes_rest = option->argument != OptionArgument::none && i + 1 < word.size();
    value_of(*option, takes_rest ? std::optional(word.substr(i + 1)) : std::nullopt);
    if (takes_rest) return;
  }
}

}  // namespace

const SlurmOption* find_option(SlurmProgram program, std::string_view name) {
  const SlurmOption* exact = nullptr;
  const SlurmOption* begins = nullptr;
  int beginning = 0;
  each(program, [&](const SlurmOption& option) {
    if (option.name == name) exact = &option;
    if (!name.empty() && option.name.starts_with(name)) {
      begins = &option;
      ++beginning;
    }
  });
  return exact ? exact : beginning == 1 ? begins : nullptr;
}

const SlurmOption* find_option(SlurmProgram program, char letter) {
  const SlurmOption* found = nullptr;
  each(program, [&](const SlurmOption& option) {
    if (option.letter == letter) found = &option;
  });
  return found;
}

std::string_view similar_option(SlurmProgram program, std::string_view name) {
  std::string_view nearest;
  std::size_t best = 3;
  each(program, [&](const SlurmOption& option) {
    const std::size_t distance = edit_distance(option.name, name);
    if (distance < best) {
      best = distance;
      nearest = option.name;
    }
  });
  return nearest;
}

ParsedOptions parse_options(SlurmProgram program, const std::vector<std::string>& words,
                            std::size_t first) {
  ParsedOptions parsed;
  std::size_t at = first;
  // After an unknown option without "=" it is not known whether a value follows.
  const auto lost = [&] {
    return !parsed.unknown.empty() && words[at - 1].find('=') == std::string::npos;
  };
  while (at < words.size() && !lost() && words[at].size() > 1 && words[at].starts_with('-')) {
    if (words[at] == "--") {
      ++at;
      break;
    }
    parse_word(program, words, at, parsed);
  }
  parsed.program = at;
  return parsed;
}

std::optional<double> read_memory_mb(std::string_view text) {
  if (text.ends_with('B') || text.ends_with('b')) text.remove_suffix(1);
  const std::size_t digits = std::min(text.find_first_not_of("0123456789"), text.size());
  const auto number = whole_number<long>(text.substr(0, digits));
  const std::string_view letter = text.substr(digits);
  if (!number || letter.size() > 1) return std::nullopt;
  switch (letter.empty() ? 'M' : std::toupper(static_cast<unsigned char>(letter[0]))) {
    case 'K':
      return *number / 1024;
    case 'M':
      return number;
    case 'G':
      return *number * 1024;
    case 'T':
      return *number * 1024 * 1024;
    default:
      return std::nullopt;
  }
}

std::optional<long> read_gpu_count(std::string_view text) {
  long sum = 0;
  while (!text.empty()) {
    const std::string_view item = text.substr(0, text.find(','));
    text.remove_prefix(std::min(item.size() + 1, text.size()));
    const std::size_t colon = item.rfind(':');
    const std::string_view digits = colon == item.npos ? item : item.substr(colon + 1);
    const auto count = whole_number<long>(digits);
    if (!count) return std::nullopt;
    sum += *count;
  }
  return sum;
}

}  // namespace lockstep::cluster
