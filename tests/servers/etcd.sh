#!/usr/bin/env bash
# etcd.sh start DIR [--tls] | stop DIR
#
# One etcd on 127.0.0.1. The data and the ports stay in DIR/etcd: a start after a stop, or after it was killed, continues
# with the same endpoint and keys. With --tls it asks clients for a certificate of its authority.
# Prints export lines: ETCDCTL_API, ETCDCTL_ENDPOINTS; with --tls also ETCDCTL_CACERT, ETCDCTL_CERT, ETCDCTL_KEY. DIR/etcd/pids
# names the process.
set -euo pipefail
# shellcheck source=lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

usage() { sed -n '2,7s/^# \{0,1\}//p' "$0" >&2; exit 2; }
[[ $# -ge 2 ]] || usage
action=$1 state=$2/etcd
shift 2
tls=
while [[ $# -gt 0 ]]; do
  case $1 in
    --tls) tls=1; shift ;;
    *) usage ;;
  esac
done

start() {
  mkdir -p "$state"
  state=$(realpath "$state")
  stop_all
  install_missing etcd-server etcd-client
  local client peer scheme=http options=()
  export ETCDCTL_API=3
  if [[ ! -f $state/ports ]]; then
    pick_ports client peer
    echo "$client $peer" >"$state/ports"
  fi
  read -r client peer <"$state/ports"
  if [[ $tls ]]; then
    scheme=https
    [[ -f $state/tls/server.pem ]] || make_certificates
    # Its certificate is one for servers and for clients: the JSON gateway is a client of etcd itself.
    options=(--cert-file "$state/tls/server.pem" --key-file "$state/tls/server.key" --trusted-ca-file "$state/tls/ca.pem"
      --client-cert-auth)
    export ETCDCTL_CACERT=$state/tls/ca.pem ETCDCTL_CERT=$state/tls/server.pem ETCDCTL_KEY=$state/tls/server.key
  fi
  launch etcd etcd --name member --data-dir "$state/data" --logger zap \
    --listen-client-urls "$scheme://127.0.0.1:$client" --advertise-client-urls "$scheme://127.0.0.1:$client" \
    --listen-peer-urls "http://127.0.0.1:$peer" --initial-advertise-peer-urls "http://127.0.0.1:$peer" \
    --initial-cluster "member=http://127.0.0.1:$peer" --initial-cluster-token "$state" \
    --heartbeat-interval 50 --election-timeout 500 "${options[@]}"
  # Health means that a proposal was committed. By environment: etcdctl refuses --endpoints when the caller's shell still has
  # the variable of an earlier start.
  export ETCDCTL_ENDPOINTS=$scheme://127.0.0.1:$client
  wait_until 120 etcd etcdctl --command-timeout 1s endpoint health
  printf 'export %s\n' ETCDCTL_API=3 "ETCDCTL_ENDPOINTS=$ETCDCTL_ENDPOINTS"
  [[ ! $tls ]] || printf 'export %s\n' "ETCDCTL_CACERT=$ETCDCTL_CACERT" "ETCDCTL_CERT=$ETCDCTL_CERT" "ETCDCTL_KEY=$ETCDCTL_KEY"
}

case $action in
  start) start ;;
  stop) stop_all ;;
  *) usage ;;
esac
