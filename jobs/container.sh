#!/bin/sh
# What makes lockstep's container out of a bare Debian 12 (or Ubuntu 24.04 with CUDA): run by jobs/Containerfile and by
# jobs/lockstep.def, with the source beside it. CUDA=0 builds for CPUs only.
set -eu
cd "$(dirname "$0")/.."

jobs/setup.sh build
make PREFIX=/usr/local install
make clean

# The ranks' launcher: under Kubernetes mpirun reaches the other pods by ssh.
export DEBIAN_FRONTEND=noninteractive
apt-get -qq install -y --no-install-recommends openssh-server openssh-client >/dev/null
mkdir -p /run/sshd
# Pods come and go with new keys, and the operator's are mounted with another owner.
printf 'Host *\n  StrictHostKeyChecking no\n  UserKnownHostsFile /dev/null\n' >/etc/ssh/ssh_config.d/pods.conf
printf 'StrictModes no\n' >/etc/ssh/sshd_config.d/pods.conf
rm -rf /var/lib/apt/lists/*
