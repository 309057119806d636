import { createHash, createHmac } from "node:crypto";
import { describe, expect, test } from "vitest";
import { hook } from "./hook.ts";
import {
  githubSignature,
  type HookVerifier,
  slackSignature,
  standardWebhooks,
  stripeSignature,
} from "./signatures.ts";

const nowMs = 1_800_000_000_000;
const nowS = nowMs / 1_000;
const body = Buffer.from('{"id":"evt_1","text":"héllo"}');
const secret = "a-secret-of-the-sender";
const hex = (key: string | Uint8Array, signed: string | Uint8Array) =>
  createHmac("sha256", key).update(signed).digest("hex");
const base64 = (key: string | Uint8Array, signed: string | Uint8Array) =>
  createHmac("sha256", key).update(signed).digest("base64");
const joined = (before: string, rest: Uint8Array = body) =>
  Buffer.concat([Buffer.from(before), rest]);

const ask = (verify: HookVerifier, headers: Record<string, string>, sent: Uint8Array = body) =>
  verify({ header: (name) => headers[name], body: sent, nowMs });

describe("a delivery by Standard Webhooks", () => {
  const key = Buffer.from("a key of twenty-four byt");
  const verify = standardWebhooks({
    secret: ["whsec_b3RoZXIgb3RoZXIgb3RoZXIgb3RoZXI=", `whsec_${key.toString("base64")}`],
  });
  const headers = (id = "msg_1", at = nowS) => ({
    "webhook-id": id,
    "webhook-timestamp": String(at),
    "webhook-signature": `v1,AAAA v1a,xyz v1,${base64(key, joined(`${id}.${at}.`))}`,
  });

  test("is known by its signature, whichever secret it is signed with", () => {
    expect(ask(verify, headers())).toEqual({ id: "msg_1" });
  });

  // The published example of the specification's own libraries.
  test("is known as the specification signs it", () => {
    const at = 1_614_265_330;
    const known = standardWebhooks({ secret: "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw" });
    const sent = {
      "webhook-id": "msg_p5jXN8AQM9LWM0D4loKWxJek",
      "webhook-timestamp": String(at),
      "webhook-signature": "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
    };
    const text = Buffer.from('{"test": 2432232314}');
    expect(
      known({
        header: (name) => (sent as Record<string, string>)[name],
        body: text,
        nowMs: at * 1_000,
      }),
    ).toEqual({ id: "msg_p5jXN8AQM9LWM0D4loKWxJek" });
  });

  test.each([
    ["of another body", headers(), Buffer.from("{}")],
    ["of another id", { ...headers(), "webhook-id": "msg_2" }, body],
    ["that is late", headers("msg_1", nowS - 301), body],
    ["of the future", headers("msg_1", nowS + 301), body],
    ["whose time is no number", { ...headers(), "webhook-timestamp": "1e9" }, body],
    ["without a signature", { "webhook-id": "msg_1", "webhook-timestamp": String(nowS) }, body],
    ["without anything", {}, body],
  ])("is refused: one %s", (_, sent, bytes) => {
    expect(ask(verify, sent as Record<string, string>, bytes)).toBeUndefined();
  });
});

describe("a delivery of GitHub", () => {
  const verify = githubSignature({ secret });
  const signature = `sha256=${hex(secret, body)}`;

  test("is known by its signature, and the same whatever id it is sent with", () => {
    const headers = { "x-github-delivery": "d-1", "x-hub-signature-256": signature };
    const known = ask(verify, headers);
    expect(known).toEqual({ id: createHash("sha256").update(body).digest("hex") });
    expect(ask(verify, { ...headers, "x-github-delivery": "d-2" })).toEqual(known);
    expect(ask(verify, headers, Buffer.from("{}"))).toBeUndefined();
    expect(ask(verify, { ...headers, "x-hub-signature-256": "sha256=zz" })).toBeUndefined();
    expect(ask(verify, { "x-github-delivery": "d-1" })).toBeUndefined();
    expect(
      ask(verify, { ...headers, "x-hub-signature-256": signature.slice(0, -2) }),
    ).toBeUndefined();
  });

  // From GitHub's page on validating deliveries.
  test("is known as GitHub signs it", () => {
    const known = githubSignature({ secret: "It's a Secret to Everybody" });
    const headers = {
      "x-hub-signature-256":
        "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17",
    };
    expect(ask(known, headers, Buffer.from("Hello, World!"))).toBeDefined();
  });
});

describe("an event of Stripe", () => {
  const verify = stripeSignature({ secret });
  const header = (at: number, ...keys: string[]) =>
    [`t=${at}`, ...keys.map((key) => `v1=${hex(key, joined(`${at}.`))}`), "v0=00"].join(",");

  test("is known by one of its signatures, and has the event's id", () => {
    expect(ask(verify, { "stripe-signature": header(nowS, "another", secret) })).toEqual({
      id: "evt_1",
    });
    expect(ask(verify, { "stripe-signature": header(nowS, "another") })).toBeUndefined();
    expect(ask(verify, { "stripe-signature": header(nowS - 600, secret) })).toBeUndefined();
    const patient = stripeSignature({ secret, toleranceMs: 3_600_000 });
    expect(ask(patient, { "stripe-signature": header(nowS - 600, secret) })).toBeDefined();
  });
});

describe("a request of Slack", () => {
  const verify = slackSignature({ secret });
  const headers = (sent: Uint8Array, at = nowS) => ({
    "x-slack-request-timestamp": String(at),
    "x-slack-signature": `v0=${hex(secret, joined(`v0:${at}:`, sent))}`,
  });

  test("has the id of its event, or one of its content", () => {
    const event = Buffer.from('{"event_id":"Ev1","type":"event_callback"}');
    expect(ask(verify, headers(event), event)).toEqual({ id: "Ev1" });
    const form = Buffer.from("command=%2Fask&trigger_id=1");
    const { id } = ask(verify, headers(form), form) as { id: string };
    expect(id).toMatch(/^[0-9a-f]{64}$/);
    expect(ask(verify, headers(form, nowS - 400), form)).toBeUndefined();
    expect(ask(verify, headers(form), event)).toBeUndefined();
  });

  test("that asks whether the address is right is answered, if it is signed", () => {
    const sent = Buffer.from('{"type":"url_verification","challenge":"3eZb"}');
    expect(ask(verify, headers(sent), sent)).toEqual({ answer: "3eZb" });
    expect(ask(verify, { ...headers(sent), "x-slack-signature": "v0=00" }, sent)).toBeUndefined();
  });
});

test("what can't work is refused where it is written", () => {
  const verify = githubSignature({ secret });
  const handle = () => null;
  expect(() => githubSignature({ secret: "short" })).toThrow(/at least 8 characters/);
  expect(() => githubSignature({ secret: [] })).toThrow(/at least 8 characters/);
  expect(() => githubSignature({ secret: undefined })).toThrow(/is its environment variable set/);
  expect(() => standardWebhooks({ secret: "whsec_!!!! no base64 !!!!" })).toThrow(/16 bytes/);
  expect(() => stripeSignature({ secret, toleranceMs: 0 })).toThrow(/toleranceMs/);
  expect(() => hook("A b", { verify, handle })).toThrow(/lower-case letters/);
  expect(() => hook("a", { handle } as never)).toThrow(/anyone could speak/);
  expect(() => hook("a", { verify } as never)).toThrow(/must be a function/);
  expect(() => hook("a", { verify, handle, maxBytes: 1 })).toThrow(/maxBytes/);
});
