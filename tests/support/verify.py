"""The vectors that our signer is held to, judged by the PyPI package `standardwebhooks`.

Usage: python3 verify.py FOLDER-OF-VECTORS
"""

import hashlib
import hmac
import json
import re
import sys
from datetime import datetime
from importlib.metadata import version

from standardwebhooks import webhooks

checked = 0


def read(name):
    with open(f"{sys.argv[1]}/{name}.json", encoding="utf-8") as file:
        return json.load(file)


class Clock(datetime):
    """The package has no other clock than this class."""

    at = 0

    @classmethod
    def now(cls, tz=None):
        return datetime.fromtimestamp(cls.at, tz)


def check(wanted, secret, id, timestamp, body, signature, what):
    global checked
    Clock.at = int(timestamp)
    headers = {"webhook-id": id, "webhook-timestamp": str(timestamp), "webhook-signature": signature}
    try:
        webhooks.Webhook(secret).verify(body, headers, json_parse=False)
        verified = True
    # It throws whatever the decoders below it throw.
    except Exception:
        verified = False
    if verified != wanted:
        sys.exit(f"{what}: {'taken' if verified else 'refused'}")
    checked += 1


def ledger(vector):
    mac = hmac.new(vector["secret"].encode(), vector["body"].encode(), hashlib.sha256)
    return "sha256=" + mac.hexdigest()


webhooks.datetime = Clock
standard = read("standard")
for v in standard:
    for key in v["keys"]:
        of = (v["id"], v["timestamp"], v["body"], v["signature"])
        id, at, body, signature = of
        check(True, key, *of, v["name"])
        check(False, key, id, at, body + " ", signature, f"{v['name']}, a longer body")
        check(False, key, id + "x", at, body, signature, f"{v['name']}, another id")
        check(False, key, id, at + 1, body, signature, f"{v['name']}, another second")
        other = re.sub("v1,(.)", lambda m: "v1," + ("B" if m[1] == "A" else "A"), signature)
        check(False, key, id, at, body, other, f"{v['name']}, another signature")
# Some verifiers read a timestamp more kindly than ours does; those vectors are for ours alone.
for v in read("refused"):
    if re.fullmatch("[1-9][0-9]*", v["timestamp"]):
        check(False, standard[0]["keys"][0], v["id"], v["timestamp"], v["body"], v["signature"], v["name"])
for v in read("ledger"):
    assert ledger(v) == v["signature"], v["name"]
    checked += 1
for v in read("ledger-must-not"):
    assert ledger(v) != v["signature"], v["name"]
    checked += 1
print(f"PyPI standardwebhooks {version('standardwebhooks')}: {checked} verdicts as they should be")
