# Step of the Containerfile: one part of the locked wheels, whose list has the sha256 given as the first argument.
set -eu
umask 022
echo "$1  /mnt/wheels.lock" | sha256sum --check --quiet
[ -s /mnt/wheels.lock ] || exit 0
home=$(mktemp -d)
# On the same file system as the environment: uv links what it unpacked, nothing is written twice.
export HOME="$home" UV_CACHE_DIR=/opt/.uv-cache UV_NO_CONFIG=1 UV_OFFLINE=1 UV_PYTHON_DOWNLOADS=never
[ -d /opt/env ] || /mnt/uv venv --quiet --python "/usr/bin/python${PYTHON}" /opt/env
# --require-hashes with --no-deps: nothing is resolved, nothing but the locked bytes is taken.
/mnt/uv pip install --quiet --python /opt/env/bin/python --no-index --find-links /mnt/wheels \
    --require-hashes --no-deps --no-build --requirement /mnt/wheels.lock
# uv notes when it saw a wheel, which is no fact about the image.
find /opt/env/lib -path '*.dist-info/uv_cache.json' -delete
find /opt/env/lib -path '*.dist-info/RECORD' -exec grep -l 'uv_cache\.json,' {} + \
    | xargs -r sed -i '/\.dist-info\/uv_cache\.json,/d'
# Only what needs it: a changed mode would copy a file of a lower layer into this one.
find /opt/env \( -type f ! -perm -644 -o -type d ! -perm -755 \) -exec chmod u+rwX,go+rX {} +
rm -rf "$home" "$UV_CACHE_DIR" /tmp/* /var/tmp/*
