# Step of the Containerfile: the (patched) wheel of speculators, without its dependencies: the lock has them.
set -eu
umask 022
wheel=$(basename /mnt/speculators-*.whl)
version=${wheel#speculators-}
home=$(mktemp -d)
export HOME="$home" UV_CACHE_DIR="$home" UV_NO_CONFIG=1 UV_OFFLINE=1
echo "speculators==${version%%-*} --hash=sha256:${SPECULATORS_SHA256}" > "$home/requirements.txt"
/mnt/uv pip install --quiet --python /opt/env/bin/python --no-index --find-links /mnt \
    --no-deps --no-build --require-hashes --link-mode copy --requirement "$home/requirements.txt"
# uv notes when it saw a wheel, which is no fact about the image.
cd "/opt/env/lib/python${PYTHON}/site-packages"
rm -f speculators-*.dist-info/uv_cache.json
sed -i '/\.dist-info\/uv_cache\.json,/d' speculators-*.dist-info/RECORD
PYTHONHASHSEED=0 python -m compileall -q --invalidation-mode unchecked-hash speculators
chmod -R u=rwX,go=rX speculators*
rm -rf "$home" /tmp/*
