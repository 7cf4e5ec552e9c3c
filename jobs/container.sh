#!/bin/sh
# Turns a bare Debian 12 (or Ubuntu 24.04 with CUDA) into lockstep's container. jobs/Containerfile
# and jobs/lockstep.def run it after copying the source. CUDA=0 builds for CPUs only.
set -eu
cd "$(dirname "$0")/.."

jobs/setup.sh build
make PREFIX=/usr/local install
make clean

# Under Kubernetes, mpirun reaches the other pods by ssh.
export DEBIAN_FRONTEND=noninteractive
apt-get -qq install -y --no-install-recommends openssh-server openssh-client >/dev/null
mkdir -p /run/sshd
# Pods start with new host keys, and the operator mounts its own keys with another owner.
printf 'Host *\n  StrictHostKeyChecking no\n  UserKnownHostsFile /dev/null\n' \
  >/etc/ssh/ssh_config.d/pods.conf
printf 'StrictModes no\n' >/etc/ssh/sshd_config.d/pods.conf
rm -rf /var/lib/apt/lists/*
