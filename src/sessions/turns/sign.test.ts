import { Webhook } from "standardwebhooks";
import { describe, expect, test } from "vitest";
import { signatureHeaders, webhookIdOf } from "./call-url.ts";

const secretOf = (byte: number) => `whsec_${Buffer.alloc(32, byte).toString("base64")}`;

describe("a signature", () => {
  const body = JSON.stringify({ text: "grüße 🚢" });
  const signed = (secrets: string[]) =>
    signatureHeaders({ webhookId: "s-1:3", nowMs: Date.now(), body, secrets });

  test("is verified by the library that agents use", () => {
    const headers = signed([secretOf(1)]);
    expect(new Webhook(secretOf(1)).verify(body, headers)).toEqual({ text: "grüße 🚢" });
    expect(() => new Webhook(secretOf(2)).verify(body, headers)).toThrow(/No matching/);
    expect(() => new Webhook(secretOf(1)).verify(`${body} `, headers)).toThrow(/No matching/);
  });

  test("is there for each of the secrets while one is replaced by another", () => {
    const headers = signed([secretOf(1), secretOf(2)]);
    for (const byte of [1, 2]) new Webhook(secretOf(byte)).verify(body, headers);
    expect(() => new Webhook(secretOf(3)).verify(body, headers)).toThrow(/No matching/);
  });

  test("is left out where there is no secret", () => {
    expect(Object.keys(signed([]))).toEqual(["webhook-id", "webhook-timestamp"]);
  });
});

describe("a webhook id", () => {
  test("names a session's turn", () => {
    expect(webhookIdOf("chat-1", 7)).toBe("chat-1:7");
  });

  test("can always be sent, and is another for every session and turn", () => {
    const ids = ["grüße", "a b", "a\r\nb", "x".repeat(300)].flatMap((id) => [
      webhookIdOf(id, 1),
      webhookIdOf(id, 2),
    ]);
    expect(new Set(ids).size).toBe(8);
    for (const id of ids) expect(id).toMatch(/^[0-9a-f]{64}$/);
  });
});
