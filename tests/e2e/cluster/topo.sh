#!/bin/bash
# `lockstep topo`: the plan for other machines, and the facts about this one.
# waits
machines=$PWD/tests/fixtures/topologies
source "$(dirname "$0")/../../support/e2e.bash"

plan() { run "$LOCKSTEP" topo --hwloc "$machines/$1.xml" "${@:2}"; }

plan p4d --ranks-per-node 8
((status == 0)) && (($(grep -c ' plan$' <<<"$said") == 8)) &&
  says '^3 +p4d.xml +3 +0 +18-23,66-71 \(6 threads\) .* 0000:20:1d.0 +rdmap32s27 +plan' &&
  says '^4 .* 1 +24-29,72-77 .* rdmap144s27 ' && ! says '^rank [0-9]'
verdict $? 'eight ranks on a node like a p4d.24xlarge each get a GPU, cores and a network card'

plan p4d --ranks-per-node 8 --hide-cpus 0-23,48-71
((status == 0)) && says '^rank 0: no CPU near GPU 0000:10:1c.0 \(0-23,48-71\) is allowed \(24-47,72-95\)'
verdict $? 'a cgroup without a core near half of the GPUs is planned for, and reported'

plan p4d --ranks-per-node 4
((status == 0)) && says '^rank 0,1,2,3: 4 ranks but 8 GPUs: 4 stay idle'
verdict $? 'GPUs that stay idle are reported'

plan grace-hopper
((status == 0)) && says 'NUMA node 1: CPUs 6-11' && ! says 'NUMA node (2|10):' &&
  says '^1 .* 0019:01:00.0 +mlx5_1 \(ib1\)'
verdict $? 'a NUMA node of GPU memory gets no rank'

plan smt --ranks-per-node 2 --json
((status == 0)) && says '"compute": \[' && says '"network": ""' && says '"ok": null'
verdict $? '--json gives the plan as JSON'

# refused NAME PATTERN OPTION...
refused() {
  run "$LOCKSTEP" topo "${@:3}"
  ((status == 2)) && says "$2" && (($(grep -c 'error' <<<"$said") <= 1))
  verdict $? "$1"
}
sed 's/type="PU"/type="Moon"/' "$machines/smt.xml" >broken.xml
head -c 900 "$machines/smt.xml" >half.xml
sed 's/ allowed_cpuset="0x[0-9a-f]*"/ allowed_cpuset="0x0"/' "$machines/smt.xml" >none.xml
refused 'half a file is an error that names it' 'half.xml' --hwloc half.xml
refused 'a file with unknown objects is an error that names it' 'broken.xml' --hwloc broken.xml
refused 'a missing file is an error that names it' 'no.xml: no such file' --hwloc no.xml
refused 'a machine without a usable CPU is an error' 'none.xml' --hwloc none.xml
refused 'junk in place of a list of CPUs is an error that gives an example' \
  "'7-x' is not a list of CPUs such as" \
  --hwloc "$machines/smt.xml" --hide-cpus 7-x
refused 'CPUs that do not exist cannot be hidden' 'CPUs 8-9 cannot be hidden: the machine has 0-7' \
  --hwloc "$machines/smt.xml" --hide-cpus 8-9
refused 'not all CPUs can be hidden' 'leaves none' --hwloc "$machines/smt.xml" --hide-cpus 0-7
refused 'hiding CPUs of running ranks is an error' 'is for a plan' --hide-cpus 0
for ranks in 0 -1 x 100000; do
  refused "$ranks as the number of ranks is an error" 'ranks-per-node' --hwloc "$machines/smt.xml" \
    --ranks-per-node "$ranks"
done

run ranks 2 "$LOCKSTEP" topo
((status == 0)) && (($(grep -c ' PASS$' <<<"$said") == 2)) && says ' memory .* binding$' &&
  (($(grep -Ec '^[01] .* node [0-9]+ .*PASS' <<<"$said") == 2))
verdict $? 'running ranks are bound, and the place of their memory is verified'

pack_small
# The 100 rows of a rank fill whole pages, wherever its ring begins.
run ranks 2 "$LOCKSTEP" train --data.train small/train --epochs 1 --batch 200 --threads 1 \
  --out run --require-binding
said+=$(cat run/binding.json)
((status == 0)) && grep -q '"loader": {' run/binding.json &&
  (($(grep -c '"pinned": {' run/binding.json) == 2)) && says '"threads": \{' &&
  says '"upload_bytes_per_s": (null|[0-9])' && (($(grep -c '"ok": true' run/binding.json) == 2))
verdict $? "the run's binding report says where its loader's pages and its threads are"

run ranks 2 "$LOCKSTEP" bench binding --data.size 8 --batch 8 --steps 4 --rounds 2 \
  --warm-up 1 --threads 1 --anyway --json binding.json
((status == 0)) && says '^bound +[0-9.]+ steps/s' && says '^unbound +[0-9.]+ steps/s' &&
  says 'bound is [0-9.]+ times as fast' && grep -q '"ratio": [0-9.]' binding.json
verdict $? 'bench binding runs the same steps bound and unbound'
if [[ $(ls -d /sys/devices/system/node/node[0-9]* 2>/dev/null | wc -l) -le 1 ]]; then
  run "$LOCKSTEP" bench binding
  ((status == 0)) && says 'one NUMA node' && ! says 'steps/s'
  verdict $? 'bench binding says that one NUMA node makes no difference'
fi
