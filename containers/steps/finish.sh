# Step of the Containerfile: what has to be written once, because the root of a container is read-only.
set -eu
umask 022
home=$(mktemp -d)
export HOME="$home"
if [ -n "${WARM}" ]; then
    TORCHINDUCTOR_CACHE_DIR="$home" VLLM_NO_USAGE_STATS=1 HF_HUB_OFFLINE=1 python -c "import ${WARM}"
fi
# Compiled by content: the builder changes every file's time, which files compiled by time would not survive. Two fixed
# halves, each by one process with one hash seed, so that the bytes are the same again. Templates of other languages and
# of Python 2 do not compile; nobody imports them.
export PYTHONHASHSEED=0
packages="/opt/env/lib/python${PYTHON}/site-packages"
compile="python -m compileall -q -j 1 --invalidation-mode unchecked-hash"
$compile -x '/site-packages/torch/' "/usr/lib/python${PYTHON}" /opt/env/lib > /dev/null 2>&1 &
if [ -d "$packages/torch" ]; then
    $compile "$packages/torch" > /dev/null 2>&1 || true
fi
wait
# The user, and a home that any uid can write to.
mkdir -p /opt/draftkiln /home/draftkiln
chmod 1777 /home/draftkiln
echo 'draftkiln:x:1000:1000:draftkiln:/home/draftkiln:/usr/sbin/nologin' >> /etc/passwd
echo 'draftkiln:x:1000:' >> /etc/group
rm -rf "$home" /tmp/* /var/tmp/* /root/.cache /root/.config
