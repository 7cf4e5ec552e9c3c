#!/bin/bash
# Networks of any element and task answer over HTTP, with the bits of `predict`.
# ci
# computes
source "$(dirname "$0")/../../support/e2e.bash"
source "$support/h5py.bash"
source "$support/clients/serving.bash"
h5py_or_skip "networks of any element and task answer over HTTP"
make_delivered
start server --batch 8
predict_delivered server.log
run "$python" "$support/clients/served_tasks.py" "$at"
verdict $status 'numbers of each element get the answers of predict, and others an error'
end server
run timeout 60 "$LOCKSTEP" serve wide --resize 16x16 --port 0
((status == 2)) && says '^error: wide: --resize and --jpeg .* takes 12 channels of uint16, and no'
verdict $? 'a preparation of files is an error for a network that takes none'
