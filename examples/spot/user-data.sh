#!/bin/bash
# The first boot of a spot instance: trains until the work is done, or until EC2 takes the machine back. The fleet then starts
# another one, which goes on with the next sample. The image has millrace, the AWS command line, and the program.
set -euo pipefail

BUCKET=my-bucket # also in iam-policy.json
RUN=run-7
COMMAND=(torchrun --standalone --nproc-per-node gpu /opt/train/train.py --data "s3://$BUCKET/train")
WORK=${WORK:-/var/lib/train}

mkdir -p "$WORK/logs"
exec >>"$WORK/logs/user-data.log" 2>&1
imds=${AWS_EC2_METADATA_SERVICE_ENDPOINT:-http://169.254.169.254}
token=$(curl -sSf --max-time 5 --retry 5 -X PUT -H 'X-aws-ec2-metadata-token-ttl-seconds: 300' "$imds/latest/api/token")
ask() { curl -sSf --max-time 5 --retry 5 -H "X-aws-ec2-metadata-token: $token" "$imds/latest/meta-data/$1"; }
INSTANCE=$(ask instance-id)
AWS_REGION=${AWS_REGION:-$(ask placement/region)}
export BUCKET RUN WORK INSTANCE AWS_REGION

# Once the job has ended here: the logs are kept, and unless it has to go on elsewhere, the fleet and this instance end.
cat >"$WORK/on-end.sh" <<'END'
millrace sync "$WORK/logs" "s3://$BUCKET/$RUN/logs/$INSTANCE"
if [ "$MILLRACE_OUTCOME" != elsewhere ]; then
  fleet=$(aws ec2 describe-spot-instance-requests --filters "Name=instance-id,Values=$INSTANCE" \
    --query "SpotInstanceRequests[0].Tags[?Key=='aws:ec2spot:fleet-request-id'].Value | [0]" --output text)
  aws ec2 cancel-spot-fleet-requests --spot-fleet-request-ids "$fleet" --terminate-instances
fi
END

exec millrace run --retries 20 --checkpoint "s3://$BUCKET/$RUN" --hang-after 30m \
  --journal "$WORK/logs/run.jsonl" --log-dir "$WORK/logs" --on-end "sh '$WORK/on-end.sh'" -- "${COMMAND[@]}"
