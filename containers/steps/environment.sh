# Step of the Containerfile: the Python environment, from the lock alone.
set -eu
echo "${REQUIREMENTS_SHA256}  /mnt/requirements.lock" | sha256sum --check --quiet
home=$(mktemp -d)
export HOME="$home" UV_CACHE_DIR=/opt/.uv-cache UV_NO_CONFIG=1 UV_OFFLINE=1 UV_PYTHON_DOWNLOADS=never
/mnt/uv venv --quiet --python "/usr/bin/python${PYTHON}" /opt/env
# --require-hashes with --no-deps: nothing is resolved, nothing but the locked bytes is taken.
/mnt/uv pip install --quiet --python /opt/env/bin/python --no-index --find-links /mnt/wheels \
    --require-hashes --no-deps --no-build --requirement /mnt/requirements.lock
rm -rf "$UV_CACHE_DIR"
# uv notes when it saw a wheel, which is no fact about the image.
find /opt/env/lib -path '*.dist-info/uv_cache.json' -delete
sed -i '/\.dist-info\/uv_cache\.json,/d' /opt/env/lib/python*/site-packages/*.dist-info/RECORD
if [ -n "${WARM}" ]; then
    TORCHINDUCTOR_CACHE_DIR="$home" VLLM_NO_USAGE_STATS=1 HF_HUB_OFFLINE=1 python -c "import ${WARM}"
fi
# Compiled by content: the builder changes every file's time, which files compiled by time would not survive. Two fixed
# halves, each by one process with one hash seed, so that the bytes are the same again. Templates of other languages and
# of Python 2 do not compile; nobody imports them.
export PYTHONHASHSEED=0
compile="python -m compileall -q -j 1 --invalidation-mode unchecked-hash"
$compile -x '/site-packages/torch/' "/usr/lib/python${PYTHON}" /opt/env/lib > /dev/null 2>&1 &
if [ -d "/opt/env/lib/python${PYTHON}/site-packages/torch" ]; then
    $compile "/opt/env/lib/python${PYTHON}/site-packages/torch" > /dev/null 2>&1 || true
fi
wait
# The user, and a home that any uid can write to.
mkdir -p /opt/draftkiln /home/draftkiln
chmod 1777 /home/draftkiln
echo 'draftkiln:x:1000:1000:draftkiln:/home/draftkiln:/usr/sbin/nologin' >> /etc/passwd
echo 'draftkiln:x:1000:' >> /etc/group
chmod -R u=rwX,go=rX /opt/env
rm -rf "$home" /tmp/* /var/tmp/* /root/.cache /root/.config
