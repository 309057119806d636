import { Webhook } from "standardwebhooks";
import { describe, expect, test } from "vitest";
import { agentRequest, headersOf, requestOf, secret, secretOf } from "./contract/requests.ts";
import { verify, type VerifyOptions } from "./verify.ts";

const body = JSON.stringify(agentRequest());
const check = (request: Request, options: Partial<VerifyOptions> = {}) =>
  verify(request, { secret, ...options });
const clockAt = (nowMs: number) => ({
  now: () => nowMs,
  monotonic: () => nowMs,
  after: () => () => {},
});

describe("a request that is signed", () => {
  test("is let in, with the body as it was signed and the id of its turn", async () => {
    expect(await check(requestOf())).toEqual({ ok: true, webhookId: "s-1:3", body });
  });

  test("is let in where any library for Standard Webhooks has signed it", async () => {
    const at = new Date();
    const signature = new Webhook(secret).sign("msg_1", at, body);
    const timestamp = String(Math.floor(at.getTime() / 1_000));
    const headers = { "webhook-id": "msg_1", "webhook-timestamp": timestamp };
    const request = new Request("http://a.example", {
      method: "POST",
      headers: { ...headers, "webhook-signature": signature },
      body,
    });
    expect(await check(request)).toMatchObject({ ok: true, webhookId: "msg_1" });
  });

  test("may come as headers and bytes of any server", async () => {
    const headers = headersOf({ body });
    for (const given of [body, Buffer.from(body), new Blob([body]).stream()]) {
      expect(await verify({ headers, body: given }, { secret })).toMatchObject({ ok: true });
    }
    const listed = Object.fromEntries(Object.entries(headers).map(([name, at]) => [name, [at]]));
    expect(await verify({ headers: listed, body }, { secret })).toMatchObject({ ok: true });
  });

  test.each([
    ["the old secret, while here both are known", [1], [1, 2]],
    ["the new secret, while here both are known", [2], [1, 2]],
    ["both, while here only the old one is known", [1, 2], [1]],
    ["both, while here only the new one is known", [1, 2], [2]],
  ])("is let in during a rotation: signed by %s", async (_, signing, known) => {
    const request = requestOf({ secrets: signing.map(secretOf) });
    expect(await check(request, { secret: known.map(secretOf) })).toMatchObject({ ok: true });
  });

  test.each([-300, 300])("is let in by a clock that is %i s off", async (offS) => {
    const nowMs = 1_800_000_000_000;
    const request = requestOf({ nowMs: nowMs + offS * 1_000 });
    expect(await check(request, { clock: clockAt(nowMs) })).toMatchObject({ ok: true });
  });
});

