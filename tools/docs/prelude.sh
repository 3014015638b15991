# Functions for the preparations in sessions.toml.

# link DEVICE ADDRESS NAMESPACE PEER-ADDRESS - a device connected to another network namespace.
link() {
    [ -e "/run/netns/$3" ] || ip netns add "$3"
    ip -n "$3" link set lo up
    ip link add "$1" type veth peer name "$1-far" netns "$3"
    ip addr add "$2/24" dev "$1"
    ip link set "$1" up
    ip -n "$3" addr add "$4/24" dev "$1-far"
    ip -n "$3" link set "$1-far" up
}

# certificate NAME HOST - NAME.pem and NAME.key, signed by the authority in fleet.pem.
certificate() {
    [ -e fleet.key ] || openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 \
        -subj "/CN=fleet" -keyout fleet.key -out fleet.pem 2>/dev/null
    openssl req -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -subj "/CN=$2" \
        -keyout "$1.key" -out "$1.csr" 2>/dev/null
    printf 'subjectAltName=DNS:%s\nbasicConstraints=CA:FALSE\n' "$2" >"$1.ext"
    openssl x509 -req -in "$1.csr" -CA fleet.pem -CAkey fleet.key -CAcreateserial -days 2 \
        -extfile "$1.ext" -out "$1.pem" 2>/dev/null
}

fleet() { certificate base base.example; }

# site [COMMAND] - example.org over HTTP and HTTPS, started by COMMAND; the session's programs trust its certificate.
site() {
    certificate site example.org
    known=/etc/ssl/certs/ca-certificates.crt
    cat "$known" fleet.pem >known.pem
    mount --bind known.pem "$known"
    mkdir -p site
    head -c 1000000 /dev/zero >site/large.iso
    echo page >site/index.html
    # The command is several words.
    $1 python3 "$ROOT/tools/docs/site_server.py" site site.pem site.key &
    sleep 1
}

# two_paths DEVICE DEVICE - two devices connected to the namespace `far` with host 192.0.2.7, and example.org at
# 93.184.216.34 behind it.
two_paths() {
    link "$1" 192.0.2.1 far 192.0.2.7
    link "$2" 198.51.100.1 far 198.51.100.7
    ip netns add web
    ip -n web link set lo up
    ip -n far link add cable type veth peer name cable netns web
    ip -n far addr add 203.0.113.1/24 dev cable
    ip -n far link set cable up
    ip -n web addr add 203.0.113.2/24 dev cable
    ip -n web addr add 93.184.216.34/32 dev lo
    ip -n web link set cable up
    ip -n far route add default via 203.0.113.2
    ip route add default via 192.0.2.7
    ip route add default via 198.51.100.7 metric 2
    site "ip netns exec web"
}
