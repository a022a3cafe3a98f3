"""Build a Kubernetes control plane for the tests: ``make kubernetes``.

kube-apiserver, kube-controller-manager and kube-scheduler are compiled from Debian
bookworm's source package of Kubernetes 1.20, with Debian's Go compiler; etcd is Debian's
own binary, and so is kubectl where this machine has none. Everything comes from the mirror
that apt already uses, and nothing is installed: packages are unpacked in a cache directory,
so no rights of root are needed.

The binaries end in ``$GARFIELD_KUBERNETES/bin``, by default
``$XDG_CACHE_HOME/garfield/kubernetes-1.20.2/bin``. They take about five minutes of two
cores once and 300 MB; a second call finds them and returns at once.
"""

from __future__ import annotations

import argparse
import fcntl
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

VERSION = "1.20.2"
SOURCE = "pool/main/k/kubernetes/kubernetes_1.20.5%2Breally1.20.2"
# suffix of the file in the mirror: its SHA-256
SOURCE_FILES = {
    ".orig.tar.gz": "b83c0780efb182d928dc63d46488a847f161f04e40a94b96bf5247dd671ecdfc",
    "-1.1%2Bdeb12u1.debian.tar.xz": (
        "9b6e5fd41769d2b5badf2e73b274e3bcd90f85e13d06a1a4a845ccce018127d8"
    ),
}
COMPONENTS = ("kube-apiserver", "kube-controller-manager", "kube-scheduler")
COMPILER = ("golang-1.19-go", "golang-1.19-src")
# the copies inside the source crash the API server at its first write of a custom
# resource when they are compiled by Go 1.18 or later
REPLACED = {
    "golang-github-modern-go-reflect2-dev": "github.com/modern-go/reflect2",
    "golang-github-json-iterator-go-dev": "github.com/json-iterator/go",
}


class BuildError(Exception):
    """Something that a user of this machine can put right."""


def home() -> Path:
    """The directory of the cache: ``$GARFIELD_KUBERNETES`` or below the user's cache."""
    named = os.environ.get("GARFIELD_KUBERNETES")
    if named:
        return Path(named)
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache) / "garfield" / f"kubernetes-{VERSION}"


def missing(directory: Path) -> list[str]:
    """Programs of a control plane that are not in ``directory``/bin; kubectl may be on PATH."""
    found = directory / "bin"
    names = [name for name in (*COMPONENTS, "etcd") if not os.access(found / name, os.X_OK)]
    if shutil.which("kubectl") is None and not os.access(found / "kubectl", os.X_OK):
        names.append("kubectl")
    return names