describe("a request that isn't", () => {
  const refused = { ok: false, status: 401, code: "unauthorized" };

  test.each([
    ["has another secret", { secrets: [secretOf(2)] }, /another secret or for another body/],
    ["has no signature", { secrets: [] }, /isn't signed/],
    ["has another id", { headers: { "webhook-id": "s-1:4" } }, /another secret/],
    ["has a time that is none", { headers: { "webhook-timestamp": "soon" } }, /cannot read/],
    ["has a signature of another version", { headers: { "webhook-signature": "v1a,AA==" } }, /./],
    ["has a signature that is no base64", { headers: { "webhook-signature": "v1,**" } }, /./],
    ["has an empty signature", { headers: { "webhook-signature": "v1," } }, /another secret/],
    ["has signatures without end", { headers: { "webhook-signature": "v1,".repeat(9_999) } }, /./],
    ["has an endless id", { headers: { "webhook-id": "i".repeat(300) } }, /cannot read/],
  ])("is refused: %s", async (_, asking, message) => {
    const result = await check(requestOf(asking));
    expect(result).toMatchObject({ ...refused, message: expect.stringMatching(message) });
  });

  test.each([-301, 301])("is refused where it was signed %i s from now", async (offS) => {
    const nowMs = 1_800_000_000_000;
    const request = requestOf({ nowMs: nowMs + offS * 1_000 });
    const result = await check(request, { clock: clockAt(nowMs) });
    expect(result).toMatchObject({ ...refused, message: expect.stringMatching(/too old/) });
  });

  test("is refused with a part of a signature, and with a longer one", async () => {
    const whole = headersOf({ body })["webhook-signature"]!;
    for (const given of [whole.slice(0, -9), `${whole.slice(0, -1)}AAAA=`]) {
      const request = requestOf({ headers: { "webhook-signature": given } });
      expect(await check(request)).toMatchObject(refused);
    }
  });

  test("is refused whichever byte of its body or its signature was changed", async () => {
    const headers = headersOf({ body });
    const bytes = Buffer.from(body);
    for (let at = 0; at < bytes.length; at += 7) {
      const changed = Buffer.from(bytes);
      changed[at]! ^= 1;
      expect(await verify({ headers, body: changed }, { secret })).toMatchObject(refused);
    }
    const signature = Buffer.from(headers["webhook-signature"]!.slice(3), "base64");
    for (let at = 0; at < signature.length; at++) {
      const changed = Buffer.from(signature);
      changed[at]! ^= 128;
      const other = { ...headers, "webhook-signature": `v1,${changed.toString("base64")}` };
      expect(await verify({ headers: other, body }, { secret })).toMatchObject(refused);
    }
  });

  test("isn't read at all where its headers are enough to refuse it", async () => {
    for (const asking of [{ secrets: [] }, { nowMs: 0 }]) {
      const request = requestOf(asking);
      expect(await check(request)).toMatchObject(refused);
      expect(request.bodyUsed).toBe(false);
    }
  });

  test("is refused as it is where it isn't UTF-8, though it is signed", async () => {
    const bytes = Uint8Array.of(0xff, 0xfe);
    const at = String(Math.floor(Date.now() / 1_000));
    const key = await crypto.subtle.importKey(
      "raw",
      Buffer.alloc(32, 1),
      { name: "HMAC", hash: "SHA-256" },
      false,
      ["sign"],
    );
    const signed = Buffer.concat([Buffer.from(`i.${at}.`), bytes]);
    const signature = Buffer.from(await crypto.subtle.sign("HMAC", key, signed)).toString("base64");
    const headers = { "webhook-id": "i", "webhook-timestamp": at };
    const request = {
      headers: { ...headers, "webhook-signature": `v1,${signature}` },
      body: bytes,
    };
    expect(await verify(request, { secret })).toMatchObject({ ok: false, status: 400 });
  });
});

describe("a request that is too large", () => {
  const tooLarge = { ok: false, status: 413, code: "payload_too_large" };

  test("is refused by its content-length, unread", async () => {
    const request = requestOf({ headers: { "content-length": "1001" } });
    expect(await check(request, { maxBytes: 1_000 })).toMatchObject(tooLarge);
    expect(request.bodyUsed).toBe(false);
  });

  test("is refused once it is over the limit, and read no further", async () => {
    let pulled = 0;
    const endless = new ReadableStream<Uint8Array>(
      {
        pull(controller) {
          pulled++;
          controller.enqueue(new Uint8Array(1_000));
        },
      },
      { highWaterMark: 0 },
    );
    const headers = headersOf({ body });
    expect(await verify({ headers, body: endless }, { secret, maxBytes: 3_500 })).toMatchObject(
      tooLarge,
    );
    expect(pulled).toBe(4);
    for (const whole of [body, Buffer.from(body)]) {
      expect(await verify({ headers, body: whole }, { secret, maxBytes: 9 })).toMatchObject(
        tooLarge,
      );
    }
  });

  test("may be as large as the limit", async () => {
    const maxBytes = Buffer.byteLength(body);
    expect(await check(requestOf(), { maxBytes })).toMatchObject({ ok: true });
    expect(await check(requestOf(), { maxBytes: maxBytes - 1 })).toMatchObject(tooLarge);
  });
});

test.each([
  ["is missing", undefined],
  ["is empty", ""],
  ["is none of several", []],
  ["is too many", Array.from({ length: 9 }, (_, byte) => secretOf(byte))],
  ["is one of them", [secret, ""]],
  ["has no prefix", secret.slice(6)],
  ["is too short", `whsec_${Buffer.alloc(23).toString("base64")}`],
  ["is no base64", `${secret.slice(0, 20)} ${secret.slice(20)}`],
])("a secret that %s throws, so that no request is let in by mistake", (_, given) => {
  const options = { secret: given as string };
  expect(() => verify(requestOf(), options)).toThrow(/secret/);
});

test("a body that was read already is an error that says what to do", async () => {
  const request = requestOf();
  await request.text();
  await expect(check(request)).rejects.toThrow(/before express\.json\(\)/);
});
