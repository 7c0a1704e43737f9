# A cluster of one node, in a root of its own: etcd, Kubernetes' five servers from /kubernetes,
# containerd, pods joined by a bridge, and dnsmasq for the cluster's names. It runs in network
# namespaces that end with it. `visit N` is visitor N.
mkdir -p /var/lib/containerd /etc/cni/net.d /tmp/log ~/.kube
mount -t tmpfs tmpfs /var/lib/containerd; mount --make-rshared /
cd /tmp
# The kubelet would set these for the whole machine: it finds them set.
for set in vm/overcommit_memory=1 vm/panic_on_oom=0 kernel/panic=10 kernel/panic_on_oops=1; do
    name=${set%=*}; echo "${set#*=}" >"sysctl.${name##*/}"
    mount --bind "sysctl.${name##*/}" "/proc/sys/$name"
done
cat >/etc/cni/net.d/pods.conflist <<'END'
{"cniVersion": "0.4.0", "name": "pods", "plugins": [{"type": "ptp", "ipam": {
 "type": "host-local", "subnet": "10.244.0.0/24", "routes": [{"dst": "0.0.0.0/0"}]}}]}
END
cat >containerd.toml <<'END'
version = 2
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "docker.io/library/pause:1"
  restrict_oom_score_adj = true
[plugins."io.containerd.grpc.v1.cri".cni]
  bin_dir = "/usr/lib/cni"
  conf_dir = "/etc/cni/net.d"
END
containerd --config containerd.toml >log/containerd 2>&1 &
etcd --data-dir etcd --unsafe-no-fsync >log/etcd 2>&1 &
openssl genrsa -out sa.key 2048 2>log/openssl
echo token,admin,1,system:masters >tokens
cat >~/.kube/config <<'END'
{apiVersion: v1, kind: Config, current-context: c,
 clusters: [{name: c, cluster: {server: "https://127.0.0.1:6443", insecure-skip-tls-verify: true}}],
 users: [{name: u, user: {token: token}}], contexts: [{name: c, context: {cluster: c, user: u}}]}
END
config=$HOME/.kube/config node=10.0.2.100
/kubernetes/kube-apiserver --etcd-servers=http://127.0.0.1:2379 --cert-dir=api \
    --service-cluster-ip-range=10.96.0.0/16 --token-auth-file=tokens --authorization-mode=RBAC \
    --advertise-address=$node --kubelet-preferred-address-types=InternalIP \
    --service-account-issuer=https://kubernetes.default.svc \
    --service-account-signing-key-file=sa.key --service-account-key-file=sa.key >log/api 2>&1 &
until ctr version >log/ctr 2>&1; do sleep 0.5; done
ctr -n k8s.io images import /images.tar >log/import
until kubectl get --raw /readyz >log/readyz 2>&1; do kill -0 $!; sleep 1; done
/kubernetes/kube-controller-manager --kubeconfig="$config" --leader-elect=false --cert-dir=manager \
    --service-account-private-key-file=sa.key >log/manager 2>&1 &
/kubernetes/kube-scheduler --kubeconfig="$config" --leader-elect=false --cert-dir=scheduler \
    >log/scheduler 2>&1 &
/kubernetes/kubelet --kubeconfig="$config" --cert-dir=kubelet --container-runtime=remote \
    --container-runtime-endpoint=unix:///run/containerd/containerd.sock \
    --hostname-override=node --node-ip=$node --cluster-dns=10.96.0.10 \
    --cluster-domain=cluster.local --fail-swap-on=false --cgroup-driver=cgroupfs \
    --cgroups-per-qos=false --enforce-node-allocatable= --anonymous-auth=true \
    --authorization-mode=AlwaysAllow --eviction-hard='memory.available<10Mi' \
    --image-gc-high-threshold=100 >log/kubelet 2>&1 &
/kubernetes/kube-proxy --kubeconfig="$config" --proxy-mode=iptables --cluster-cidr=10.244.0.0/16 \
    --hostname-override=node --conntrack-max-per-core=0 --conntrack-tcp-timeout-established=0 \
    --conntrack-tcp-timeout-close-wait=0 >log/proxy 2>&1 &
kubectl apply -f - <<END
apiVersion: v1
kind: Service
metadata: {name: kube-dns, namespace: kube-system}
spec: {clusterIP: 10.96.0.10, ports: [{name: dns, port: 53, protocol: UDP}, {name: tcp, port: 53}]}
---
apiVersion: v1
kind: Endpoints
metadata: {name: kube-dns, namespace: kube-system}
subsets:
- addresses: [{ip: $node}]
  ports: [{name: dns, port: 53, protocol: UDP}, {name: tcp, port: 53}]
END
cat >names.jq <<'END'
def name: "\(.metadata.name).\(.metadata.namespace).svc.cluster.local";
(.[0].items[] | select(.spec.clusterIP != "None") | "\(.spec.clusterIP) \(name)"),
([.[0].items[] | select(.spec.clusterIP == "None") | name] as $headless | .[1].items[]
 | name as $n | select($headless | index($n)) | .subsets[]?.addresses[]? | "\(.ip) \($n)")
END
touch hosts
dnsmasq --keep-in-foreground --user=root --no-resolv --no-hosts --addn-hosts=/tmp/hosts \
    --local=/cluster.local/ --listen-address=$node --bind-interfaces >log/dns 2>&1 &
dns=$!
list() { curl -sfk -H 'Authorization: Bearer token' "https://127.0.0.1:6443/api/v1/$1"; }
while sleep 1; do
    { list services; list endpoints; } | jq -rsf names.jq >hosts.new || continue
    cmp -s hosts hosts.new || { cp hosts.new hosts; kill -HUP $dns; }
done >log/names 2>&1 &
until kubectl wait --for=condition=Ready node/node --timeout=60s; do sleep 1; done

# Redis, and the site that the manifests name.
cd /waitroom
kubectl apply -f deploy/kubernetes/namespace.yaml
serve() {
    kubectl apply -f - <<END
apiVersion: apps/v1
kind: Deployment
metadata: {name: $1, namespace: $2}
spec:
  selector: {matchLabels: {app: $1}}
  template:
    metadata: {labels: {app: $1}}
    spec:
      automountServiceAccountToken: false
      containers: [{name: $1, image: "$4", command: [$5]}]
---
apiVersion: v1
kind: Service
metadata: {name: $1, namespace: $2}
spec: {selector: {app: $1}, ports: [$3]}
END
}
serve redis waitroom '{port: 6379}' "$REDIS" 'redis-server, --protected-mode, "no"'
serve shop default '{port: 80, targetPort: 8080}' waitroom:0.1.0 'python, -m, http.server, "8080"'
visit() {
    site=$(kubectl -n waitroom get service waitroom-nginx -o 'jsonpath={.spec.clusterIP}')
    curl -s -o /tmp/page -m 20 -b "/tmp/visitor$1" -c "/tmp/visitor$1" \
        -H "X-Forwarded-For: 192.0.2.$1" -w "visitor $1: %{http_code}\\n" "http://$site/"
}
# Visitor N asks twice a second, until /tmp/stop exists.
keep_visiting() { until [ -e /tmp/stop ]; do visit "$1"; sleep 0.5; done; }
