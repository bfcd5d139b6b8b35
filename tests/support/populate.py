"""Makes one thing of each kind on a server and prints a configuration for schemathesis that names them: with
drawn ids alone, nearly every answer would be 404. `populate.py URL KEY`."""

import json
import sys
import urllib.request

url, key = sys.argv[1:]


def made(path, **members):
    headers = {"authorization": f"Bearer {key}", "content-type": "application/json"}
    request = urllib.request.Request(url + path, json.dumps(members).encode(), headers, method="POST")
    with urllib.request.urlopen(request) as answer:
        return json.load(answer)


account = made("/v1/accounts", name="fuzzed")["id"]
endpoint = made("/v1/endpoints", account_id=account, url="https://hooks.customer.example.com/",
                event_types=["held.back"])["id"]
made(f"/v1/endpoints/{endpoint}/pause")
made("/v1/endpoints", account_id=account, queue="jobs", event_types=["no.job"])
event = made("/v1/events", account_id=account, type="held.back", data={"n": 1})
replay = made("/v1/replays", account_id=account, filter={"status": "dead"}, reason="fuzzed")["id"]
things = {
    "accounts/{id}": account,
    "endpoints/{id}": endpoint,
    "events/{id}": event["id"],
    "deliveries/{id}": event["deliveries"][0]["id"],
    "replays/{id}": replay,
    "queues/{name}": "jobs",
    "keys/{id}": made("/v1/keys", role="support")["id"],
    "explain/{id}": event["id"],
}
# A refusal by the state of things, or of the version that is asked for, is one too.
print("[checks.negative_data_rejection]")
print("expected-statuses = [400, 401, 403, 404, 409, 410, 412, 415, 422]")
for path, thing in things.items():
    noun, name = path.rstrip("}").split("/{")
    print("[[operations]]")
    print(f"include-path-regex = '/{noun}/[{{]{name}[}}]'")
    print(f"parameters = {{ \"path.{name}\" = \"{thing}\" }}")
