#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::cluster {

enum class SlurmProgram { sbatch, srun };

enum class OptionArgument { none, optional, required };

struct SlurmOption {
  std::string_view name;  ///< without dashes
  char letter;            ///< 0: it has no letter
  OptionArgument argument;
};

/// The option of this name; or, as in getopt, the only one whose name begins with it.
const SlurmOption* find_option(SlurmProgram program, std::string_view name);
const SlurmOption* find_option(SlurmProgram program, char letter);

/// The option whose name differs from `name` by two letters or fewer; empty when there is none.
std::string_view similar_option(SlurmProgram program, std::string_view name);

/// Options by their long names, and the place of the program that srun starts.
struct ParsedOptions {
  std::map<std::string, std::string, std::less<>> values;
  std::size_t program = 0;  ///< index of the first word that is not an option
  std::string unknown;      ///< as it was written; reading ended there
  std::string lacking;      ///< the option whose value is missing
};
ParsedOptions parse_options(SlurmProgram program, const std::vector<std::string>& words,
                            std::size_t first);

/// A value of --mem and the like in MB; nothing for a text that Slurm does not accept.
std::optional<double> read_memory_mb(std::string_view text);

/// "4", "h100:4" and "a100:2,h100:2" are 4; nothing for other texts.
std::optional<long> read_gpu_count(std::string_view text);

}  // namespace lockstep::cluster
