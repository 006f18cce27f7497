"""Images: built from pinned inputs only, compared byte by byte, run by docker or podman, shipped by digest."""
