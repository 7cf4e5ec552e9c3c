#include <catch2/catch.hpp>

#include "cluster/lint/batch_script.hpp"
#include "cluster/lint/shell_commands.hpp"
#include "lockstep/cluster/identity/walltime.hpp"

namespace lockstep::cluster {
namespace {

using Words = std::vector<std::string>;

Words words_of(std::string_view script, std::size_t command = 0) {
  return shell_commands(script).at(command).words;
}

BatchScript read(std::string_view text) {
  Findings findings;
  return read_batch_script(text, findings);
}

TEST_CASE("a script's commands are read as a shell reads them", "[lint]") {
  CHECK(words_of("srun -n 4 'a b' \"c $d\" e\\ f # g") ==
        Words{"srun", "-n", "4", "a b", "c $d", "e f"});
  CHECK(words_of("a \\\n  b") == Words{"a", "b"});
  CHECK(words_of("a '' b") == Words{"a", "", "b"});
  CHECK(words_of("a$(b \"(\" c) \"${d:-e f}\" g") == Words{"a$(b \"(\" c)", "${d:-e f}", "g"});
  CHECK(words_of("a >log 2>&1 b") == Words{"a", ">log", "2>&1", "b"});
  CHECK(words_of("a &>log b") == Words{"a", "&>log", "b"});

  const auto commands = shell_commands("a | b && c || d & e; f\n(g)");
  Words ends;
  for (const ShellCommand& command : commands) ends.push_back(command.end);
  CHECK(ends == Words{"|", "&&", "||", "&", ";", "\n", ")"});
}

TEST_CASE("commands know their lines, also after comments, quotes and here-documents", "[lint]") {
  const auto commands = shell_commands(
      "#!/bin/bash\n# x\na \\\n b\ncat <<-'END' >f\nsrun no\n\tEND\nc 'd\ne'\n((1 << 2))\nf\n");
  REQUIRE(commands.size() == 5);
  CHECK(commands[0].line == 3);
  CHECK(commands[1].line == 5);
  CHECK(commands[2].line == 8);
  CHECK(commands[2].words == Words{"c", "d\ne"});
  CHECK(commands[4].line == 11);
  CHECK(commands[4].words == Words{"f"});
}

TEST_CASE("the program is found after assignments, keywords and timeout", "[lint]") {
  CHECK(program_in({"A=1", "exec", "timeout", "-k", "60", "srun", "x"}) == 5);
  CHECK(program_in({"if", "!", "srun"}) == 2);
  CHECK(program_in({"srun"}) == 0);
  CHECK(program_in({"A=1"}) == 1);
}

TEST_CASE("Slurm's options are read in all their forms", "[lint]") {
  const auto parsed = parse_options(SlurmProgram::srun,
                                    {"srun", "-N2", "-n", "4", "-lu", "--mpi=pmix", "--cpu-bind",
                                     "none", "--exclusive", "-K", "./a.out", "-n", "9"},
                                    1);
  CHECK(parsed.values.at("nodes") == "2");
  CHECK(parsed.values.at("ntasks") == "4");
  CHECK(parsed.values.contains("label"));
  CHECK(parsed.values.contains("unbuffered"));
  CHECK(parsed.values.at("mpi") == "pmix");
  CHECK(parsed.values.at("cpu-bind") == "none");
  CHECK(parsed.values.contains("kill-on-bad-exit"));
  CHECK(parsed.program == 10);
  CHECK(parse_options(SlurmProgram::srun, {"--bogus=1", "x"}, 0).unknown == "--bogus");
  CHECK(parse_options(SlurmProgram::sbatch, {"--mpi=pmix"}, 0).unknown == "--mpi");
  CHECK(parse_options(SlurmProgram::sbatch, {"-y"}, 0).unknown == "-y");
  CHECK(parse_options(SlurmProgram::sbatch, {"--time"}, 0).lacking == "time");
  CHECK(find_option(SlurmProgram::sbatch, "cpus-per-t")->name == "cpus-per-task");
  CHECK(find_option(SlurmProgram::sbatch, "ntasks-per") == nullptr);
  CHECK(find_option(SlurmProgram::sbatch, "ntasks")->letter == 'n');
  CHECK(find_option(SlurmProgram::sbatch, 'W')->argument == OptionArgument::none);
  CHECK(find_option(SlurmProgram::srun, 'W')->argument == OptionArgument::required);
}

TEST_CASE("times, sizes and numbers of GPUs are what Slurm takes", "[lint]") {
  CHECK(read_time_limit("90") == 5400);
  CHECK(read_time_limit("2:30") == 150);
  CHECK(read_time_limit("1:00:01") == 3601);
  CHECK(read_time_limit("1-2") == 93600);
  CHECK(read_time_limit("1-2:03") == 93780);
  CHECK(read_time_limit("UNLIMITED") == 0);
  for (const char* bad : {"4h", "", "1:2:3:4", "-5", "1-", "soon"}) CHECK(!read_time_limit(bad));
  CHECK(read_memory_mb("2048K") == 2);
  CHECK(read_memory_mb("2000") == 2000);
  CHECK(read_memory_mb("16G") == 16384);
  CHECK(read_memory_mb("16GB") == 16384);
  CHECK(read_memory_mb("1t") == 1024 * 1024);
  for (const char* bad : {"1.5G", "G", "", "16X", "16 G", "-1"}) CHECK(!read_memory_mb(bad));
  CHECK(read_gpu_count("4") == 4);
  CHECK(read_gpu_count("h100:4") == 4);
  CHECK(read_gpu_count("a100:2,h100:1") == 3);
  CHECK(!read_gpu_count("all"));
}

TEST_CASE("a script is read as sbatch reads it", "[lint]") {
  const BatchScript script = read(
      "#!/bin/bash\n#SBATCH -N 2 --ntasks-per-node=4   # eight\n##SBATCH --mem=1\n"
      "#SBATCH --job-name=\"a b\"\nmodule load x\n"
      "OMP_NUM_THREADS=1 /usr/bin/srun --mpi=pmix lockstep train --out runs/a --resume=auto\n"
      "mpirun -np 8 --mca pml ob1 --bind-to none build/lockstep eval \"$@\"\n");
  CHECK(script.number("nodes") == 2);
  CHECK(script.number("ntasks-per-node") == 4);
  CHECK(script.line_of("ntasks-per-node") == 2);
  CHECK(script.directive("job-name")->value == "a b");
  CHECK(!script.directive("mem"));
  REQUIRE(script.starts.size() == 2);
  const RankStart& first = script.starts[0];
  CHECK(first.line == 6);
  CHECK(first.starter == Starter::srun);
  CHECK(first.trains());
  CHECK(first.argument("out") == "runs/a");
  CHECK(first.argument("resume") == "auto");
  CHECK(!first.argument("batch"));
  CHECK(!first.has_unseen_arguments());
  const RankStart& second = script.starts[1];
  CHECK(second.starter == Starter::mpirun);
  CHECK(second.options.at("ntasks") == "8");
  CHECK(second.options.at("bind-to") == "none");
  CHECK(second.program.front() == "build/lockstep");
  CHECK(!second.trains());
}

}  // namespace
}  // namespace lockstep::cluster