def run(*command: str | Path, cwd: Path, env: dict[str, str] | None = None) -> str:
    """Run one command and return what it printed; its errors go to the terminal."""
    done = subprocess.run(command, cwd=cwd, env=env, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        raise BuildError(
            f"{command[0]} exited with {done.returncode}: {' '.join(map(str, command))}"
        )
    return done.stdout


def step(text: str) -> None:
    print(f"kubernetes: {text}", file=sys.stderr, flush=True)


def unpack_package(name: str, work: Path) -> Path:
    """Download one Debian package (apt checks its signature) and unpack it without installing."""
    folder = work / "packages" / name
    folder.mkdir(parents=True)
    # as root apt drops to its own user, who may not write here; it says so and goes on
    run("apt-get", "-qq", "download", name, cwd=folder)
    (package,) = folder.glob("*.deb")
    run("dpkg-deb", "-x", package, folder / "root", cwd=folder)
    return folder / "root"


def mirror(work: Path) -> str:
    """Address of the archive that this machine's apt uses for Debian's own packages."""
    answer = run("apt-get", "download", "--print-uris", "etcd-server", cwd=work)
    found = re.search(r"'([^']+)/pool/", answer)
    if found is None:
        raise BuildError("apt knows no package etcd-server. Run `apt-get update` first.")
    return found[1]


def unpack_source(work: Path) -> Path:
    """Unpack Kubernetes with Debian's patches where Go looks for it, and return that directory."""
    source = work / "go" / "src" / "k8s.io" / "kubernetes"
    source.mkdir(parents=True)
    archive, addition = work / "source.tar.gz", work / "debian.tar.xz"
    address = f"{mirror(work)}/{SOURCE}"
    for target, (suffix, digest) in zip((archive, addition), SOURCE_FILES.items(), strict=True):
        fetch = ("/usr/lib/apt/apt-helper", "download-file", address + suffix)
        run(*fetch, target, f"SHA256:{digest}", cwd=work)
    run("tar", "-xf", archive, "--strip-components=1", cwd=source)
    run("tar", "-xf", addition, cwd=work)
    patches = work / "debian" / "patches"
    for line in (patches / "series").read_text().splitlines():
        if line and not line.startswith("#"):
            run("patch", "-p1", "-s", "-i", patches / line, cwd=source)
    return source


def replace_vendored(source: Path, work: Path) -> None:
    for package, path in REPLACED.items():
        root = unpack_package(package, work)
        shutil.rmtree(source / "vendor" / path)
        shutil.copytree(root / "usr/share/gocode/src" / path, source / "vendor" / path)


def go_environment(compiler: Path, work: Path) -> dict[str, str]:
    """Settings under which Go compiles what is below ``work``/go and reaches no network."""
    return {
        **os.environ,
        "PATH": f"{compiler / 'bin'}:{os.environ['PATH']}",
        "GOROOT": str(compiler),
        "GOPATH": str(work / "go"),
        "GOCACHE": str(work / "go-cache"),
        "GOTMPDIR": str(work),
        "GO111MODULE": "off",
        "GOPROXY": "off",
        "GOFLAGS": "",
        "CGO_ENABLED": "0",
    }


def join_compiler(work: Path) -> Path:
    """Unpack Go's two packages into one tree: Debian links them by absolute paths."""
    compiler = work / "compiler"
    for package in COMPILER:
        root = unpack_package(package, work)
        for part in ("usr/lib/go-1.19", "usr/share/go-1.19"):
            if (root / part).is_dir():
                shutil.copytree(
                    root / part,
                    compiler,
                    symlinks=True,
                    dirs_exist_ok=True,
                    ignore=lambda folder, names: [n for n in names if Path(folder, n).is_symlink()],
                )
    return compiler


def generate_openapi(source: Path, work: Path, env: dict[str, str]) -> None:
    """Write the API's schemas, which the source package leaves to its build to generate."""
    generator = work / "openapi-gen"
    vendored = "k8s.io/kubernetes/vendor/k8s.io"
    run(
        "go",
        "build",
        "-o",
        generator,
        f"{vendored}/kube-openapi/cmd/openapi-gen",
        cwd=source,
        env=env,
    )
    packages = sorted(_tagged_for_openapi(source))
    arguments = {
        "-i": ",".join(packages),
        "-p": "k8s.io/kubernetes/pkg/generated/openapi",
        "-O": "zz_generated.openapi",
        "-h": "vendor/k8s.io/code-generator/hack/boilerplate.go.txt",
        "-r": str(work / "violations.txt"),
        "--output-base": str(work / "go" / "src"),
    }
    run(generator, *(word for pair in arguments.items() for word in pair), cwd=source, env=env)


def _tagged_for_openapi(source: Path) -> Iterator[str]:
    """Import paths of the packages that ask for a schema by a comment."""
    tag = re.compile(r"^// \+k8s:openapi-gen=", re.MULTILINE)
    left_out = re.compile(r"code-generator|sample-apiserver|/_?example")
    for top in ("staging/src/k8s.io", "pkg"):
        for folder in {path.parent for path in (source / top).rglob("*.go")}:
            relative = folder.relative_to(source).as_posix()
            files = (path for path in folder.glob("*.go") if not path.name.endswith("_test.go"))
            if left_out.search(relative) is None and any(tag.search(f.read_text()) for f in files):
                yield f"k8s.io/kubernetes/{relative.replace('staging/src/', 'vendor/', 1)}"


def compile_component(name: str, source: Path, target: Path, env: dict[str, str]) -> None:
    major, minor, _ = VERSION.split(".")
    said = {"gitVersion": f"v{VERSION}", "gitMajor": major, "gitMinor": minor}
    flags = ["-s", "-w"]
    for package in ("component-base/version", "client-go/pkg/version"):
        for key, value in said.items():
            flags.append(f"-X k8s.io/kubernetes/vendor/k8s.io/{package}.{key}={value}")
    package = f"k8s.io/kubernetes/cmd/{name}"
    run("go", "build", "-ldflags", " ".join(flags), "-o", target, package, cwd=source, env=env)


@contextmanager
def alone(directory: Path) -> Iterator[None]:
    """Hold a lock on the cache, so that two checkouts do not build at once."""
    directory.mkdir(parents=True, exist_ok=True)
    with (directory / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def build(directory: Path) -> None:
    """Build whatever is missing in ``directory``/bin."""
    for tool in ("apt-get", "dpkg-deb", "patch", "tar"):
        if shutil.which(tool) is None:
            raise BuildError(
                f"{tool} is not on this machine. Build on Debian, or set GARFIELD_KUBERNETES to a "
                f"directory whose bin/ holds {', '.join(missing(directory))}."
            )
    binaries = directory / "bin"
    binaries.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="build-", dir=directory) as temporary:
        work = Path(temporary)
        wanted = missing(directory)
        for name, package in (("etcd", "etcd-server"), ("kubectl", "kubernetes-client")):
            if name in wanted:
                step(f"unpacking {name}")
                shutil.copy2(unpack_package(package, work) / "usr/bin" / name, binaries / name)
        wanted = [name for name in COMPONENTS if name in wanted]
        if not wanted:
            return
        step("unpacking the source and the compiler")
        source = unpack_source(work)
        replace_vendored(source, work)
        env = go_environment(join_compiler(work), work)
        step("generating the API's schemas")
        generate_openapi(source, work, env)
        for name in wanted:
            step(f"compiling {name}")
            compile_component(name, source, work / name, env)
            (work / name).replace(binaries / name)
        # Go makes what it caches read-only, which would keep the directory from being removed
        run("chmod", "-R", "u+w", work, cwd=directory)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--where", action="store_true", help="print the directory and stop")
    settings = parser.parse_args()
    directory = home()
    if settings.where:
        print(directory / "bin")
        return
    try:
        with alone(directory):
            if missing(directory):
                build(directory)
    except BuildError as problem:
        sys.exit(f"kubernetes: {problem}")
    step(f"ready in {directory / 'bin'}")


if __name__ == "__main__":
    main()
