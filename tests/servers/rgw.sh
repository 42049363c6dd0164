#!/usr/bin/env bash
# rgw.sh start DIR [--tls] | stop DIR
#
# A Ceph RADOS Gateway on 127.0.0.1: a real S3 server that Millrace's authors did not write. One monitor, one OSD that keeps
# objects in memory (nothing survives a stop, 4 GiB at most), no manager, no authentication inside the cluster.
# Prints export lines: AWS_ENDPOINT_URL, AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_REGION and, with --tls, RGW_TLS_URL,
# RGW_CA. DIR must have no spaces in its path.
set -euo pipefail
# shellcheck source=lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

usage() { sed -n '2,8s/^# \{0,1\}//p' "$0" >&2; exit 2; }
[[ $# -ge 2 ]] || usage
action=$1 state=$2/rgw
shift 2
tls=
while [[ $# -gt 0 ]]; do
  case $1 in
    --tls) tls=1; shift ;;
    *) usage ;;
  esac
done

access=millrace
secret=millrace-secret

write_config() { # FSID MON_PORT FRONTEND
  # Pools of one copy on one OSD are what Ceph warns of most; the settings that say "allow", "min size" and "warn" only make it
  # accept them. The gateway asks for an encrypted monitor connection by default, which does not exist without authentication:
  # hence crc. The monitor collects changes for a second before it publishes them; a start makes ten: hence the paxos
  # intervals. Four placement groups let a pool use four OSD shards. No admin sockets: their paths have a limit of 107 bytes,
  # which DIR may exceed.
  cat >"$state/ceph.conf" <<CONF
[global]
fsid = $1
mon host = v2:127.0.0.1:$2
public addr = 127.0.0.1
cluster addr = 127.0.0.1
ms bind ipv6 = false
ms bind msgr1 = false
auth cluster required = none
auth service required = none
auth client required = none
ms mon client mode = crc
keyring = $state/keyring
admin socket =
run dir = $state
crash dir = $state
log file =
log to stderr = true
mon cluster log file = $state/cluster.log
osd pool default size = 1
osd pool default min size = 1
osd pool default pg num = 4
osd pool default pgp num = 4
osd pool default pg autoscale mode = off
osd crush chooseleaf type = 0
mon allow pool size one = true
mon warn on pool no redundancy = false
[mon]
paxos propose interval = 0.01
paxos min wait = 0.01
[mon.a]
mon data = $state/mon
[osd.0]
osd data = $state/osd
osd objectstore = memstore
memstore device bytes = 4294967296
[client.rgw]
rgw frontends = $3
rgw enable usage log = false
CONF
  : >"$state/keyring"
}

start() {
  mkdir -p "$state"
  state=$(realpath "$state")
  stop_all
  install_missing radosgw ceph-mon ceph-osd
  rm -rf "$state"/{mon,osd}
  mkdir "$state"/{mon,osd}
  local mon_port port tls_port frontend fsid
  pick_ports mon_port port tls_port
  # tcp_nodelay: off by default, which costs 40 ms for each small answer on a connection that is reused.
  frontend="beast tcp_nodelay=1 endpoint=127.0.0.1:$port"
  if [[ $tls ]]; then
    make_certificates
    frontend+=" ssl_endpoint=127.0.0.1:$tls_port"
    frontend+=" ssl_certificate=$state/tls/server.pem ssl_private_key=$state/tls/server.key"
  fi
  fsid=$(</proc/sys/kernel/random/uuid)
  write_config "$fsid" "$mon_port" "$frontend"
  monmaptool --create --fsid "$fsid" --addv a "[v2:127.0.0.1:$mon_port]" "$state/monmap" --clobber >/dev/null
  ceph-mon --mkfs -i a -c "$state/ceph.conf" --monmap "$state/monmap" >"$state/mkfs.log" 2>&1
  launch mon ceph-mon -f -i a -c "$state/ceph.conf"
  ceph-osd --mkfs -i 0 -c "$state/ceph.conf" --osd-uuid "$fsid" --monmap "$state/monmap" >>"$state/mkfs.log" 2>&1
  wait_until 120 "the monitor" ceph -c "$state/ceph.conf" --connect-timeout 5 osd new "$fsid" 0
  launch osd ceph-osd -f -i 0 -c "$state/ceph.conf"
  launch rgw radosgw -f -n client.rgw -c "$state/ceph.conf"
  wait_until 150 "the gateway" port_open "$port"
  radosgw-admin -c "$state/ceph.conf" user create --uid=test --display-name=test \
    --access-key="$access" --secret-key="$secret" >"$state/user.log" 2>&1 ||
    { stop_all; die "cannot create the user; see $state/user.log"; }
  printf 'export %s\n' "AWS_ENDPOINT_URL=http://127.0.0.1:$port" "AWS_ACCESS_KEY_ID=$access" \
    "AWS_SECRET_ACCESS_KEY=$secret" AWS_REGION=us-east-1
  [[ ! $tls ]] || printf 'export %s\n' "RGW_TLS_URL=https://127.0.0.1:$tls_port" "RGW_CA=$state/tls/ca.pem"
}

case $action in
  start) start ;;
  stop) stop_all ;;
  *) usage ;;
esac
