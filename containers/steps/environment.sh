# Step of the Containerfile: the Python environment, from the lock alone.
set -eu
echo "${REQUIREMENTS_SHA256}  /run/in/requirements.lock" | sha256sum --check --quiet
home=$(mktemp -d)
export HOME="$home" UV_CACHE_DIR=/opt/.uv-cache UV_NO_CONFIG=1 UV_OFFLINE=1 UV_PYTHON_DOWNLOADS=never
/run/in/tools/uv venv --quiet --python "/usr/bin/python${PYTHON}" /opt/env
# --require-hashes with --no-deps: nothing is resolved, nothing but the locked bytes is taken.
/run/in/tools/uv pip install --quiet --python /opt/env/bin/python --no-index --find-links /run/in/wheels \
    --require-hashes --no-deps --no-build --requirement /run/in/requirements.lock
rm -rf "$UV_CACHE_DIR"
if [ -n "${WARM}" ]; then
    TORCHINDUCTOR_CACHE_DIR="$home" VLLM_NO_USAGE_STATS=1 HF_HUB_OFFLINE=1 python -c "import ${WARM}"
fi
# The launcher of draftkiln, the user, and a home that any uid can write to.
mkdir -p /opt/draftkiln /home/draftkiln
chmod 1777 /home/draftkiln
echo 'draftkiln:x:1000:1000:draftkiln:/home/draftkiln:/usr/sbin/nologin' >> /etc/passwd
echo 'draftkiln:x:1000:' >> /etc/group
chmod -R u=rwX,go=rX /opt/env
rm -rf "$home" /tmp/* /var/tmp/* /root/.cache /root/.config
