#!/bin/bash
# Jobs that a user ends: a cancelled job is over, a requeued one starts again, and both leave a
# checkpoint.
# seconds: 300
# ci
# waits for Slurm, which lets a requeued job wait
source "$(dirname "$0")/../../support/jobs.bash"
job_cluster 1

submit cancelled "${small[@]}" --epochs 100000
cancelled=$id
submit requeued "${small[@]}" --epochs 150
requeued=$id
until_it 1200 saw cancelled 'first step done'
scancel "$cancelled"
until_it 1200 has_checkpoint requeued
scontrol requeue "$requeued"

ends "$cancelled" cancelled 'scancel' 'scancel' CANCELLED '*' 0 && says 'stopped after step'
verdict $? 'a job that is cancelled leaves a checkpoint and is CANCELLED, not started again'

ends "$requeued" requeued 'requeue' 'scontrol requeue' COMPLETED 0:0 1 &&
  says 'stopped after step' &&
  says 'resuming from requeued/checkpoints' && steps_are requeued 1500
verdict $? 'a job that is requeued stops with a checkpoint and continues from it: no step is missing or done twice'
