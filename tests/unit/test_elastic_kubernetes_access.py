"""Where the API server is, who we are, and what its answers mean: against a server in a thread."""

import base64
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from garfield.core.errors import (
    ClusterError,
    ClusterUnreachable,
    ConfigError,
    CoordinationUnreachable,
    ObjectAbsent,
    WriteConflict,
)
from garfield.elastic.job.coordination import BatchSize
from garfield.elastic.job.environment import job_of_this_process
from garfield.elastic.job.on_kubernetes import KubernetesCoordination
from garfield.elastic.kubernetes.access import Access, from_kubeconfig, of_this_pod
from garfield.elastic.kubernetes.client import ApiServer
from tests.command import invoke


@pytest.fixture
def server():
    """Answers what `answers` holds for a path, and notes what was asked."""
    asked = []

    class Handler(BaseHTTPRequestHandler):
        def _answer(self):
            length = int(self.headers.get("Content-Length") or 0)
            asked.append((self.command, self.path, self.headers, self.rfile.read(length)))
            status, body = started.answers.get(self.path.partition("?")[0], (404, {}))
            if isinstance(body, list):
                body = body.pop(0)
            content = body if isinstance(body, bytes) else json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = _answer  # noqa: N815

        def log_message(self, *_):
            pass

    started = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    started.answers, started.asked = {}, asked
    started.url = f"http://127.0.0.1:{started.server_address[1]}"
    thread = threading.Thread(target=started.serve_forever, args=(0.01,))
    thread.start()
    yield started
    started.shutdown()
    thread.join()
    started.server_close()


@pytest.fixture
def api(server):
    opened = ApiServer(Access(server.url))
    yield opened
    opened.close()


def kubeconfig(path, user, **cluster):
    content = {
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u", "namespace": "ns"}}],
        "clusters": [{"name": "k", "cluster": {"server": "https://there:6443", **cluster}}],
        "users": [{"name": "u", "user": user}],
    }
    path.write_text(json.dumps(content))
    return path


@pytest.mark.parametrize(
    ("status", "error"),
    [(404, ObjectAbsent), (409, WriteConflict), (503, ClusterUnreachable), (403, ClusterError)],
)
def test_answers_become_errors_that_callers_can_tell_apart(server, api, status, error):
    server.answers["/x"] = (status, {"message": "because"})
    with pytest.raises(error, match=f"GET /x was answered {status}: because") as caught:
        api.get("/x")
    assert type(caught.value) is error


def test_an_answer_that_is_no_json_is_told_as_it_is(server, api):
    server.answers["/x"] = (502, b"<html>bad gateway</html>")
    with pytest.raises(ClusterUnreachable, match="bad gateway"):
        api.get("/x")


def test_a_server_that_is_not_there_is_unreachable():
    with pytest.raises(ClusterUnreachable, match=r"127\.0\.0\.1:1 does not answer"):
        ApiServer(Access("http://127.0.0.1:1")).get("/x")


def test_long_lists_come_in_pages(server, api):
    first = {"metadata": {"continue": "next"}, "items": [1]}
    server.answers["/pods"] = (200, [first, {"metadata": {}, "items": [2]}])
    assert api.list("/pods", labelSelector="a=b") == [1, 2]
    assert "continue=next" in server.asked[1][1]
    assert all("labelSelector=a%3Db" in path for _, path, *_ in server.asked)


def test_what_is_gone_already_counts_as_deleted(server, api):
    api.delete("/x", grace_s=0)
    assert server.asked[0][:2] == ("DELETE", "/x?gracePeriodSeconds=0")


def test_a_token_is_read_anew_as_clusters_replace_it(server, tmp_path):
    token = tmp_path / "token"
    server.answers["/x"] = (200, {})
    api = ApiServer(Access(server.url, token_file=token))
    for told in ("first", "second"):
        token.write_text(f"{told}\n")
        api.get("/x")
    assert [each[2]["Authorization"] for each in server.asked] == ["Bearer first", "Bearer second"]


