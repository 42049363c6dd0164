#!/usr/bin/env bash
#SBATCH --job-name={{name}}
{{#groups}}{{#later}}#SBATCH hetjob
{{/later}}# group {{group}}: say here what its nodes are (--partition, --gres, --cpus-per-task)
#SBATCH --nodes={{hosts}} --ntasks-per-node=1
{{/groups}}set -euo pipefail
# A secret of this job, in a folder that all nodes see.
token=$PWD/.millrace-token-$SLURM_JOB_ID
(umask 077 && openssl rand -hex 32 >"$token")
trap 'rm -f "$token"' EXIT
run() {
  millrace run{{kept}} --group-token-file "$token" --group-port {{port}}{{#groups}} \
  --group {{group}}={{command}}{{/groups}} "$@"
}
export -f run
export token
srun --kill-on-bad-exit=0{{#groups}}{{#later}} :{{/later}} --het-group={{index}} bash -c run{{/groups}}
