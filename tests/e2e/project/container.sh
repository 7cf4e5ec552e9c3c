#!/bin/bash
# The recipes in jobs/ for containers, Kubernetes, Spack and EasyBuild. Their engines do not run
# here: the recipes are parsed and compared with a schema, with jobs/setup.sh and with lockstep's
# command line. Each check is also shown to find an error.
# ci
# waits
repo=$(realpath "$(dirname "${BASH_SOURCE[0]}")/../../..")
source "$repo/tests/support/e2e.bash"
recipes() { run python3 "$repo/tests/support/recipes.py" "$@"; }
python3 -c 'import yaml' 2>/dev/null ||
  { echo 'SKIP recipes: python3-yaml is not installed'; exit 0; }

easybuild=easybuild/lockstep-0.1-gompi-2024a.eb
for recipe in mpijob.yaml spack.yaml lockstep.def Containerfile $easybuild; do
  recipes "$repo" "$repo/jobs/$recipe"
  verdict $status "jobs/$recipe keeps its schema and fits the rest"
done

# refuses RECIPE WORDS SED-SCRIPT: the recipe, changed by the sed script, gives an error with these
# words.
refuses() {
  sed "$3" "$repo/jobs/$1" >"$1"
  ! cmp -s "$1" "$repo/jobs/$1" && recipes "$repo" "$1" && false
  ((status == 1)) && says "$2" && return
  said="$1, $3: $said"
  return 1
}
refuses mpijob.yaml 'spec.slotsPerWorkers: no such key' 's/slotsPerWorker:/slotsPerWorkers:/' &&
  refuses mpijob.yaml 'spec.slotsPerWorker: is .* not int' \
    's/slotsPerWorker: 4/slotsPerWorker: four/' &&
  refuses mpijob.yaml 'kubeflow.org/v2beta1' 's/v2beta1/v1/' &&
  refuses mpijob.yaml 'spec.mpiReplicaSpecs.Worker: lacks template' \
    '/^    Worker:/,$s/template:/templet:/' &&
  refuses mpijob.yaml '8 ranks, but 3 workers x 4 slots' 's/replicas: 2/replicas: 3/' &&
  refuses mpijob.yaml 'gpu' 's/gpu: 4/gpu: 2/' &&
  refuses mpijob.yaml 'mounts no volume "worc"' '0,/{name: work,/s//{name: worc,/' &&
  refuses mpijob.yaml 'lockstep train knows no --resum' 's/- --resume/- --resum/'
verdict $? 'a manifest with a wrong key, type, number or option is an error'
refuses spack.yaml 'onednn' '/onednn/d' &&
  refuses spack.yaml 'spack.spec: no such key' 's/  specs:/  spec:/' &&
  refuses spack.yaml 'fmt2' 's/fmt@9:/fmt2@9:/' &&
  refuses spack.yaml 'spack.view' 's/view: true/view: [1]/'
verdict $? 'a Spack environment that lacks a package of jobs/setup.sh, or has another, is an error'
mkdir easybuild
refuses $easybuild unmatched 's/^dependencies = .$/dependencies = )/' &&
  refuses $easybuild 'lacks what jobs/setup.sh wants: fmt' "/'fmt'/d" &&
  refuses $easybuild 'does not want: fmtt' "s/'fmt'/'fmtt'/" &&
  refuses $easybuild 'oneDNN 3.9: there is' "s/'oneDNN', '3.7.2'/'oneDNN', '3.9'/" &&
  refuses $easybuild "is 0.2, not the program's" "s/^version = '0.1'/version = '0.2'/"
verdict $? "so is an EasyBuild recipe that does, or that has another version than the program"
refuses lockstep.def '%pots' 's/%post/%pots/' &&
  refuses lockstep.def 'Bootstrap' 's/Bootstrap: docker/Bootstrap: dokker/' &&
  refuses lockstep.def 'BASIS has no default' 's/{{ BASE }}/{{ BASIS }}/' &&
  refuses lockstep.def 'contaner.sh' 's/container.sh/contaner.sh/' &&
  refuses lockstep.def 'lockstep pack knows no --rows' 's/--train-rows/--rows/' &&
  refuses lockstep.def '%runscript' 's/"\$@"/"$@/' &&
  refuses Containerfile 'FORM' 's/^FROM/FORM/' &&
  refuses Containerfile 'contaner.sh' 's/container.sh/contaner.sh/' &&
  refuses Containerfile 'BASIS' 's/{BASE}/{BASIS}/'
verdict $? 'a container recipe with a wrong section, name, path or option is an error'

run sh -n "$repo/jobs/container.sh"
verdict $status 'jobs/container.sh is a shell script'
