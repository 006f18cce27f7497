# Step of the Containerfile: what has to be written once, because the root of a container is read-only.
set -eu
umask 022
home=$(mktemp -d)
export HOME="$home"
# Compiled by content: the builder changes every file's time, which files compiled by time would not survive. Two fixed
# halves, each by one process with one hash seed, so that the bytes are the same again. Templates of other languages and
# of Python 2 do not compile; nobody imports them, nor packages' own tests.
export PYTHONHASHSEED=0
packages="/opt/env/lib/python${PYTHON}/site-packages"
compile="python -m compileall -q -j 1 --invalidation-mode unchecked-hash"
large=
for name in torch transformers vllm; do
    [ ! -d "$packages/$name" ] || large="$large $packages/$name"
done
$compile -x '/site-packages/(torch|transformers|vllm)/|/tests?/' "/usr/lib/python${PYTHON}" /opt/env/lib > /dev/null 2>&1 &
if [ -n "$large" ]; then
    # shellcheck disable=SC2086 # several folders
    $compile -x '/tests?/' $large > /dev/null 2>&1 || true
fi
wait
if [ -n "${WARM}" ]; then
    TORCHINDUCTOR_CACHE_DIR="$home" VLLM_NO_USAGE_STATS=1 HF_HUB_OFFLINE=1 python -c "import ${WARM}"
fi
# The user, and a home that any uid can write to.
mkdir -p /opt/draftkiln /home/draftkiln
chmod 1777 /home/draftkiln
echo 'draftkiln:x:1000:1000:draftkiln:/home/draftkiln:/usr/sbin/nologin' >> /etc/passwd
echo 'draftkiln:x:1000:' >> /etc/group
rm -rf "$home" /tmp/* /var/tmp/* /root/.cache /root/.config
