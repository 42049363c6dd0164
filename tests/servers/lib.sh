# shellcheck shell=bash
# Shared by the server scripts; sourced, never run.
#
# A server keeps everything it owns in a state folder. `$state/pids` has one line a process: pid, start time, name. The start time
# (field 22 of /proc/PID/stat) tells our process from a later one that got the same number, so that `stop` can be repeated and
# never hits a stranger.

state= # the server's folder; each script sets it

die() { echo "${0##*/}: $*" >&2; exit 1; }

# install_missing PACKAGE... - quiet when all are there, so that a start costs no package manager run.
install_missing() {
  local package missing=()
  for package in "$@"; do
    [[ $(dpkg-query -W -f='${db:Status-Status}' "$package" 2>/dev/null) == installed ]] || missing+=("$package")
  done
  [[ ${#missing[@]} -gt 0 ]] || return 0
  [[ $EUID -eq 0 ]] || die "as root: apt-get install --no-install-recommends ${missing[*]}"
  # RUNLEVEL=1 asks the packages not to start a service of their own on the standard ports.
  RUNLEVEL=1 DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" \
    </dev/null >"$state/install.log" 2>&1 ||
    die "cannot install ${missing[*]} (run apt-get update?): $(tail -n 3 "$state/install.log")"
}

# pick_ports NAME... - sets each variable to a different free port of 127.0.0.1. Ports lie below the kernel's range for outgoing
# connections, so that none is taken between this check and the server's bind.
pick_ports() {
  local _name _port _taken=' ' # underscores: a caller's variable of the same name would stay unset
  for _name in "$@"; do
    while :; do
      _port=$((10000 + (RANDOM * 32768 + RANDOM) % 22000))
      [[ $_taken != *" $_port "* ]] && ! port_open "$_port" && break
    done
    _taken+="$_port "
    printf -v "$_name" %d "$_port"
  done
}

port_open() { (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null; }

start_time() {
  local stat
  stat=$(cat "/proc/$1/stat" 2>/dev/null) || return 1
  stat=${stat##*) }                  # the name may hold spaces; what follows it may not
  [[ ${stat%% *} != Z ]] || return 1 # a zombie only waits for its parent
  cut -d' ' -f20 <<<"$stat"
}

# launch NAME COMMAND... - in a session of its own (a Ctrl-C of the tests must not reach it), without our stdout (else
# `env=$(x.sh start DIR)` would wait for the server to end), and recorded.
launch() {
  local name=$1
  shift
  setsid "$@" </dev/null >>"$state/$name.log" 2>&1 &
  echo "$! $(start_time $!) $name" >>"$state/pids"
}

# wait_until SECONDS WHAT COMMAND... - polls; fails early when a recorded process has died.
wait_until() {
  local deadline=$((SECONDS + $1)) what=$2
  shift 2
  until "$@" >/dev/null 2>&1; do
    all_alive || { stop_all; die "a process ended while waiting for $what; see $state/*.log"; }
    ((SECONDS < deadline)) || { stop_all; die "timed out waiting for $what; see $state/*.log"; }
    sleep 0.02
  done
}

all_alive() {
  local pid born
  while read -r pid born _; do
    [[ $(start_time "$pid") == "$born" ]] || return 1
  done <"$state/pids"
}

# stop_all - the last started first; TERM, then KILL after ten seconds.
stop_all() {
  [[ -f $state/pids ]] || return 0
  local pid born i
  while read -r pid born _; do
    [[ $(start_time "$pid") == "$born" ]] || continue
    kill -TERM "$pid" 2>/dev/null || true
    for ((i = 0; i < 500; i++)); do
      [[ $(start_time "$pid") == "$born" ]] || break
      ((i < 499)) || kill -KILL "$pid" 2>/dev/null || true
      sleep 0.02
    done
  done < <(tac "$state/pids")
  rm -f "$state/pids"
}

# make_certificates - a throw-away CA and a certificate for localhost and 127.0.0.1, in $state/tls.
make_certificates() {
  local tls=$state/tls
  mkdir -p "$tls"
  {
    openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 365 -subj "/CN=Test CA" \
      -keyout "$tls/ca.key" -out "$tls/ca.pem" -addext keyUsage=critical,keyCertSign
    openssl req -new -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj "/CN=localhost" \
      -keyout "$tls/server.key" -out "$tls/server.csr"
    openssl x509 -req -in "$tls/server.csr" -CA "$tls/ca.pem" -CAkey "$tls/ca.key" -CAcreateserial -days 365 \
      -out "$tls/server.pem" -extfile <(echo "subjectAltName=DNS:localhost,IP:127.0.0.1")
  } >"$tls/openssl.log" 2>&1 || die "openssl failed; see $tls/openssl.log"
}
