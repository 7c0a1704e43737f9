#!/bin/sh
# The first two commands of the README in a root with Debian's or Ubuntu's packages and nothing else.
# bare.sh bookworm|noble FOLDER: a folder that is not there yet; as root, in minutes. The
# environment goes along: a proxy, say.
set -eu
suite=$1
root=$2
here=$(cd "$(dirname "$0")/../.." && pwd)
packages=git,make,python3,python3-venv,sudo,ca-certificates

"$here/scripts/install-packages" bare
# debootstrap's scripts know where a distribution is: gutsy's is that of each Ubuntu since.
case $suite in
noble) set -- --components=main,universe && script=gutsy
    # Debian 12 has no package of Ubuntu's keys.
    [ -e /usr/share/keyrings/ubuntu-archive-keyring.gpg ] || set -- --no-check-gpg "$@" ;;
*) set -- && script=$suite ;;
esac
if ! debootstrap --variant=minbase --include="$packages" "$@" "$suite" "$root" "" \
    "/usr/share/debootstrap/scripts/$script" >"$root.log"; then
    tail -n 20 "$root.log" >&2
    exit 1
fi
git clone --quiet "$here" "$root/waitroom"
cp /etc/resolv.conf "$root/etc/"
echo "127.0.0.1 localhost" >"$root/etc/hosts"
cp /etc/ssl/certs/ca-certificates.crt "$root/etc/ssl/certs/"

cat >"$root/steps.sh" <<'STEPS'
set -eu
cd /waitroom
lasted() { echo "$1: $(($(date +%s) - began)) s"; }
began=$(date +%s)
setsid make run >/run.log 2>&1 &
shop=$!
until grep -qs "The shop is open" /run.log; do
    kill -0 $shop || { cat /run.log; exit 1; }
    sleep 1
done
lasted "make run, from nothing"
grep "Port 8080 is in use" /run.log || true
.venv/bin/python - "$(grep -o 'The shop is open: [^ ]*' /run.log | grep -o 'http.*')" <<'VISITORS'
import sys
import urllib.error
import urllib.request

for number in (1, 2, 3):
    try:
        status = urllib.request.urlopen(sys.argv[1], timeout=10).status
    except urllib.error.HTTPError as error:
        status = error.code
    print(f"visitor {number}: {status}", flush=True)
VISITORS
# The blocks of loadtest.md as they stand, but with this site, fewer users and shorter visits, so that
# some are let in from the queue. What make run has
# installed stays as it is: it runs from the clone.
began=$(date +%s)
ops=$(grep -o 'http://localhost:[0-9]*/dashboard' /run.log | grep -o '[0-9][0-9]*')
sed -n '/^    ```sh$/,/^    ```$/{/```/d;p}' docs/loadtest.md | sed "
    s#https://staging.example#$(grep -o 'The shop is open: [^ ]*' /run.log | grep -o 'http.*')#
    s#http://10.0.0.7:8401#http://127.0.0.1:$ops#
    s/--users 500 --spawn-rate 50 --run-time 5m/--users 20 --spawn-rate 10 --run-time 25s/" >/load.sh
grep -c locust /load.sh
TOKEN=demo-admin-token WAITROOM_LOAD_STAY=4 sh -eux /load.sh >/load.log 2>&1 || { tail -n 50 /load.log; exit 1; }
cd / && /waitroom/.venv/bin/python -c 'import sidecar; print("runs from", sidecar.__file__)'
cd /waitroom
lasted "loadtest.md, after that"
kill -s TERM -- "-$shop"
wait "$shop" || true
began=$(date +%s)
make test
lasted "make test, after that"
STEPS
unset PIP_FIND_LINKS VIRTUAL_ENV PYTHONPATH PYTHONDONTWRITEBYTECODE
export HOME=/root PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
exec unshare --mount --pid --fork --kill-child sh -c "
    mount --make-rprivate / && mount --rbind /dev '$root/dev' &&
    mount -t proc proc '$root/proc' && mount -t tmpfs tmpfs '$root/tmp' &&
    exec chroot '$root' sh /steps.sh"
