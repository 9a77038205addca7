#!/usr/bin/env python3
"""Logs, as JSON lines, what the workspace could not know otherwise: how many messages wait, how old the oldest one
is, how many jobs were poisoned, and the worker's metrics. Runs every five minutes, and needs nothing but Python."""

import datetime
import email.utils
import http.client
import json
import math
import os
import re
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
import xml.etree.ElementTree



class NoRedirect(urllib.request.HTTPRedirectHandler):
    """Whoever a service names gets no token."""

    def redirect_request(self, *_):
        return None


# Neither the metadata service nor the worker is behind a proxy.
OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}), NoRedirect)
TIMEOUT = 10
# The service that runs this is stopped after a minute.
ENDS = time.monotonic() + 40
ANSWER_MAX = 1 << 20
# A longer line might be cut on its way to the workspace: rsyslog's default is 8 KiB.
LINE_MAX = 6000
QUEUES_MAX = 256
# What a service that is not well brings about.
WRONG = (OSError, ValueError, KeyError, TypeError, http.client.HTTPException, xml.etree.ElementTree.ParseError)


def get(url, headers=None):
    left = min(TIMEOUT, ENDS - time.monotonic())
    if left <= 0:
        raise TimeoutError("no time is left for it")
    with OPENER.open(urllib.request.Request(url, headers=headers or {}), timeout=left) as answer:
        text = b""
        # The timeout is that of each read.
        while len(text) <= ANSWER_MAX and time.monotonic() < ENDS:
            more = answer.read1(ANSWER_MAX)
            if not more:
                return answer.headers, text.decode("utf-8")
            text += more
        raise ValueError("the answer is too long, or takes too long")


def queues(setting):
    """The names in REPRIEVE_QUEUE: one, several with commas, or a range such as work-{0..7}."""
    names = []
    for part in setting.split(","):
        span = re.fullmatch(r"(.*)\{(\d+)\.\.(\d+)\}(.*)", part.strip())
        if span:
            first, last = int(span[2]), int(span[3])
            # The worker takes no others, and a leading zero pads all numbers.
            if not 0 <= last - first < QUEUES_MAX:
                raise ValueError(f"REPRIEVE_QUEUE has a range that the worker refuses: {part.strip()[:80]}")
            padded = any(len(bound) > 1 and bound.startswith("0") for bound in (span[2], span[3]))
            width = max(len(span[2]), len(span[3])) if padded else 0
            names += [f"{span[1]}{i:0{width}}{span[4]}" for i in range(first, last + 1)]
        elif part.strip():
            names.append(part.strip())
    return names


def queue_endpoint(store):
    """The address of the queues of azure:ACCOUNT or azure:ACCOUNT?endpoint_suffix=core.chinacloudapi.cn."""
    account, _, query = store.removeprefix("azure:").partition("?")
    suffix = urllib.parse.parse_qs(query).get("endpoint_suffix", ["core.windows.net"])[0]
    return f"https://{account}.queue.{suffix}"


def token():
    query = {"api-version": "2018-02-01", "resource": "https://storage.azure.com/"}
    if os.environ.get("AZURE_CLIENT_ID"):
        query["client_id"] = os.environ["AZURE_CLIENT_ID"]
    base = os.environ.get("REPORT_METADATA", "http://169.254.169.254")
    _, text = get(f"{base}/metadata/identity/oauth2/token?{urllib.parse.urlencode(query)}", {"Metadata": "true"})
    return json.loads(text)["access_token"]


def queue_report(endpoint, name, bearer, now):
    """Counts a queue and its poison queue, and peeks at the oldest visible messages, which takes nothing away.

    A message that a worker has had, and released at an eviction, waits for another one; how long it waits is not
    known. So the age is that of the oldest message that no worker has received yet."""
    headers = {"Authorization": f"Bearer {bearer}", "x-ms-version": "2023-11-03"}

    def count(queue):
        answer, _ = get(f"{endpoint}/{queue}?comp=metadata", headers)
        return int(answer["x-ms-approximate-messages-count"])

    _, text = get(f"{endpoint}/{name}/messages?peekonly=true&numofmessages=32", headers)
    seen = xml.etree.ElementTree.fromstring(text.lstrip("\ufeff")).iter("QueueMessage")
    waiting = [message.findtext("InsertionTime") for message in seen if message.findtext("DequeueCount") == "0"]
    age = max((now - email.utils.parsedate_to_datetime(time) for time in waiting if time), default=datetime.timedelta())
    return {
        "report": "queue",
        "queue": name,
        "messages": count(name),
        "poisoned": count(f"{name}-poison"),
        "oldest_s": max(0, int(age.total_seconds())),
    }


def metric_reports(text):
    """The worker's metrics without histograms' buckets, in as many lines as are needed."""
    values, size = {}, 0
    for line in text.splitlines():
        if line.startswith("#") or "_bucket" in line.split("{")[0]:
            continue
        name, _, value = line.rpartition(" ")
        if not name:
            continue
        # As JSON writes it; one that is too long by itself is left out.
        length = len(json.dumps(name)) + 32
        if length > LINE_MAX:
            continue
        if values and size + length > LINE_MAX:
            yield {"report": "metrics", "values": values}
            values, size = {}, 0
        # JSON has neither NaN nor infinities.
        if math.isfinite(float(value)):
            values[name] = float(value)
            size += length
    if values:
        yield {"report": "metrics", "values": values}


def main():
    failed = False

    def attempt(what, make):
        nonlocal failed
        try:
            for line in make():
                print(json.dumps(line, separators=(",", ":")), flush=True)
        except WRONG as error:
            failed = True
            print(json.dumps({"report": "failed", "what": what, "error": str(error)[:300]}), flush=True)

    def all_queues():
        endpoint = os.environ.get("REPORT_QUEUES", queue_endpoint(os.environ["REPRIEVE_STORE"]))
        bearer, now = token(), datetime.datetime.now(datetime.timezone.utc)
        # No VM may serve the queue of the escalated jobs at the moment, so those that send to it report it too.
        for name in queues(os.environ["REPRIEVE_QUEUE"]) + queues(os.environ.get("REPRIEVE_ESCALATE_TO", "")):
            # One queue that can't be read does not silence the others.
            attempt(f"queue {name}", lambda name=name: [queue_report(endpoint, name, bearer, now)])
        return []

    def all_metrics():
        _, text = get(f"http://{os.environ.get('REPRIEVE_LISTEN', '127.0.0.1:9090')}/metrics")
        # Workers that share an address have one that answers, with its own metrics.
        instances = int(os.environ.get("REPRIEVE_INSTANCES") or 1)
        for line in metric_reports(text):
            yield line if instances == 1 else {**line, "one_of": instances}

    # First what is near: a storage that does not answer must not take it away.
    attempt("metrics", all_metrics)
    attempt("queues", all_queues)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
