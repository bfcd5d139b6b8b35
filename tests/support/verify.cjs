// The vectors that our signer is held to, judged by the npm package `standardwebhooks` (found over NODE_PATH).
// Usage: node verify.cjs FOLDER-OF-VECTORS

"use strict";
const { createHmac } = require("node:crypto");
const { readFileSync } = require("node:fs");
const { Webhook } = require("standardwebhooks");

const read = (name) => JSON.parse(readFileSync(`${process.argv[2]}/${name}.json`, "utf8"));
let checked = 0;

function check(wanted, secret, id, timestamp, body, signature, what) {
  // The package has no other clock than the process's own.
  Date.now = () => 1000 * parseInt(timestamp, 10);
  const headers = { "webhook-id": id, "webhook-timestamp": String(timestamp), "webhook-signature": signature };
  let verified = true;
  try {
    new Webhook(secret).verify(body, headers, { jsonParse: false });
  } catch {
    verified = false;
  }
  if (verified !== wanted) throw new Error(`${what}: ${verified ? "taken" : "refused"}`);
  checked += 1;
}

const standard = read("standard");
for (const { name, keys, id, timestamp, body, signature } of standard) {
  for (const key of keys) {
    check(true, key, id, timestamp, body, signature, name);
    check(false, key, id, timestamp, body + " ", signature, `${name}, a longer body`);
    check(false, key, id + "x", timestamp, body, signature, `${name}, another id`);
    check(false, key, id, timestamp + 1, body, signature, `${name}, another second`);
    const other = signature.replace(/v1,(.)/g, (_, first) => "v1," + (first === "A" ? "B" : "A"));
    check(false, key, id, timestamp, body, other, `${name}, another signature`);
  }
}
// Some verifiers read a timestamp more kindly than ours does; those vectors are for ours alone.
for (const { name, id, timestamp, body, signature } of read("refused")) {
  if (/^[1-9][0-9]*$/.test(timestamp)) check(false, standard[0].keys[0], id, timestamp, body, signature, name);
}
const ledger = ({ secret, body }) => "sha256=" + createHmac("sha256", secret).update(body).digest("hex");
for (const vector of read("ledger")) {
  if (ledger(vector) !== vector.signature) throw new Error(vector.name);
  checked += 1;
}
for (const vector of read("ledger-must-not")) {
  if (ledger(vector) === vector.signature) throw new Error(vector.name);
  checked += 1;
}
console.log(`npm standardwebhooks ${require("standardwebhooks/package.json").version}: ${checked} verdicts as they should be`);
