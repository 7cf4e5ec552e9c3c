#!/bin/bash
# What bench comm finds of a network is what limits it, and a simulation from its figures gives the
# step of a rehearsal on the same ranks.
# waits for Slurm and for slow links
source "$(dirname "$0")/../support/cluster.bash"
most=2
! nightly || most=8
cluster $most --cpus 8 --mem 8000
names=("${!node@}")

# links OPTION...: limits what enters and what leaves each node.
links() { for name in "${names[@]}"; do mini shape "${!name}" "$@"; done; }

# on_ranks NODES RANKS COMMAND...: this many ranks on each of the first nodes.
on_ranks() { run srun -N "$1" --ntasks-per-node="$2" --mpi=pmix "$LOCKSTEP" "${@:3}"; }

# regime VERB FIGURE: of the last lines through the points of comm.json.
regime() {
  python3 -c "import json, sys
print(json.load(open('comm.json'))['verbs']['$1']['regimes'][-1]['$2'])"
}

# TCP sends 1448 bytes of data in each 1514 on the wire.
finds_the_rate() {
  on_ranks 2 1 bench comm --verb send --from-kb 128 --to-mb 4 --longest-s 0.3 --json comm.json
  ((status == 0)) && awk -v found="$(regime send bytes_per_s)" -v set="$((12500000 * 1448 / 1514))" \
    'BEGIN { exit !(found > 0.9 * set && found < 1.1 * set) }'
}
links rate=100mbit
thrice finds_the_rate
verdict $? 'the bandwidth that bench comm finds is that of the links, within 10 %'

# Each message passes the limits of two nodes.
finds_the_delay() {
  local without
  links
  on_ranks 2 1 bench comm --verb send --from-kb 1 --to-mb 0.016 --json comm.json
  ((status == 0)) || return
  without=$(regime send alpha_s)
  links delay=5ms
  on_ranks 2 1 bench comm --verb send --from-kb 1 --to-mb 0.016 --json comm.json
  ((status == 0)) && awk -v with="$(regime send alpha_s)" -v without="$without" \
    'BEGIN { delay = with - without; exit !(delay > 0.0075 && delay < 0.0125) }'
}
thrice finds_the_delay
verdict $? 'the latency that bench comm finds grows by the delay of the links, within 25 %'

cat >machine.toml <<'END'
name = "here"
devices-per-node = 1
[device]
row-ms = 10
step-ms = 50
model = "resnet20"
image = 32
precision = "fp32"
[network]
sum-by = "direct"
node-gb-per-s = 0.0125
inside-gb-per-s = 1
END

# simulates NODES RANKS: measures the sums, then a rehearsal, and compares it with the simulation.
simulates() {
  local world=$(($1 * $2)) comm=()
  if ((world > 1)); then
    on_ranks "$1" "$2" bench comm --verb all-reduce --all-reduce flat --from-kb 64 --to-mb 4 \
      --json comm.json
    ((status == 0)) || return
    comm=(--comm comm.json)
  fi
  on_ranks "$1" "$2" bench train --backend clock --clock.row-ms 10 --clock.step-ms 50 \
    --batch $((8 * world)) --bucket-mb 0.25 --steps 15 --json measured.json
  ((status == 0)) || return
  run "$LOCKSTEP" simulate --machine machine.toml "${comm[@]}" --ranks $world --batch-per-rank 8 \
    --bucket-mb 0.25 --json simulated.json
  ((status == 0)) && python3 - <<'END'
import json
measured, simulated = json.load(open("measured.json")), json.load(open("simulated.json"))["points"][-1]
step, exposed = measured["step_ms"], measured["exposed_comm_ms"]
print(f"    {measured['ranks']} ranks: step {step:.1f} ms, simulated {simulated['step_ms']:.1f}; "
      f"exposed {exposed:.1f} ms, simulated {simulated['exposed_comm_ms']:.1f}")
assert abs(simulated["step_ms"] / step - 1) <= 0.10
assert abs(simulated["exposed_comm_ms"] - exposed) <= max(1, 0.15 * exposed)
END
}
# A busy machine polls late, more so in bench comm's loop than in a rehearsal that sleeps.
worlds=()
! nightly || worlds=('1 1' '2 1' '4 1' '4 2' '8 2' '8 4')
links rate=100mbit
for world in "${worlds[@]}"; do
  read -r on each <<<"$world"
  thrice simulates "$on" "$each"
  verdict $? "on $((on * each)) ranks a simulation gives the step of a rehearsal within 10 %, and its exposed part"
done
