#!/bin/bash
# Printed by `millrace run --print user-data`. An instance runs it when it boots for the first time: the job runs until the work is
# done, or until EC2 takes the instance back; the next one then goes on. The image has millrace, the AWS command line, and the program.
set -euo pipefail

CHECKPOINT={{checkpoint}}
WORK=${WORK:-/var/lib/millrace-run}
COMMAND=({{command}})

(umask 077; mkdir -p "$WORK/logs"; : >>"$WORK/logs/user-data.log") # it holds the output of the job
exec >>"$WORK/logs/user-data.log" 2>&1
imds=${AWS_EC2_METADATA_SERVICE_ENDPOINT:-http://169.254.169.254}
token=$(curl -sSf --max-time 5 --retry 5 -X PUT -H 'X-aws-ec2-metadata-token-ttl-seconds: 300' "$imds/latest/api/token")
ask() { curl -sSf --max-time 5 --retry 5 -H "X-aws-ec2-metadata-token: $token" "$imds/latest/meta-data/$1"; }
INSTANCE=$(ask instance-id)
AWS_REGION=${AWS_REGION:-$(ask placement/region)}
export CHECKPOINT WORK INSTANCE AWS_REGION

# Once the job has ended here: the logs are kept, and unless it has to go on elsewhere, the fleet and this instance end.
cat >"$WORK/on-end.sh" <<'END_OF_HOOK'
{{#on_end}}{{hook}}
{{/on_end}}millrace sync "$WORK/logs" "$CHECKPOINT/logs/$INSTANCE"
if [ "$MILLRACE_OUTCOME" != elsewhere ]; then
  fleet=$(aws ec2 describe-spot-instance-requests --filters "Name=instance-id,Values=$INSTANCE" \
    --query "SpotInstanceRequests[0].Tags[?Key=='aws:ec2spot:fleet-request-id'].Value | [0]" --output text)
  aws ec2 cancel-spot-fleet-requests --spot-fleet-request-ids "$fleet" --terminate-instances
fi
END_OF_HOOK

exec millrace run --checkpoint "$CHECKPOINT"{{kept}} \
  --journal {{journal}} --log-dir {{logs}} --on-end "sh '$WORK/on-end.sh'" -- "${COMMAND[@]}"
