#!/bin/bash
# jobs/kubernetes: its objects are as the schemas of JobSet, Trainer and Kubernetes say, and their
# commands as lockstep reads them. The schemas are in ../shared/crds, which not every checkout has.
# ci
# waits
repo=$(realpath "$(dirname "${BASH_SOURCE[0]}")/../../..")
source "$repo/tests/support/e2e.bash"
manifests() { run python3 "$repo/tests/support/manifests.py" "$@"; }
crds=$(dirname "$repo")/shared/crds
[[ -d $crds ]] || crds=$(dirname "$(dirname "$repo")")/shared/crds
if ! python3 -c 'import yaml' 2>/dev/null; then
  echo 'SKIP manifests: python3-yaml is not installed'
  exit 0
fi

{
  printf '%s\n' '#!/bin/bash' '#SBATCH --nodes=1 --ntasks=4 --time=60 --mem=0'
  python3 "$repo/tests/support/manifests.py" --commands "$repo"/jobs/kubernetes/*.yaml |
    sed 's/^/srun --mpi=pmix --kill-on-bad-exit=1 /; s#/work/#$WORK/#g; s#/secret/#$SECRET/#g'
} >job.sbatch
run "$LOCKSTEP" lint job.sbatch
(($(grep -c '^srun' job.sbatch) == 4)) && ! says ': error: '
verdict $? 'lockstep takes the command lines of all manifests'
sed -i 's/--resume/--resum/' job.sbatch
run "$LOCKSTEP" lint job.sbatch
says ': error: .*resum'
verdict $? 'a command line with a wrong option would be seen'

if [[ ! -d $crds ]] || ! python3 -c 'import jsonschema' 2>/dev/null; then
  echo 'SKIP schemas of manifests: there is no ../shared/crds, or no python3-jsonschema'
  exit 0
fi
manifests --mutations 40 "$crds" "$repo"/jobs/kubernetes/*.yaml
refused=$(sed -n 's/^refused \([0-9]*\) of 40$/\1/p' <<<"$said")
((status == 0)) && says '^6 objects are as their schemas say$' && ((refused >= 38))
verdict $? "the schemas hold, and refuse $refused of 40 changes of keys and types"
