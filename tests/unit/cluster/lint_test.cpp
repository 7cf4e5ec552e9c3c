#include <catch2/catch.hpp>

#include <algorithm>

#include "lockstep/cluster/lint/lint.hpp"

namespace lockstep::cluster {
namespace {

const std::string head = "#!/bin/bash\n";
const std::string sound = R"(#SBATCH --nodes=2
#SBATCH --ntasks-per-node=4
#SBATCH --gpus-per-node=4
#SBATCH --cpus-per-task=8
#SBATCH --mem=0
#SBATCH --time=12:00:00
#SBATCH --signal=B:USR1@120
#SBATCH --requeue
#SBATCH --open-mode=append
)";
const std::string trap = "trap 'kill -USR1 $step' USR1\n";
const std::string srun = "srun --mpi=pmix --kill-on-bad-exit=1 -c \"$SLURM_CPUS_PER_TASK\" ";
const std::string train = "build/lockstep train --out runs/$SLURM_JOB_ID --resume auto";
const std::string ending = " &\nstep=$!\nwait $step\nexit $?\n";

struct Change {
  std::string what, text;
};

/// The good script, with each change's `text` in place of `what`.
std::string with(const std::vector<Change>& changes) {
  std::string script = head + sound + trap + srun + train + ending;
  for (const Change& change : changes) {
    const std::size_t at = script.find(change.what);
    REQUIRE(at != std::string::npos);
    script.replace(at, change.what.size(), change.text);
  }
  return script;
}

std::string with(const std::string& what, const std::string& text) { return with({{what, text}}); }

/// Wrong here are the option --epoch, the model resnet51, TOML with "bad", and all folders but
/// "there".
LintContext context() {
  const auto faults = [](const ProgramCall& call) {
    CallFaults found;
    for (const std::string& word : call.words)
      if (word == "--epoch" || word.ends_with("resnet51")) found.faults.push_back("no " + word);
    return found;
  };
  const auto toml = [](const std::string& text) {
    return text.find("bad") == text.npos ? std::string() : std::string("a bad key");
  };
  LintContext context;
  context.faults_of_call = faults;
  context.fault_of_toml = toml;
  context.is_folder = [](const std::string& path) { return path == "there"; };
  return context;
}

constexpr SlurmVersion debian_12{22, 5};

std::string findings(const std::string& script, std::optional<SlurmVersion> slurm = debian_12) {
  std::string text;
  LintContext here = context();
  here.slurm = [slurm] { return slurm; };
  for (const Finding& one : lint_batch_script(script, here))
    text += std::to_string(one.line) + (one.severity == Severity::error ? " E " : " W ") +
            one.rule + ": " + one.text + "\n";
  return text;
}

/// The only finding: "LINE E|W rule: ...".
void only(const std::string& script, const std::string& begin, const std::string& words) {
  const std::string found = findings(script);
  INFO(found);
  CHECK(found.starts_with(begin));
  CHECK(found.find(words) != std::string::npos);
  CHECK(std::count(found.begin(), found.end(), '\n') == 1);
}

TEST_CASE("lint finds nothing in a good script", "[lint]") { CHECK(findings(with("", "")) == ""); }

TEST_CASE("lint: lines that sbatch rejects or ignores", "[lint]") {
  only(with("#!/bin/bash\n", "\n"), "1 E shebang", "#!/bin/bash");
  only(with("--mem=0", "--mem=0 --ntask-per-core=1"), "6 E option", "--ntasks-per-core?");
  only(with("--mem=0", "--mem=0\n#SBATCH --container-image=x"), "7 W option", "plugin");
  only(with("--mem=0", "--mem=0\n#SBATCH -y"), "7 E option", "-y");
  only(with("--mem=0", "--mem=0 typo --mail-type=END"), "6 E option", "\"typo\"");
  only(with("--mem=0", "--mem=0\n#SBATCH --partition"), "7 E option", "needs a value");
  only(with("--mem=0", "--mem=0\n# SBATCH --partition=x"), "7 W spelling", "#SBATCH ");
  only(with("--mem=0", "--mem=0\n#sbatch --partition=x"), "7 W spelling", "#SBATCH ");
  CHECK(findings(with("--mem=0", "--mem=0\n##SBATCH --partition=x\n# sbatch -N 8 this")) == "");
  only(with("step=$!", "#SBATCH --partition=x"), "13 E ignored", "first command");
  only(with("--mem=0", "--mem=0\n#SBATCH --mem=64G"), "7 W twice", "line 6");
  only(with("--mem=0", "--mem=0\n#SBATCH --partition=$P"), "7 E variable", "\"$P\"");
  only(with("nodes=2", "nodes=two"), "2 E value", "--nodes");
  only(with("cpus-per-task=8", "cpus-per-task=8c"), "5 E value", "whole number");
}

TEST_CASE("lint: time and memory", "[lint]") {
  only(with("#SBATCH --time=12:00:00\n", ""), "0 W time", "no --time");
  only(with("12:00:00", "12:00"), "7 W time", "minutes:seconds; for hours write 12:00:00");
  only(with("12:00:00", "12h"), "7 E time", "not a time limit");
  only(with("#SBATCH --mem=0\n", ""), "0 W memory", "no --mem");
  only(with("--mem=0", "--mem=1.5G"), "6 E memory", "1.5G");
  only(with("--mem=0", "--mem=64"), "6 W memory", "16 MB for each rank");
  only(with("--mem=0", "--mem-per-cpu=16"), "6 W memory", "128 MB for each rank");
  only(with("--mem=0", "--mem=64G --mem-per-cpu=2G"), "6 E memory", "exclude each other");
  CHECK(findings(with("--mem=0", "--mem=64G")) == "");
}

TEST_CASE("lint: tasks against GPUs and nodes", "[lint]") {
  only(with("gpus-per-node=4", "gpus-per-node=2"), "4 E gpus", "--ntasks-per-node=2");
  only(with("gpus-per-node=4", "gpus-per-node=h100:8"), "4 W gpus", "4 stay idle");
  only(with("gpus-per-node=4", "gres=gpu:a100:2,tmpdisk:9"), "4 E gpus", "--ntasks-per-node=2");
  CHECK(findings(with({{"gpus-per-node=4", "gpus-per-node=2"},
                       {" --resume", " --share-gpu --resume"}})) == "");
  only(with("gpus-per-node=4", "gpus=8"), "4 W gpus", "--gpus-per-node");
  only(with("gpus-per-node=4", "gpus-per-task=1"), "4 W gpus-per-task", "--gpus-per-node");
  only(with("ntasks-per-node=4", "ntasks=8"), "3 W tasks", "--ntasks-per-node=4");
  only(with("ntasks-per-node=4", "ntasks=7"), "3 W tasks", "unequal shares");
  only(with("ntasks-per-node=4", "ntasks-per-node=4 --ntasks=6"), "3 E tasks", "not 2 nodes x");
  const Change no_requeue{"#SBATCH --requeue\n", ""};
  only(with({{"nodes=2", "nodes=1-8"}, no_requeue}), "2 W nodes", "no more nodes than 1 x");
  CHECK(findings(with({{"nodes=2", "nodes=2-8"}, no_requeue})) == "");
  only(with("nodes=2", "nodes=2-8"), "2 W nodes", "waits for as many nodes");
}

TEST_CASE("lint: workers of a prediction need no MPI, and do not end together", "[lint]") {
  const Change predict{train, "build/lockstep predict runs/1 data --out predictions"};
  CHECK(findings(with({predict, {" --mpi=pmix --kill-on-bad-exit=1", ""}})) == "");
  only(with({predict}), "12 W kill-on-bad-exit", "would end the others");
}

TEST_CASE("lint: cores that only srun of Slurm 22.05 to 23.02 does not take", "[lint]") {
  const std::string script = with(" -c \"$SLURM_CPUS_PER_TASK\"", "");
  for (const SlurmVersion slurm : {SlurmVersion{22, 5}, SlurmVersion{23, 2}})
    CHECK(findings(script, slurm).starts_with("12 E cpus"));
  for (const SlurmVersion slurm : {SlurmVersion{21, 8}, SlurmVersion{23, 11}, SlurmVersion{24, 11}})
    CHECK(findings(script, slurm) == "");
  CHECK(findings(script, std::nullopt).starts_with("12 W cpus: srun of Slurm 22.05 to 23.02"));
}

TEST_CASE("the version of Slurm as srun says it", "[lint]") {
  CHECK(read_slurm_version("slurm 24.11.5") == SlurmVersion{24, 11});
  CHECK(read_slurm_version("slurm-wlm 22.05.8-1") == SlurmVersion{22, 5});
  for (const char* other : {"", "slurm", "slurm ", "slurm 24", "slurm x.y", "srun: error: 1.2"})
    CHECK(read_slurm_version(other) == std::nullopt);
}

TEST_CASE("lint: how ranks are started", "[lint]") {
  only(with(" -c \"$SLURM_CPUS_PER_TASK\"", ""), "12 E cpus", "becomes 1");
  CHECK(findings(with({{" -c \"$SLURM_CPUS_PER_TASK\"", ""},
                       {"trap", "export SRUN_CPUS_PER_TASK=8\ntrap"}})) == "");
  CHECK(findings(with({{" -c \"$SLURM_CPUS_PER_TASK\"", ""}, {"task=8", "task=1"}})) == "");
  only(with("#SBATCH --cpus-per-task=8\n", ""), "0 W cpus", "one core");
  only(with(" --mpi=pmix", ""), "12 W mpi", "--mpi=pmix");
  CHECK(findings(with("pmix", "none")) == "");  // NCCL needs no MPI
  only(with({{"#SBATCH --gpus-per-node=4\n", ""}, {"pmix", "none"}}), "11 W mpi", "over TCP");
  only(with(" --kill-on-bad-exit=1", ""), "12 W kill-on-bad-exit", "--kill-on-bad-exit=1");
  only(with(" -c", " --ntaskss=8 -c"), "12 E option", "srun has no option --ntaskss; --ntasks?");
  only(with(" -c", " -n 9 -c"), "12 E tasks", "9 ranks in a job of 8");
  only(with(" -c", " -n 7 -c"), "12 W tasks", "idle");
  CHECK(findings(with(" -c", " -n $ranks -c")) == "");
  only(with(srun, "mpirun "), "12 W binding", "--bind-to none");
  only(with(srun, "mpirun --bind-to none -np 9 "), "12 E tasks", "mpirun rejects");
  CHECK(findings(with(srun, "mpirun --bind-to none -np 8 ")) == "");
  CHECK(findings(with(srun, "srun true\nmpirun --bind-to none -np 8 ")) == "");
  only(with(srun, ""), "12 E alone", "srun --mpi=pmix build/lockstep train");
  only(with(srun, "torchrun "), "12 E launcher", "torchrun tells");
  only(with(srun, "python3 -m torch.distributed.run "), "12 E launcher", "torch.distributed.run");
}

TEST_CASE("lint: what the script exports, with the line that cures it", "[lint]") {
  only(with(trap, "export CUDA_LAUNCH_BLOCKING=1 X=/x\n" + trap), "11 W blocking-launches",
       ": unset CUDA_LAUNCH_BLOCKING");
  const auto exporting = [](const std::string& lines) {
    return findings(with(trap, lines + trap));
  };
  CHECK(exporting("export CUDA_LAUNCH_BLOCKING=1\nunset CUDA_LAUNCH_BLOCKING\n").empty());
  CHECK(exporting("export CUDA_LAUNCH_BLOCKING=$DEBUG\n").empty());
  const Change none{"#SBATCH --mem=0\n", "#SBATCH --mem=0\n#SBATCH --export=NONE\n"};
  only(with({none}), "7 W slurm-export-none", ": export SLURM_EXPORT_ENV=ALL");
  CHECK(findings(with({none, {trap, "export SLURM_EXPORT_ENV=ALL\n" + trap}})).empty());
}

TEST_CASE("lint: what the shell reads in another way than it looks", "[lint]") {
  only(with("train --out", "train \\ \n  --out"), "12 E blank", "remove the blank");
  CHECK(findings(with("train --out", "train \\\n  --out")) == "");
  CHECK(findings(with(trap, trap + "echo \"a \\ \n\"\n")) == "");
  std::string dos = with("", "");
  for (std::size_t at = 0; (at = dos.find('\n', at)) != dos.npos; at += 2) dos.insert(at, "\r");
  only(dos, "1 E line-ends", "DOS");
  const std::string sources = trap + "source env.sh\n";
  CHECK(findings(with(trap, sources)) == "");
  only(with({{"bash", "sh"}, {trap, sources}}), "12 W source", "#!/bin/bash");
}

TEST_CASE("lint: signals, requeueing and resuming", "[lint]") {
  only(with("#SBATCH --signal=B:USR1@120\n", ""), "0 W signal", "no --signal");
  only(with("B:USR1@120", "B:USR1@soon"), "8 E signal", "not \"B:USR1@soon\"");
  only(with(trap, ""), "8 E signal", "no trap for USR1");
  only(with("B:USR1", "USR1"), "8 E signal", "without B:");
  only(with("12:00:00", "2"), "8 E signal", "has not started");
  only(with(ending, "\n"), "12 E signal", "only when this has ended");
  CHECK(findings(with({{srun, "start() {\n" + srun}, {ending, "\n}\nstart &\nwait $!\n"}})) == "");
  only(with({{trap, ""}, {"B:USR1", "USR2"}}), "8 E signal", "kills");
  CHECK(findings(with({{trap, ""}, {"B:USR1", "USR1"}})) == "");
  only(with("#SBATCH --open-mode=append\n", ""), "9 W open-mode", "--open-mode=append");
  only(with("#SBATCH --requeue\n", "#SBATCH --no-requeue\n#SBATCH --requeue\n"), "9 E requeue",
       "--no-requeue");
  only(with("#SBATCH --requeue\n", "").append("scontrol requeue $SLURM_JOB_ID\n"), "0 W requeue",
       "--requeue");
  only(with(" --resume auto", ""), "12 E resume", "--resume auto");
  only(with("runs/$SLURM_JOB_ID", "runs/{n}"), "12 E resume", "another folder");
  only(with(" --out runs/$SLURM_JOB_ID", ""), "12 E resume", "--out");
  CHECK(findings(with(" --out runs/$SLURM_JOB_ID --resume auto", " \"$@\"")) == "");
  only(with(" --resume", " --batch-per-rank 8 --resume"), "12 W resume", "--batch");
}

TEST_CASE("lint: a job that failed is not to be COMPLETED", "[lint]") {
  const Change to_ranks{"B:USR1", "USR1"};  // srun runs in the foreground
  const auto ends = [&](const std::string& how, const std::string& first = "") {
    return with({to_ranks, {trap, first}, {ending, how}});
  };
  only(ends(" | tee log\n"), "11 E status", "pipefail");
  CHECK(findings(ends(" | tee log\n", "set -o pipefail\n")) == "");
  only(with(ending, " &\nstep=$!\n"), "12 E status", "does not wait");
  only(with(ending, " &\nwait\n"), "12 E status", "wait alone returns 0");
  only(ends("\necho done\n"), "11 W status", "keep $?");
  CHECK(findings(ends("\n")) == "");
  CHECK(findings(ends("\nstatus=$?\necho done\nexit $status\n")) == "");
  CHECK(findings(ends("\necho done\n", "set -e\n")) == "");
  CHECK(findings(ends(" || exit 1\necho done\n")) == "");
}

TEST_CASE("lint: arrays", "[lint]") {
  const std::string array = "#SBATCH --array=0-3\n#SBATCH --output=";
  only(with("#SBATCH --mem", array + "x.out\n#SBATCH --mem"), "7 E array", "%a");
  CHECK(findings(with("#SBATCH --mem", array + "x-%A_%a.out\n#SBATCH --mem")) == "");
  only(with({{"#SBATCH --mem", "#SBATCH --array=0-3\n#SBATCH --mem"},
             {"runs/$SLURM_JOB_ID", "runs/a"}}),
       "13 E array", "SLURM_ARRAY_TASK_ID");
}

TEST_CASE("lint: what a task of an array does to its number is done to all tasks", "[lint]") {
  const auto ending_by = [](const std::string& command) {
    return std::vector<Change>{{"exit $?", "(($? == 3)) && " + command + "\nexit $?"},
                               {"#SBATCH --mem", "#SBATCH --array=0-3\n#SBATCH --mem"}};
  };
  for (const char* command : {"scontrol requeue $SLURM_JOB_ID", "scancel \"${SLURM_JOB_ID}\"",
                              "scontrol hold \"$SLURM_JOB_ID\""})
    only(with(ending_by(command)), "16 E array", "${SLURM_ARRAY_JOB_ID}_$SLURM_ARRAY_TASK_ID");
  for (const char* command :
       {"scontrol requeue ${SLURM_ARRAY_JOB_ID}_$SLURM_ARRAY_TASK_ID",
        "scontrol show job $SLURM_JOB_ID", "scontrol requeue $SLURM_ARRAY_JOB_ID"})
    CHECK(findings(with(ending_by(command))) == "");
}

TEST_CASE("lint judges lockstep's own options and models", "[lint]") {
  CHECK(findings(with("--resume auto", "--resume auto --model resnet20 --model=$MODEL")) == "");
  only(with("--resume auto", "--resume auto --epoch 90"), "12 E lockstep", "no --epoch");
  only(with("--resume auto", "--resume auto --model resnet51"), "12 E lockstep", "no resnet51");
}

TEST_CASE("lint knows a variable that is set once, in any case", "[lint]") {
  const Change uses{" --resume", " --model=$MODEL --resume"};
  const auto set = [&](const std::string& lines) { return with({{trap, trap + lines}, uses}); };
  only(set("export MODEL=resnet51\n"), "13 E lockstep", "no --model=resnet51");
  CHECK(findings(set("MODEL=resnet51\nMODEL=resnet50\n")) == "");
  CHECK(findings(set("if [ -z \"$MODEL\" ]; then\n  MODEL=resnet51\nfi\n")) == "");
  CHECK(findings(set("[ -n \"$MODEL\" ] || MODEL=resnet51\n")) == "");
  CHECK(findings(set("MODEL=resnet51 ./look\n")) == "");
  CHECK(findings(set("choose() {\n  MODEL=resnet51\n}\n")) == "");
  only(with({{trap, trap + "options=(--model resnet51)\n"},
             {" --resume", " \"${options[@]}\" --resume"}}),
       "13 E lockstep", "no resnet51");
}

TEST_CASE("lint finds starts in functions and through variables", "[lint]") {
  const std::string launch = "LAUNCH=\"" + srun.substr(0, srun.find(" -c")) + " -c8\"\n";
  CHECK(findings(with({{srun, launch + "$LAUNCH "}})) == "");
  only(with({{srun + train, launch + "$LAUNCH " + train + " --epoch 3"}}), "13 E lockstep",
       "epoch");
  const std::string function = "start() {\n  " + srun + "\"$@\"\n}\n";
  CHECK(findings(with({{srun, function + "start "}})) == "");
  only(with({{srun + train, function + "start " + train + " --epoch 3"}}), "15 E lockstep",
       "epoch");
  only(with({{srun + train, "launch=(srun\n  --mpi=pmix -c8)\n\"${launch[@]}\" " + train}}),
       "14 W kill-on-bad-exit", "");
  only(with({{srun + train, "./run.sh"}, {trap, ""}, {"#SBATCH --signal=B:USR1@120\n", ""}}),
       "0 W start", "no start of lockstep");
}

TEST_CASE("lint finds what a loop, an array and a job without end do", "[lint]") {
  const std::string one = srun + "build/lockstep train --resume auto --out runs/one";
  only(
      with({{srun + train + ending, "for lr in 1 2; do\n" + one + " &\ndone\nwait $!\nexit $?\n"}}),
      "13 E loop", "in this folder");
  only(with({{srun + train + ending, "for lr in 1 2; do\n" + srun + train + " &\ndone\nexit 0\n"}}),
       "13 E status", "does not wait");
  only(with({{"exit $?", "scontrol requeue $SLURM_JOB_ID"}}), "15 E requeue", "for ever");
  only(with({{"\nexit $?", " || scontrol requeue $SLURM_JOB_ID"}}), "14 E requeue", "1 or 2");
  CHECK(findings(with({{"exit $?", "(($? == 3)) && scontrol requeue $SLURM_JOB_ID\nexit $?"}})) ==
        "");
  const std::string values = "values=(a b\n c)\necho ${values[$SLURM_ARRAY_TASK_ID]}\n";
  const std::string array = "#SBATCH --requeue\n#SBATCH --array=";
  CHECK(findings(with({{"#SBATCH --requeue\n", array + "0-2%1\n"}, {srun, values + srun}})) == "");
  only(with({{"#SBATCH --requeue\n", array + "0-3%1\n"}, {srun, values + srun}}), "10 E array",
       "has 3 values");
}

TEST_CASE("lint finds folders that are not there, hidden GPUs, threads and TOML", "[lint]") {
  CHECK(findings(with({{srun, "cd there\ncd $HOME/x\ncd absent || exit\n" + srun}})) == "");
  only(with({{srun, "cd absent\n" + srun}}), "12 E folder", "cd absent || exit");
  only(with({{"#SBATCH --requeue\n", "#SBATCH --requeue\n#SBATCH --output=logs/%j.out\n"}}),
       "10 E folder", "no folder logs");
  only(with({{srun, "export CUDA_VISIBLE_DEVICES=0\n" + srun}}), "12 E gpus", "4 ranks");
  CHECK(findings(with({{srun, "export CUDA_VISIBLE_DEVICES=0,1,2,3\n" + srun}})) == "");
  only(with({{"-c \"$SLURM_CPUS_PER_TASK\"", "-c 8"},
             {"--resume auto", "--resume auto --threads 9"}}),
       "12 E threads", "--threads 9");
  const Change config{" --resume", " --config $run/x.toml --resume"};
  const std::string bad_toml = "cat >x.toml <<END\ngood = 1\nbad = 2\nEND\n" + srun;
  only(with({{srun, bad_toml}, config}), "13 E lockstep", "bad key");
  CHECK(findings(with({{srun, "cat >x.toml <<END\nbad = $x\nEND\n" + srun}, config})) == "");
  CHECK(findings(with(
            {{srun, "cat >x.toml <<END\nlist = [1,\n$x]\nbad = 1\nEND\n" + srun}, config})) == "");
  CHECK(findings(with({{srun, bad_toml}})) == "");  // another program's
}

TEST_CASE("lint: what other commands set or make is not at fault", "[lint]") {
  CHECK(findings(with({{srun, "CUDA_VISIBLE_DEVICES=0 python3 look.py\n" + srun}})) == "");
  only(with({{srun, "CUDA_VISIBLE_DEVICES=0 " + srun}}), "12 E gpus", "4 ranks");
  for (const std::string maker :
       {"mkdir -p work/deep", "tar xf all.tar", "cp -r $HOME/work .", "python3 -m venv work"})
    CHECK(findings(with({{srun, maker + "\ncd work\n" + srun}})) == "");
  only(with({{srun, "cd work\nmkdir work\n" + srun}}), "12 E folder", "work");
  const std::string grown = "values=(a)\nvalues+=(b c)\necho ${values[$SLURM_ARRAY_TASK_ID]}\n";
  CHECK(findings(with({{"#SBATCH --requeue\n", "#SBATCH --requeue\n#SBATCH --array=0-2%1\n"},
                       {srun, grown + srun}})) == "");
}

}  // namespace
}  // namespace lockstep::cluster