def test_a_kubeconfig_may_hold_certificates_or_name_their_files(tmp_path):
    (tmp_path / "ca.pem").write_text("authority")
    data = {"client-certificate-data": base64.b64encode(b"mine").decode(), "token": "t"}
    path = kubeconfig(tmp_path / "config", data, **{"certificate-authority": "ca.pem"})
    found = from_kubeconfig(path)
    assert (found.server, found.namespace) == ("https://there:6443", "ns")
    assert (found.authority, found.certificate, found.bearer()) == ("authority", "mine", "t")


@pytest.mark.parametrize(
    ("user", "said"),
    [({"exec": {}}, "logs in by a plug-in"), ({"client-key": "gone.pem"}, "gone.pem, named in")],
)
def test_a_kubeconfig_that_cannot_be_used_is_refused(tmp_path, user, said):
    with pytest.raises(ConfigError, match=said):
        from_kubeconfig(kubeconfig(tmp_path / "config", user))


def test_what_is_no_kubeconfig_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="cannot be read"):
        from_kubeconfig(tmp_path / "none")
    (tmp_path / "empty").write_text("{}")
    with pytest.raises(ConfigError, match="no kubeconfig with a current context"):
        from_kubeconfig(tmp_path / "empty")


def test_a_pod_is_told_who_it_is_by_files(tmp_path):
    for name, text in (("token", "t"), ("ca.crt", "authority"), ("namespace", "ns")):
        (tmp_path / name).write_text(text)
    told = {"KUBERNETES_SERVICE_HOST": "fd00::1", "KUBERNETES_SERVICE_PORT": "6443"}
    found = of_this_pod(told, tmp_path)
    assert (found.server, found.namespace, found.bearer()) == ("https://[fd00::1]:6443", "ns", "t")
    with pytest.raises(ConfigError, match="in no pod"):
        of_this_pod({}, tmp_path)


@pytest.mark.parametrize(
    ("told", "said"),
    [
        ({"GARFIELD_ELASTIC_JOB": "kubernetes://ns"}, "names no job"),
        ({"GARFIELD_ELASTIC_JOB": "kubernetes://ns/j"}, "GARFIELD_ELASTIC_HOST is not set"),
        (
            {"GARFIELD_ELASTIC_JOB": "kubernetes://ns/j", "GARFIELD_ELASTIC_HOST": "10.0.0.1"},
            "in no pod",
        ),
    ],
)
def test_a_worker_outside_of_a_pod_says_what_is_missing(told, said):
    with pytest.raises(ConfigError, match=said):
        job_of_this_process(None, {"GARFIELD_ELASTIC_MEMBER": "w0", **told})


def test_of_status_and_file_the_later_batch_counts(server, api, tmp_path):
    agreed = {"batch": {"size": 8, "sinceUs": 5, "most": 8}}
    path = "/apis/elastic.garfield/v1alpha1/namespaces/ns/elasticjobs/j"
    server.answers[path] = (200, {"metadata": {}, "status": {"agreed": agreed}})
    kept = KubernetesCoordination(api, "ns", "j", batch_directory=tmp_path, least_s=0)
    assert kept.read().batch == BatchSize(8, 5, most=8)
    (tmp_path / "batch.json").write_text('{"size": 64, "sinceUs": 9}')
    assert kept.read().batch == BatchSize(64, 9, most=8)


def test_an_operator_without_a_cluster_says_so_and_ends(server, tmp_path):
    def operate(address):
        config = kubeconfig(tmp_path / "config", {}, server=address)
        return invoke(["elastic", "operate", "--kubeconfig", config, "--out", tmp_path / "out"])

    unreachable = operate("http://127.0.0.1:1")
    assert (unreachable.exit_code, "does not answer" in unreachable.stderr) == (1, True)
    bare = operate(server.url)
    assert (bare.exit_code, "knows no ElasticJobs" in bare.stderr) == (2, True)
    unknown = invoke(["elastic", "operate", "--policy", "erra", "--out", tmp_path / "out"])
    assert (unknown.exit_code, "Did you mean era?" in unknown.stderr) == (2, True)


def test_a_job_that_is_gone_or_forbidden_is_no_job_to_join(server, api):
    kept = KubernetesCoordination(api, "ns", "j", least_s=0)
    with pytest.raises(ConfigError, match="is no job to join"):
        kept.check()
    with pytest.raises(CoordinationUnreachable, match="404"):
        kept.read()
